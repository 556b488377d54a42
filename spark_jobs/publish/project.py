"""The dbt project of a build: the product's marts, and the models in the folder that `TIDEMARK_DBT` names.

Both are copied into one project below the data directory, in a folder named by a hash of its files. So builds of two
sources at the same time share it, and a changed model makes another project.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from spark_jobs.config import SHIPPED, Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.sources import Source, read_sources

PROJECT = SHIPPED / "dbt"
"""The product's dbt project; its `profiles.yml` is beside it."""
TEAM = "own"
"""The folder of a team's own models, macros and tests, within `models`, `macros` and `tests`."""
_PARTS = ("models", "macros", "tests")
_OF_DBT = (".sql", ".yml", ".yaml", ".md")
_LISTED = Path("models", "sources.yml")


@dataclass(frozen=True)
class Project:
    """A project as it is laid out. `version`: a hash of its files."""

    folder: Path

    @property
    def version(self) -> str:
        """The hash of the project's files; another one as soon as a model or test changes."""
        return self.folder.name

    @cached_property
    def models(self) -> set[str]:
        """The names of the project's models: those of their files, without `.sql`."""
        return {path.stem for path in (self.folder / "models").rglob("*.sql")}

    def written_as(self, settings: Settings, file: str) -> Path:
        """The path of a file of the project in the folder from which it was copied: the product's or the team's."""
        part, *others = Path(file).parts
        if others[:1] != [TEAM] or settings.dbt is None:
            return PROJECT / file
        return Path(settings.dbt, *((part,) if (settings.dbt / "models").is_dir() else ()), *others[1:])

    def selectors(self, source: Source) -> list[str]:
        """dbt's selectors for a source: the marts with its tag, and the team's models made of its published tables."""
        if not (self.folder / "models" / TEAM).is_dir():
            return [f"tag:{source.name}"]
        return [
            f"tag:{source.name}",
            *(f"source:{name}+,path:models/{TEAM}" for name in _descriptions_of_tables(source)),
        ]


def laid_out(settings: Settings) -> Project:
    """The project with its files as they are now, copied into its folder unless that is there.

    Raises:
        ConfigurationError: `TIDEMARK_DBT` names no folder.
    """
    files = {path: (PROJECT / path).read_bytes() for path in _files(PROJECT, ["dbt_project.yml", *_PARTS])}
    if settings.dbt is not None:
        files |= _team_files(settings.dbt)
        described = yaml.safe_load(files[_LISTED])
        others = _other_sources(read_sources(settings.sources).sources.values(), described)
        files[Path("models", TEAM, "sources_of_the_lake.yml")] = yaml.safe_dump(others, sort_keys=False).encode()
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    folder = settings.home / "dbt" / "projects" / digest.hexdigest()[:16]
    if not folder.is_dir():
        _lay_out(folder, files)
    return Project(folder)


def _files(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files that dbt reads among these files and folders of `folder`; paths relative to `folder`."""
    paths = [path for name in names for path in [folder / name, *(folder / name).rglob("*")]]
    return [path.relative_to(folder) for path in paths if path.suffix in _OF_DBT and path.is_file()]


def _team_files(folder: Path) -> dict[Path, bytes]:
    """The contents of a team's files by their paths in the project.

    A folder without a subfolder `models` is itself a folder of models.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            expected="TIDEMARK_DBT to name a folder of dbt models",
            found=str(folder),
            consequence="no mart was built",
            next_step="correct the setting, or create the folder",
        )
    parts = _PARTS if (folder / "models").is_dir() else ("",)
    files = {}
    for part in parts:
        for path in _files(folder / part, [""]):
            files[Path(part or "models", TEAM, path)] = (folder / part / path).read_bytes()
    return files


def _other_sources(sources: Iterable[Source], described: Mapping[str, Any]) -> dict[str, Any]:
    """A dbt document of the tables that sources publish, for dbt's `source()`, without those in `described`."""
    described_tables = {f"{each['name']}.{table['name']}" for each in described["sources"] for table in each["tables"]}
    tables: dict[str, list[dict[str, str]]] = {}
    for source in sources:
        for name, about in _descriptions_of_tables(source).items():
            database, table = name.split(".", 1)
            if name not in described_tables:
                tables.setdefault(database, []).append({"name": table, "description": about})
    return {"version": 2, "sources": [{"name": name, "tables": listed} for name, listed in tables.items()]}


def _descriptions_of_tables(source: Source) -> dict[str, str]:
    """The names of the tables that a source publishes, each with its description."""
    published = {}
    for window in source.windows:
        published[f"silver.{window}"] = f"Windows {window} of {source.name} as published now."
        published[f"silver.{window}_history"] = f"Windows {window} of {source.name}, every row that ever was published."
    if source.state is not None:
        published[f"gold.{source.name}"] = f"State of {source.name} as published now."
    return published


def _lay_out(folder: Path, files: Mapping[Path, bytes]) -> None:
    fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    for path, content in files.items():
        place = fresh / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    try:
        fresh.replace(folder)
    except OSError:
        # another build has made the folder meanwhile
        shutil.rmtree(fresh)
        if not folder.is_dir():
            raise
