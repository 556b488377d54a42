"""The search for a value in files of tables, and in landed files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote

import pyarrow.compute as pc
from pyarrow.fs import FileSelector

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.erasure.words import in_parquet, is_distinct, names_value, pattern_of
from spark_jobs.landing.files import LandingDirectory, landing_directory
from spark_jobs.landing.ledger import versions
from spark_jobs.landing.opened import UnusableFileError, is_remote, local_path, open_file
from spark_jobs.lifecycle.source_parts import histories
from spark_jobs.sources import Source
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.descriptions.people_tables import PINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DATABASES, QUARANTINE
from spark_jobs.storage.lakes.lake import Lake, TableReader
from spark_jobs.storage.names.shown_marts import shown_marts, staging_table
from spark_jobs.threads import THREADS, map_requests

_BUFFER_BYTES = 4 << 20
"""The bytes that one request to a landing directory in a store reads."""
_RESTORED = "erase once more; if it stays, another column than the erased one has it"
_OF_PEOPLE = "a table that somebody has made: take its rows out there, or drop it; then VACUUM"


@dataclass(frozen=True)
class LandedFiles:
    """The paths of landed files that have rows of a value or name it; and the places that could not be searched."""

    paths: Sequence[str]
    unsearched: Sequence[str]


def landed_files(settings: Settings, lake: TableReader, source: Source, value: str, counted: set[str]) -> LandedFiles:
    """The landed files that their owner has to rewrite.

    These are the files in `counted`, which had rows of the value, and files that have it as a word of text or in a
    column of Parquet. Files that are no longer there are left out.

    Raises:
        LandingUnreachable: a remote landing directory does not answer.
    """
    root = settings.landing
    all_paths = sorted(versions(lake, source))
    if not is_remote(root):
        all_paths = [path for path in all_paths if (local_path(root) / path).is_file()]
    look = _LandedSearch(landing_directory(root), value, counted)
    paths, unsearched = [], []
    for path, has_it in zip(all_paths, map_requests(look.has_value, all_paths), strict=True):
        if has_it is True:
            paths.append(path)
        elif has_it is not False:
            unsearched.append(f"{root}/{path}: not searched: {has_it}")
    return LandedFiles(paths, unsearched)


@dataclass(frozen=True)
class _LandedSearch:
    """The search for a value in landed files. `counted`: files that are known to have had rows of it."""

    landing: LandingDirectory
    value: str
    counted: set[str]

    def has_value(self, path: str) -> bool | str:
        """True if a landed file has to be rewritten; a text if it can't be read, with the reason."""
        try:
            with open_file(self.landing.location(path)) as opened:
                file = io.BufferedReader(cast(io.RawIOBase, opened.raw), _BUFFER_BYTES)
                return path in self.counted or names_value(file, self.value)
        except UnusableFileError as unusable:
            # no file: it was removed after it had landed
            return False if unusable.rule == "not_a_file" else str(unusable)
        except OSError as error:
            return str(error)


def counted_out(lake: Lake, source: Source, erasure: str) -> set[str]:
    """The files with rows that this erasure has counted as erased."""
    of_erasure = pc.field("run_id") == erasure
    rows = lake.stored(QUARANTINE, ["file"], of_erasure, {"source": [source.name]}).whole()
    return set(rows["file"].to_pylist())


def left_in_tables(settings: Settings, lake: TableReader, source: Source, value: str) -> Iterator[str]:
    """The files that still have the value, in the source's tables and in tables that people have made.

    Files of logs are included. Each line has the file and what to do about it.
    """
    marts = [staging_table(mart) for mart in shown_marts(settings.home, source.name).versions]
    tables = {table.qualified: table for table in (*histories(lake, source.name), *marts, *source_tables(source))}
    for table in tables.values():
        listed = _files_to_search(lake.folder, lake.folder.path(table), source, shared="source" in table.partitions)
        yield from _search_files(lake.folder, listed, value, _RESTORED)
    entries = lake.folder.files().get_file_info(FileSelector("", allow_not_found=True))
    for entry in sorted(entries, key=lambda entry: entry.path):
        database, dot, ending = entry.base_name.partition(".")
        if dot + ending == ".db" and _is_of_people(database):
            listed = _files_to_search(lake.folder, entry.base_name, source, shared=False)
            yield from _search_files(lake.folder, listed, value, _OF_PEOPLE)


def _is_of_people(database: str) -> bool:
    # from environments (<environment>__<database>) the erasure removes the source's tables; pins are copied anew
    return database not in DATABASES and database != PINS.database and "__" not in database


def _files_to_search(lake: LakeFolder, folder: str, source: Source, *, shared: bool) -> list[str]:
    """The paths of the files below a folder of the lake, without the data files of other sources in a shared table."""
    paths = sorted(lake.sizes(folder))
    of_source = f"source={quote(source.name)}"
    return [
        path
        for path in paths
        if not (shared and path.endswith(".parquet")) or {of_source, LOG_DIR} & {*path.split("/")}
    ]


def _search_files(lake: LakeFolder, paths: Sequence[str], value: str, advice: str) -> Iterator[str]:
    """A line for each file that has the value. Each processor reads a file at a time, whole."""
    files, pattern = lake.files(), pattern_of(value)

    def has_value(path: str) -> bool:
        if not path.endswith(".parquet") and not is_distinct(value):
            return False
        with files.open_input_file(path) as file:
            content = file.read_buffer()
        return in_parquet(content, value) if path.endswith(".parquet") else pattern.search(content) is not None

    for path, has_it in zip(paths, map_requests(has_value, paths, THREADS), strict=True):
        if has_it:
            yield f"{lake.root}/{path}: {advice}"


def given_up_histories(lake: Lake, source: Source) -> list[Table]:
    """The histories of windows that are no longer in the source file; no run restates them."""
    current = {table.qualified for table in source_tables(source)}
    return [table for table in histories(lake, source.name) if table.qualified not in current]
