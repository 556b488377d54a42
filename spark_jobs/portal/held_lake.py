"""The lake as the portal reads it: small tables stay in memory, file by file, and only new files are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
        self._looked = threading.local()

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """The rows of a table as `Lake.records` returns them, from memory; none if the table does not exist."""
        rows: Rows = self.rows(table, table.column_names, where).to_pylist()
        return rows

    def rows(self, table: Table, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        """The rows of a table's newest version; a column that the stored table lacks is null."""
        with self._lock:
            log = self._log(table)
            kinds = {c.name: _KINDS.get(c.kind.lower(), pa.null()) for c in table.columns}
            if log is None:
                return pa.schema([(column, kinds[column]) for column in columns]).empty_table()
            stored = {field.name for field in log.schema().fields}
            present = [column for column in columns if column in stored]
            of_version = self.kept(
                (table.qualified, tuple(columns)), log.version(), lambda: self._read(table, log, present)
            )
        missing = {c: pa.nulls(len(of_version), kinds[c]) for c in columns if c not in stored}
        read = pa.table({c: missing[c] if c in missing else of_version.column(c) for c in columns})
        return read if where is None else read.filter(where)

    def of_source(self, table: Table, source: str, where: pc.Expression | None = None) -> pa.Table:
        """The rows of a source in a table that sources share; only the files of its partition are read, and not kept.

        For tables of which little stays in memory, such as the results of all checks of all runs.
        """
        with self._lock:
            log = self._log(table)
            if log is None:
                return self.rows(table, table.column_names)
            paths = self._paths_by_source(table, log)
            if paths is None:
                of_source = pc.field("source") == source
                return self.rows(table, table.column_names, of_source if where is None else of_source & where)
            whole, handle = pa.schema(log.schema().to_arrow()), self.folder.handle(table)
            present = [name for name in table.column_names if name in whole.names]
            schema = pa.schema([whole.field(name) for name in present]).remove_metadata()
            partitions = log.metadata().partition_columns
        read = [self._file(handle, path, schema, partitions) for path in paths.get(source, ())]
        rows = pa.concat_tables([schema.empty_table(), *read])
        for column in table.columns:
            if column.name not in present:
                kind = _KINDS.get(column.kind.lower(), pa.null())
                rows = rows.append_column(column.name, pa.nulls(len(rows), kind))
        return rows if where is None else rows.filter(where)

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

    def version_of(self, table: Table, source: str) -> Any:
        """A value that changes whenever a data file of the source's rows comes or goes.

        The tables that sources share have a partition of each source, and most commits are about one source.
        """
        with self._lock:
            log = self._log(table)
            if log is None:
                return -1
            paths = self._paths_by_source(table, log)
            return log.version() if paths is None else paths.get(source, ())

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Within it the present thread asks for the newest version of each table once, and `once` keeps its values."""
        self._looked.tables, self._looked.values = set(), {}
        try:
            yield
        finally:
            self._looked.tables = self._looked.values = None

    def once(self, key: Any, make: Callable[[], Value]) -> Value:
        """The value of `make` for `key`: made once within `one_look`, and at each call outside of it."""
        values: dict[Any, Value] | None = getattr(self._looked, "values", None)
        if values is None:
            return make()
        if key not in values:
            values[key] = make()
        return values[key]

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
        """Clear the memory, so that everything is read anew, also within `one_look`."""
        if getattr(self._looked, "values", None):
            self._looked.values.clear()
        with self._lock:
            self._logs.clear()
            self._files.clear()
            self._kept.clear()

    def _paths_by_source(self, table: Table, log: Any) -> dict[str, tuple[str, ...]] | None:
        """`_by_source` of a table's log, from memory until the table has a new version."""
        return self.kept(("partitions", table.qualified), log.version(), lambda: _by_source(log))

    def _log(self, table: Table) -> Any:
        """The table's log at its newest version; None if the table does not exist."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if table.qualified in self._logs and not self._was_looked_at(table):
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

    def _was_looked_at(self, table: Table) -> bool:
        """True from the second time on that the thread asks for a table within `one_look`."""
        looked: set[str] | None = getattr(self._looked, "tables", None)
        if looked is None or table.qualified in looked:
            return looked is not None
        looked.add(table.qualified)
        return False

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


def _by_source(log: Any) -> dict[str, tuple[str, ...]] | None:
    """The paths of a table's data files by the source of their partition; None for a table without such partitions."""
    if log.metadata().partition_columns[:1] != ["source"]:
        return None
    by_source: dict[str, list[str]] = {}
    for uri in log.file_uris():
        _, _, path = uri.rpartition("/source=")
        by_source.setdefault(unquote(path.partition("/")[0]), []).append(f"source={path}")
    return {source: tuple(sorted(paths)) for source, paths in by_source.items()}
