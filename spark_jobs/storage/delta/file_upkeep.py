"""Upkeep of a table's files: joining small files, removing those out of use, and counting both.

Joining and removing files changes no row, so no answer. Files that a compaction replaces stay until they have been out
of use for a while: a reader that opened the table before still finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.storage.delta.commits import commit
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import ROWS_A_GROUP
from spark_jobs.storage.descriptions.sql import literal

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyarrow.fs import FileSystem

SMALL_BYTES = 64 << 20
"""Files of fewer bytes are joined, to files of about this size."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """A number of files, and the sum of their bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(self.files + other.files, self.bytes + other.bytes)


def files_in_use(handle: TableHandle, source: str | None = None) -> Footprint:
    """The data files of the newest version, in number and bytes; with `source`, only its files in a shared table."""

    listed = pa.table(open_table(handle).get_add_actions(flatten=True))
    files = listed.select(["size_bytes", *(["partition.source"] if source else [])]).to_pylist()
    sizes = [file["size_bytes"] for file in files if source is None or file["partition.source"] == source]
    return Footprint(len(sizes), sum(sizes))


def files_stored(handle: TableHandle) -> Footprint:
    """All files below the table's folder, in number and bytes; its log and files out of use are included."""
    sizes = handle.sizes().values()
    return Footprint(len(sizes), sum(sizes))


def compact_small_files(handle: TableHandle, source: str | None = None) -> None:
    """Join small files within their partitions, in at most one commit; with `source`, only its files in a shared table.

    Raises:
        CommitsContended: others committed all the time.
    """
    from deltalake import WriterProperties

    layout = WriterProperties(compression="SNAPPY", max_row_group_size=ROWS_A_GROUP)
    chosen = None if source is None else [("source", "=", source)]

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        table.optimize.compact(chosen, target_size=SMALL_BYTES, writer_properties=layout, commit_properties=properties)

    commit(handle, None, write)


def delete_rows_before(handle: TableHandle, source: str, column: str, before: datetime) -> None:
    """Remove the rows of `source` whose time in `column` is before `before`, in at most one commit.

    Raises:
        CommitsContended: others committed all the time.
    """
    stamp = before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    of_source = f"source = {literal(source)} AND {column} < {literal(stamp)}"

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        table.delete(of_source, commit_properties=properties)

    commit(handle, None, write)


def remove_unused(handle: TableHandle, kept: timedelta) -> None:
    """Remove files that have been out of use for as long as `kept`, and files of that age that no commit ever named."""

    hours = int(kept / timedelta(hours=1))
    table = open_table(handle)
    table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    if handle.is_local:
        _remove_sidecars(handle.files(), kept)


def _remove_sidecars(files: FileSystem, kept: timedelta) -> None:
    """Remove the checksum files that Hadoop writes beside each file on a local disk, where the file itself is gone: a
    vacuum ignores hidden files. Checksum files of the log stay, since they reveal that a version is missing."""
    from pyarrow.fs import FileSelector

    listed = {file.path: file for file in files.get_file_info(FileSelector("", recursive=True))}
    before = datetime.now(UTC) - kept
    for path, file in listed.items():
        folder, _, name = path.rpartition("/")
        if LOG_DIR in path.split("/") or not (name.startswith(".") and name.endswith(".crc")):
            continue
        of = name.removeprefix(".").removesuffix(".crc")
        if (f"{folder}/{of}" if folder else of) not in listed and file.mtime <= before:
            files.delete_file(path)
