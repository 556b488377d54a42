"""Removing or changing rows by rewriting the files that have them, and forgetting earlier versions.

A usual deletion leaves the rows where they were: Delta keeps the replaced files for readers of earlier versions, and
the log has bounds of their values. An erasure needs both gone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.storage.delta.commits import commit
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination, WrittenFile

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyarrow import fs

Change = Callable[[pa.Table], pa.Table | None]
"""A function that gives the new rows of a file, partition columns included; None: they stay as they are."""
_OF_VERSION = re.compile(r"(\d{20})\.")
FORGOTTEN = "tidemark.forgotten_at"
"""Table property: when earlier versions were forgotten, in milliseconds since 1970."""


@dataclass
class Rewritten:
    """The result of rewriting: the number of rewritten files, and the numbers of their rows before and after."""

    files: int = 0
    rows_before: int = 0
    rows_after: int = 0

    @property
    def removed(self) -> int:
        """The number of rows that were removed."""
        return self.rows_before - self.rows_after


def rewrite_rows(
    to: Destination,
    change: Change,
    *,
    looked_at: Sequence[str],
    where: Mapping[str, str] | None = None,
    below: tuple[str, Any] | None = None,
    more: pa.Table | None = None,
    files: Sequence[WrittenFile] = (),
) -> Rewritten:
    """Change the rows of a table file by file, in one commit; no commit if all stay as they are.

    Args:
        to: the table, and how its files are written.
        change: called with the columns `looked_at` first, and with all columns only if it changes those.
        looked_at: columns that decide whether a file is rewritten.
        where: values of partition columns; files of other partitions are left alone.
        below: a column and a value; files in which the column is nowhere below the value, by the log, are left alone.
        more: rows that come in the same commit.
        files: files written already that come in it, too.

    Raises:
        CommitsContended: others committed all the time.
    """
    result = Rewritten()

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        result.files = result.rows_before = result.rows_after = 0
        system = to.handle.files()
        new = [*files, *([] if more is None else to.write([more]))]
        actions: list[Any] = [_add_action(AddAction, one) for one in new]
        now_ms = int(time.time() * 1000)
        for file in pa.table(table.get_add_actions()).to_pylist():
            partition = file.get("partition") or {}
            if any(partition.get(column) != value for column, value in (where or {}).items()):
                continue
            if below is not None and _is_nowhere_below(file, *below):
                continue
            path = unquote(file["path"])
            if change(_read(system, path, partition, to, looked_at)) is None:
                continue
            before = _read(system, path, partition, to, to.schema.names)
            after = change(before)
            assert after is not None, "a row that matches in some columns matches in all of them"
            actions.append(RemoveAction(file["path"], True, now_ms, file["size_bytes"], partition))
            written = to.write([after])
            actions += [_add_action(AddAction, one) for one in written]
            result.files += 1
            result.rows_before, result.rows_after = (
                result.rows_before + before.num_rows,
                result.rows_after + after.num_rows,
            )
        if not actions:
            raise _Unchanged
        columns = table.metadata().partition_columns
        table.create_write_transaction(actions, "append", table.schema(), columns or None, commit_properties=properties)

    with suppress(_Unchanged):
        commit(to.handle, None, write)
    return result


def _is_nowhere_below(file: Mapping[str, Any], column: str, value: Any) -> bool:
    """True if the log says so; a file without a bound in the log may have any value."""
    least = (file.get("min") or {}).get(column)
    return least is not None and least >= value


def copy_partition(to: Destination, column: str, value: str, copy: str) -> int:
    """Copy the rows of the partitions whose `column` is `value` into the partition `copy`, in one commit; returns their
    number. Rows that are in `copy` already are removed, so that it may be done again.

    Raises:
        CommitsContended: others committed all the time.
    """
    copied = 0

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        nonlocal copied
        copied = 0
        actions: list[Any] = []
        system, now_ms = to.handle.files(), int(time.time() * 1000)
        for file in pa.table(table.get_add_actions()).to_pylist():
            partition = file["partition"]
            if partition[column] == copy:
                actions.append(RemoveAction(file["path"], True, now_ms, file["size_bytes"], partition))
            elif partition[column] == value:
                rows = _read(system, unquote(file["path"]), {**partition, column: copy}, to, to.schema.names)
                actions += [_add_action(AddAction, one) for one in to.write([rows])]
                copied += rows.num_rows
        if not actions:
            raise _Unchanged
        columns = table.metadata().partition_columns
        table.create_write_transaction(actions, "append", table.schema(), columns, commit_properties=properties)

    with suppress(_Unchanged):
        commit(to.handle, None, write)
    return copied


def renames(column: str, names: Mapping[str, str]) -> Change:
    """The change that replaces texts in a column by the texts that `names` has for them."""

    def change(rows: pa.Table) -> pa.Table | None:
        texts = rows[column].to_pylist()
        if not any(text in names for text in texts):
            return None
        place, field = rows.column_names.index(column), rows.schema.field(column)
        return rows.set_column(place, field, pa.array([names.get(text, text) for text in texts], field.type))

    return change


class _Unchanged(Exception):
    """There was nothing to commit."""


def _add_action(kind: Any, file: WrittenFile) -> Any:
    return kind(file.path, file.size, dict(file.partition), file.modified_ms, True, file.stats)


def _read(
    system: fs.FileSystem, path: str, partition: Mapping[str, str | None], to: Destination, columns: Sequence[str]
) -> pa.Table:
    """Columns of a file. Partition columns have the values of `partition`; a column that the file lacks is null."""
    opened = pq.ParquetFile(system.open_input_file(path))
    present = set(opened.schema_arrow.names)
    stored = opened.read([name for name in columns if name in present])
    arrays = []
    for name in columns:
        field = to.schema.field(name)
        if name in partition:
            arrays.append(pa.repeat(pa.scalar(partition[name], pa.string()), stored.num_rows).cast(field.type))
        elif name in present:
            arrays.append(stored[name].cast(field.type))
        else:
            arrays.append(pa.nulls(stored.num_rows, field.type))
    return pa.table(arrays, schema=pa.schema([to.schema.field(name) for name in columns]))


def forget_versions(handle: TableHandle, source: str | None = None) -> None:
    """Remove all versions of a table but the newest: the data files that it does not name, and the log's entries of
    earlier versions. Readers of an earlier version no longer find it.

    `source`: in a shared table, only files of its partition are removed, as runs of other sources may be writing
    theirs. Nobody may be writing the files that are removed.
    """
    now_ms = int(time.time() * 1000)

    def touch(table: DeltaTable, properties: CommitProperties) -> None:
        # the newest commit then adds no file: once older ones are gone, the log has no bounds of removed rows
        noted = {FORGOTTEN: str(now_ms)}
        table.alter.set_table_properties(noted, raise_if_not_exists=False, commit_properties=properties)

    commit(handle, None, touch)
    table = open_table(handle)
    table.create_checkpoint()
    newest, named = table.version(), {unquote(file["path"]) for file in pa.table(table.get_add_actions()).to_pylist()}
    of_source = "" if source is None else f"source={quote(source)}/"
    in_log = f"{LOG_DIR}/"
    unnamed, earlier = [], []
    for path in handle.sizes():
        folder, _, name = path.rpartition("/")
        of = f"{folder}/{name.removeprefix('.').removesuffix('.crc')}".lstrip("/")  # a checksum goes with its file
        version = _OF_VERSION.match(name.lstrip("."))
        if path.startswith(in_log):
            earlier += [path] if version is not None and int(version[1]) < newest else []
        elif path.startswith(of_source) and not {path, of} & named:
            unnamed.append(path)
    handle.remove_files(unnamed)
    handle.remove_files(earlier)
