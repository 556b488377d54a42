"""The lake as the portal reads it: small tables stay in memory, file by file, and only new files are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.storage.delta.data_files import StoredRows, dataset_of, rows_of
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import Rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.stored_lake import StoredLake

Value = TypeVar("Value")
_KINDS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": INSTANT,
    "array<bigint>": pa.list_(pa.int64()),
}


class HeldLake(StoredLake):
    """The lake at a place, safe to use from several threads. Every read is of a table's newest version."""

    def __init__(self, place: Path | str) -> None:
        super().__init__(place)
        self._lock = threading.RLock()
        self._logs: dict[str, Any] = {}
        self._files: dict[tuple[str, tuple[str, ...]], dict[str, pa.Table]] = {}
        self._kept: dict[Any, tuple[Any, Any]] = {}

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """The rows of a table as `Lake.records` returns them, from memory; none if the table does not exist."""
        rows: Rows = self.rows(table, table.column_names, where).to_pylist()
        return rows

    def rows(self, table: Table, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        """The rows of a table's newest version; a column that the stored table lacks is null."""
        with self._lock:
            log = self._log(table)
            kinds = {c.name: _KINDS.get(c.kind, pa.null()) for c in table.columns}
            if log is None:
                return pa.schema([(column, kinds[column]) for column in columns]).empty_table()
            stands = {field.name for field in log.schema().fields}
            present = [column for column in columns if column in stands]
            of_version = self.kept(
                (table.qualified, tuple(columns)), log.version(), lambda: self._read(table, log, present)
            )
        missing = {c: pa.nulls(len(of_version), kinds[c]) for c in columns if c not in stands}
        read = pa.table({c: missing[c] if c in missing else of_version.column(c) for c in columns})
        return read if where is None else read.filter(where)

    def stored(
        self,
        table: Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        partitions: Mapping[str, Sequence[str]] | None = None,
    ) -> StoredRows:
        """The rows of a table as `Lake.stored` returns them.

        The list of a table's files and their footers stay in memory until the table has a new version. Reading them is
        most of the cost of a query for few rows.
        """
        if partitions and not all(partitions.values()):
            return super().stored(table, columns, where, partitions)
        chosen = tuple((column, tuple(values)) for column, values in (partitions or {}).items())
        # one list per table and partition columns: the values of partitions that are asked for change with every run
        key = ("files", table.qualified, tuple(column for column, _ in chosen))
        system = self.folder.handle(table).files()
        with self._lock:
            log = self._log(table)
            if log is None:
                return super().stored(table, columns, where, partitions)
            dataset = self.kept(key, (log.version(), chosen), lambda: dataset_of(log, system, partitions))
        return rows_of(dataset, columns, where)

    def version(self, table: Table) -> int:
        """The newest version of a table; -1 if the table does not exist."""
        with self._lock:
            log = self._log(table)
            return -1 if log is None else int(log.version())

    def rows_at(self, table: Table, version: int) -> pa.Table:
        """All rows of a table at one of its versions."""
        return open_table(self.folder.handle(table), version).to_pyarrow_table()

    def kept(self, key: Any, of: Any, make: Callable[[], Value]) -> Value:
        """The value of `make` for `key`: from memory if `of` equals that of the call before, else made anew."""
        with self._lock:
            if key not in self._kept or self._kept[key][0] != of:
                self._kept[key] = (of, make())
            value: Value = self._kept[key][1]
            return value

    def forget(self) -> None:
        """Clear the memory, so that everything is read anew."""
        with self._lock:
            self._logs.clear()
            self._files.clear()
            self._kept.clear()

    def _log(self, table: Table) -> Any:
        """The table's log at its newest version; None if the table does not exist."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if table.qualified in self._logs:
                self._logs[table.qualified].update_incremental()
        except (DeltaError, TableNotFoundError):
            # opening the table again raises the error, if there still is one
            del self._logs[table.qualified]
        try:
            if table.qualified not in self._logs:
                self._logs[table.qualified] = open_table(self.folder.handle(table))
        except TableNotFoundError:
            return None
        return self._logs[table.qualified]

    def _read(self, table: Table, log: Any, columns: list[str]) -> pa.Table:
        """The table's rows; files that were read before are not opened again."""
        before = self._files.get((table.qualified, tuple(columns)), {})
        whole = pa.schema(log.schema().to_arrow())
        schema = pa.schema([whole.field(column) for column in columns]).remove_metadata()
        partitions, handle = log.metadata().partition_columns, self.folder.handle(table)
        files: dict[str, pa.Table] = {}
        for uri in log.file_uris():
            path = uri.removeprefix(handle.uri).lstrip("/")
            files[path] = before[path] if path in before else self._file(handle, path, schema, partitions)
        self._files[(table.qualified, tuple(columns))] = files
        return pa.concat_tables([schema.empty_table(), *files.values()]).combine_chunks()

    def _file(self, handle: TableHandle, path: str, schema: pa.Schema, partitions: list[str]) -> pa.Table:
        """The rows of one data file.

        The values of partitions are read from its path, as Spark and deltalake write it. The log has them, too, but
        only together with all of its statistics.
        """
        from pyarrow import parquet

        values = dict(part.split("=", 1) for part in path.split("/")[:-1])
        with handle.files().open_input_file(path) as file:
            parquet_file = parquet.ParquetFile(file)
            stored = [name for name in schema.names if name in parquet_file.schema_arrow.names]
            rows = parquet_file.read(columns=stored, use_threads=False)
        arrays = []
        for field in schema:
            if field.name in stored:
                arrays.append(rows.column(field.name).cast(field.type))
            else:
                value = unquote(values[field.name]) if field.name in partitions else None
                arrays.append(pa.chunked_array([pa.repeat(pa.scalar(value, pa.string()), len(rows)).cast(field.type)]))
        return pa.table(arrays, schema=schema)
