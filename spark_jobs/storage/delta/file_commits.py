"""Commits of data files that pyarrow has written (`written_files`), by `deltalake`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.storage.delta.commits import commit
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination, Layout, WrittenFile

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


def destination(handle: TableHandle, partitions: Sequence[str], bounded: Sequence[str], layout: Layout) -> Destination:
    """The destination of new files of a table, with the columns that the table has now."""

    schema = pa.schema(open_table(handle).schema().to_arrow())
    return Destination(handle, schema, tuple(partitions), tuple(bounded), layout)


def append_files(
    handle: TableHandle,
    files: Sequence[WrittenFile],
    *,
    dropped: tuple[str, Sequence[str]] = ("", ()),
) -> None:
    """Make written files part of the table, in one commit. `dropped`: a partition column, and the values whose files
    the same commit removes.

    Raises:
        CommitsContended: others committed all the time.
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, dict(f.partition), f.modified_ms, True, f.stats) for f in files
        ]
        now_ms = int(time.time() * 1000)
        actions += [
            RemoveAction(file["path"], True, now_ms, file["size_bytes"], file["partition"])
            for file in _files_of(table, *dropped)
        ]
        columns = table.metadata().partition_columns
        table.create_write_transaction(actions, "append", table.schema(), columns or None, commit_properties=properties)

    commit(handle, None, write)


def _files_of(table: DeltaTable, column: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """Path, size and partition of the files whose partition `column` is one of `values`."""
    if not values:
        return []
    listed = pa.table(table.get_add_actions()).select(["path", "size_bytes", "partition"])
    return [file for file in listed.to_pylist() if file["partition"][column] in values]
