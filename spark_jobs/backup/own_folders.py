"""What a team has in folders of its own, and its sources need to go on: plugins, expectations, dbt models, and
environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_jobs.backup.sets import DBT, ENVIRONMENTS, EXPECTATIONS, PLUGINS, BackupSet
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings
from spark_jobs.sources.environments import FOLDER

_WITHOUT_DEFAULT = (PLUGINS, DBT)
"""Settings, called like the parts, that name no folder unless somebody sets them."""
_OWN = "own"
"""Folder of a home with what a restore brings for such a setting."""
_MADE_ANEW = ("__pycache__",)
_SHIPPED = "README.md"
"""What the product has in the folder of expectations; a later version may say it otherwise."""


def folders(settings: Settings) -> dict[str, Path]:
    """Part of a set -> the folder that it is of here; of a setting that is not set, the place where a restore puts
    it."""
    return {
        PLUGINS: settings.plugins or settings.home / _OWN / PLUGINS,
        EXPECTATIONS: settings.expectations,
        DBT: settings.dbt or settings.home / _OWN / DBT,
        ENVIRONMENTS: settings.home / FOLDER,
    }


def own_files(settings: Settings) -> Iterator[tuple[str, Path, str]]:
    """The files of these folders: part, folder, path in it. What is hidden or compiled is left out."""
    unset = {part for part in _WITHOUT_DEFAULT if getattr(settings, part) is None}
    for part, folder in folders(settings).items():
        for file in sorted(folder.rglob("*")) if part not in unset else ():
            path = file.relative_to(folder)
            if not file.is_file() or any(name.startswith(".") or name in _MADE_ANEW for name in path.parts):
                continue
            if (part, str(path)) != (EXPECTATIONS, _SHIPPED):
                yield part, folder, path.as_posix()


def to_set(settings: Settings, back: BackupSet) -> dict[str, str]:
    """Environment variable -> folder, for what a restore brought into the home because no setting names a place."""
    parts = [part for part in _WITHOUT_DEFAULT if getattr(settings, part) is None and back.of(part)]
    return {f"{ENVIRONMENT_PREFIX}{part.upper()}": str(folders(settings)[part]) for part in parts}
