"""Marts as people see them: they are built aside, and shown once their tests have passed.

dbt builds and tests tables of `marts_staging`. `marts` has a view for each, over the newest version that has passed.
The view names that version, and so does a note for each source beside the lake. Without the note the marts are built
whole, tested and shown again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spark_jobs.storage.delta.table_notes import NotedTable
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.lakes.spark_lake import SparkLake

MARTS, STAGING = "marts", "marts_staging"
NO_VERSION = -1
"""The version of a mart that dbt makes as a view, which shows the rows that are published now."""
_ENDING = ".published"


@dataclass(frozen=True)
class ShownMarts:
    """The versions of a source's marts that people see.

    published_us: the publication that all of them show; None while a mart that failed shows an earlier one. project:
    the version of the models and tests by which they were built. versions: the version of each mart's table that is
    shown.
    """

    published_us: int | None = None
    project: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)


def shown_marts(home: Path, source: str) -> ShownMarts:
    """The content of the source's note; empty if the note is gone, cut off, or of an older version of Tidemark."""
    try:
        return ShownMarts(**json.loads(_note(home, source).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return ShownMarts()


def note_shown(home: Path, source: str, marts: ShownMarts) -> None:
    """Write the source's note."""
    note = _note(home, source)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(asdict(marts)))


def notes_folder(home: Path) -> Path:
    """The folder of all sources' notes."""
    return home / "dbt"


def notes(home: Path) -> list[Path]:
    """The notes of all sources."""
    return sorted(notes_folder(home).glob(f"*{_ENDING}"))


def forget_shown(home: Path, source: str) -> None:
    """Remove the source's note."""
    _note(home, source).unlink(missing_ok=True)


def dbt_docs_file(home: Path) -> Path:
    """dbt's own documentation of the models, once somebody has asked for it."""
    return home / "dbt" / "docs" / "static_index.html"


def staging_table(mart: str) -> Table:
    """The table that a mart is built in."""
    return Table(STAGING, mart, "", ())


def remove_mart(lake: SparkLake, mart: str) -> None:
    """Remove a mart's view and its table; nothing if there is no table."""
    if lake.folder.is_stored(STAGING, mart):
        lake.catalog.define(f"DROP VIEW IF EXISTS {qualified(MARTS, mart)}")
        lake.catalog.drop(staging_table(mart))


def show(lake: SparkLake, mart: str, tested: NotedTable | None) -> None:
    """Show this version of a mart from now on, by one change of the catalog. A mart that is no table (`tested` is None)
    always shows its present rows."""
    if lake.folder.is_stored(MARTS, mart) and mart not in lake.catalog.views(MARTS):
        # in a lake of an older version, people read the table that dbt wrote
        lake.catalog.define(f"DROP TABLE IF EXISTS {qualified(MARTS, mart)}")
    about = literal("" if tested is None else tested.description)
    version = "" if tested is None else f" VERSION AS OF {tested.version}"
    lake.catalog.define(
        f"CREATE OR REPLACE VIEW {qualified(MARTS, mart)} COMMENT {about} AS"
        f" SELECT * FROM {qualified(STAGING, mart)}{version}"
    )


def _note(home: Path, source: str) -> Path:
    return notes_folder(home) / f"{source}{_ENDING}"
