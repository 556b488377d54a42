"""The search for a value in files of tables, and in landed files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.erasure.words import in_parquet, is_distinct, names_value, pattern_of
from spark_jobs.landing.ledger import versions
from spark_jobs.lifecycle.source_parts import histories
from spark_jobs.sources import Source
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.descriptions.people_tables import PINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DATABASES, QUARANTINE
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.names.shown_marts import shown_marts, staging_table

_RESTORED = "erase once more; if it stays, another column than the erased one has it"
_OF_PEOPLE = "a table that somebody has made: take its rows out there, or drop it; then VACUUM"


@dataclass(frozen=True)
class LandedFiles:
    """The paths of landed files that have rows of a value or name it; and the places that could not be searched."""

    paths: Sequence[str]
    unsearched: Sequence[str]


def landed_files(settings: Settings, lake: Lake, source: Source, value: str, counted: set[str]) -> LandedFiles:
    """The landed files that their owner has to rewrite.

    These are the files in `counted`, which had rows of the value, and files that have it as a word of text or in a
    column of Parquet.
    """
    all_paths = sorted(versions(lake, source))
    root = settings.landing
    if not isinstance(root, Path):
        unsearched = (
            [] if set(all_paths) <= counted else [f"{root}: not searched for files that name it in other records"]
        )
        return LandedFiles(sorted(counted), unsearched)
    paths, unsearched = [], []
    for path in all_paths:
        if not (root / path).is_file():
            continue
        try:
            if path in counted or names_value(root / path, value):
                paths.append(path)
        except OSError as error:
            unsearched.append(f"{root / path}: not searched: {error}")
    return LandedFiles(paths, unsearched)


def counted_out(lake: Lake, source: Source, erasure: str) -> set[str]:
    """The files with rows that this erasure has counted as erased."""
    of_erasure = pc.field("run_id") == erasure
    rows = lake.stored(QUARANTINE, ["file"], of_erasure, {"source": [source.name]}).whole()
    return set(rows["file"].to_pylist())


def left_in_tables(settings: Settings, lake: Lake, source: Source, value: str) -> Iterator[str]:
    """The files that still have the value, in the source's tables and in tables that people have made.

    Files of logs are included. Each line has the file and what to do about it.
    """
    root = lake.folder.root
    if "://" in root:
        yield f"{root}: files of tables were not searched, as the lake is not on this disk"
        return
    marts = [staging_table(mart) for mart in shown_marts(settings.home, source.name).versions]
    tables = {table.qualified: table for table in (*histories(lake, source.name), *marts, *source_tables(source))}
    for table in tables.values():
        for path in _files_with(
            Path(lake.folder.handle(table).uri), source, value, shared="source" in table.partitions
        ):
            yield f"{path}: {_RESTORED}"
    for folder in sorted(Path(root).glob("*.db")):
        if _is_of_people(folder.name.removesuffix(".db")):
            for path in _files_with(folder, source, value, shared=False):
                yield f"{path}: {_OF_PEOPLE}"


def _is_of_people(database: str) -> bool:
    # from environments (<environment>__<database>) the erasure removes the source's tables; pins are copied anew
    return database not in DATABASES and database != PINS.database and "__" not in database


def _files_with(folder: Path, source: Source, value: str, *, shared: bool) -> Iterator[Path]:
    pattern = pattern_of(value)
    for path in sorted(folder.rglob("*")):
        of_others = shared and path.suffix == ".parquet" and f"source={quote(source.name)}" not in path.parts
        if not path.is_file() or (of_others and LOG_DIR not in path.parts):
            continue
        if in_parquet(path, value) if path.suffix == ".parquet" else _in_log(path, pattern, value):
            yield path


def _in_log(path: Path, pattern: re.Pattern[bytes], value: str) -> bool:
    return is_distinct(value) and pattern.search(path.read_bytes()) is not None


def given_up_histories(lake: Lake, source: Source) -> list[Table]:
    """The histories of windows that are no longer in the source file; no run restates them."""
    current = {table.qualified for table in source_tables(source)}
    return [table for table in histories(lake, source.name) if table.qualified not in current]
