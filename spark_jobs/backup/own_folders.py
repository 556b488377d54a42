"""A team's own folders, which a restore brings back: plugins, expectations, dbt models, environments, saved queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_jobs.backup.sets import DBT, ENVIRONMENTS, EXPECTATIONS, PLUGINS, BackupSet
from spark_jobs.config import ENVIRONMENT_PREFIX, QUERIES, Settings
from spark_jobs.sources.environments import FOLDER

_WITHOUT_DEFAULT = (PLUGINS, DBT)
"""The parts whose settings, of the same names, have no folder by default."""
_OWN = "own"
"""The folder of a home to which a restore brings the files of a setting that is not set."""
_MADE_ANEW = ("__pycache__",)
_SHIPPED = "README.md"
"""The product's own file in the folder of expectations; a later version may have another text."""


def folders(settings: Settings) -> dict[str, Path]:
    """The folder of each part of a set in this home. For a setting that is not set, it is the folder to which a restore
    brings the part."""
    return {
        PLUGINS: settings.plugins or settings.home / _OWN / PLUGINS,
        EXPECTATIONS: settings.expectations,
        DBT: settings.dbt or settings.home / _OWN / DBT,
        ENVIRONMENTS: settings.home / FOLDER,
        QUERIES: settings.home / QUERIES,
    }


def own_files(settings: Settings) -> Iterator[tuple[str, Path, str]]:
    """Yield the files of these folders: part, folder, and path in the folder. Hidden and compiled files are left
    out."""
    unset = {part for part in _WITHOUT_DEFAULT if getattr(settings, part) is None}
    for part, folder in folders(settings).items():
        for file in sorted(folder.rglob("*")) if part not in unset else ():
            path = file.relative_to(folder)
            if not file.is_file() or any(name.startswith(".") or name in _MADE_ANEW for name in path.parts):
                continue
            if (part, str(path)) != (EXPECTATIONS, _SHIPPED):
                yield part, folder, path.as_posix()


def to_set(settings: Settings, back: BackupSet) -> dict[str, str]:
    """The folders, by environment variable, that a restore brought into the home because no setting names a folder."""
    parts = [part for part in _WITHOUT_DEFAULT if getattr(settings, part) is None and back.of(part)]
    return {f"{ENVIRONMENT_PREFIX}{part.upper()}": str(folders(settings)[part]) for part in parts}
