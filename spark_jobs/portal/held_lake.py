"""The lake as the portal reads it: small tables stay in memory, file by file, and only new files are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.storage.delta.data_files import StoredRows, dataset_of, rows_of
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR, version_file
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import Rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS
from spark_jobs.storage.lakes.stored_lake import StoredLake

Value = TypeVar("Value")
LARGE = (FILES, FRONTIERS)
"""Tables of records that grow with each run of each source."""
MOST_RECENT = 16
"""The most values that `HeldLake.recent` keeps."""
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
        self._commits: dict[str, tuple[int, int, int]] = {}
        """By table, the version that was read last, with the time in ns and the bytes of its commit."""
        self._files: dict[tuple[str, tuple[str, ...]], dict[str, pa.Table]] = {}
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._recent: dict[Any, tuple[Any, Any]] = {}
        self._looked = threading.local()

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """The rows of a table as `Lake.records` returns them; none if the table does not exist.

        They come from memory, except those of LARGE tables: of these only the files that may have wanted rows are read.
        """
        if table in LARGE and where is not None and self.version(table) >= 0:
            with self._lock:
                stored = self._log(table).schema().to_arrow().names
            present = [column for column in table.column_names if column in stored]
            return _whole(table, table.column_names, self.stored(table, present, where).whole()).to_pylist()
        rows: Rows = self.rows(table, table.column_names, where).to_pylist()
        return rows

    def rows(self, table: Table, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        """The rows of a table's newest version; a column that the stored table lacks is null."""
        with self._lock:
            log = self._log(table)
            if log is None:
                none = pa.schema([(c.name, _kind(c)) for c in table.columns]).empty_table()
                return none.select(list(columns))
            stored = {field.name for field in log.schema().fields}
            present = [column for column in columns if column in stored]
            of_version = self.remember(
                (table.qualified, tuple(columns)), log.version(), lambda: self._read(table, log, present)
            )
        read = _whole(table, columns, of_version)
        return read if where is None else read.filter(where)

    def of_source(
        self,
        table: Table,
        source: str,
        columns: Sequence[str] = (),
        where: pc.Expression | None = None,
        repeated: Sequence[str] = (),
    ) -> pa.Table:
        """The rows of a source in a table that sources share; only the files of its partition are read, and not kept.

        For tables of which little stays in memory, such as the results of all checks of all runs. `columns`: those that
        are read; all of the table if empty. A column that the stored table lacks is null. `repeated`: columns of few
        texts, which are read as dictionaries.
        """
        columns = list(columns or table.column_names)
        files = self._data_files(table, source)
        if files is None:
            of_source = pc.field("source") == source
            filtered = self.rows(table, list(dict.fromkeys(["source", *columns])), of_source).select(columns)
            return filtered if where is None else filtered.filter(where)
        read = [files.read(path, columns, repeated) for path in files.paths]
        rows = _whole(table, columns, pa.concat_tables(read) if read else files.schema(columns).empty_table())
        return rows if where is None else rows.filter(where)

    def newest_of_source(self, table: Table, source: str, columns: Sequence[str]) -> dict[str, Any] | None:
        """Columns of the row of a source with the greatest token in a table that sources share; None if it has no row.

        Of several files only their tokens are read, and then one of them.
        """
        files = self._data_files(table, source)
        if files is None:
            return max(self.records(table, pc.field("source") == source), key=lambda row: row["token"], default=None)
        paths = files.paths
        if len(paths) > 1:
            tokens = [pc.max(files.read(path, ["token"])["token"]).as_py() or -1 for path in paths]
            paths = [paths[tokens.index(max(tokens))]]
        rows = [files.read(path, ["token", *columns]) for path in paths]
        if not rows or not len(rows[0]):
            return None
        newest = int(np.argmax(rows[0]["token"].to_numpy()))
        row: dict[str, Any] = rows[0].slice(newest, 1).to_pylist()[0]
        return row

    def _data_files(self, table: Table, source: str) -> DataFiles | None:
        """The files of a source in a table that sources share; None for a table without such partitions."""
        with self._lock:
            log = self._log(table)
            paths = {} if log is None else self._paths_by_source(table, log)
            if log is None or paths is None:
                return None
            stored = self.remember(("schema", table.qualified), log.version(), lambda: _stored_schema(log))
            return DataFiles(self.folder.handle(table), paths.get(source, ()), *stored)

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
            dataset = self.remember(key, (log.version(), chosen), lambda: dataset_of(log, system, partitions))
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

    def remember(self, key: Any, of: Any, make: Callable[[], Value]) -> Value:
        """The value of `make` for `key`: from memory if `of` equals that of the call before, else made anew."""
        with self._lock:
            if key not in self._kept or self._kept[key][0] != of:
                self._kept[key] = (of, make())
            value: Value = self._kept[key][1]
            return value

    def recent(self, key: Any, of: Any, make: Callable[[], Value]) -> Value:
        """`kept` for large values, of which only the MOST_RECENT that were asked for last stay in memory."""
        with self._lock:
            at, value = self._recent.pop(key, (None, None))
            if at is None or at != of:
                at, value = of, make()
            self._recent[key] = (at, value)
            if len(self._recent) > MOST_RECENT:
                del self._recent[next(iter(self._recent))]
            return cast("Value", value)

    def forget(self) -> None:
        """Clear the memory, so that everything is read anew, also within `one_look`."""
        if getattr(self._looked, "values", None) is not None:
            self._looked.values.clear()
            self._looked.tables.clear()
        with self._lock:
            self._logs.clear()
            self._commits.clear()
            self._files.clear()
            self._kept.clear()
            self._recent.clear()

    def _paths_by_source(self, table: Table, log: Any) -> dict[str, tuple[str, ...]] | None:
        """`_by_source` of a table's log, from memory until the table has a new version."""
        return self.remember(("partitions", table.qualified), log.version(), lambda: _by_source(log))

    def _log(self, table: Table) -> Any:
        """The table's log at its newest version; None if the table does not exist."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if self._was_looked_at(table):
            return self._logs.get(table.qualified)
        if table.qualified in self._logs and self._is_another(table):
            # nothing in memory says of which of the two tables it is
            self.forget()
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
        log = self._logs[table.qualified]
        if self._commits.get(table.qualified, (-1,))[0] != log.version():
            self._commits[table.qualified] = self._commit(table, log.version())
        return log

    def _is_another(self, table: Table) -> bool:
        """True if the table was removed and made anew since it was read: its commits are others of equal versions."""
        noted = self._commits.get(table.qualified)
        return noted is not None and self._commit(table, noted[0]) != noted

    def _commit(self, table: Table, version: int) -> tuple[int, int, int]:
        """A version, with the time in ns and the bytes of its commit; 0 for a commit that has been cleaned up."""
        info = self.folder.handle(table).files().get_file_info(f"{LOG_DIR}/{version_file(version)}")
        return version, info.mtime_ns or 0, info.size or 0

    def _was_looked_at(self, table: Table) -> bool:
        """True from the second time on that the thread asks for a table within `one_look`."""
        looked: set[str] | None = getattr(self._looked, "tables", None)
        if looked is None or table.qualified in looked:
            return looked is not None
        looked.add(table.qualified)
        return False

    def _read(self, table: Table, log: Any, columns: list[str]) -> pa.Table:
        """The table's rows; files that were read before are not opened again."""
        before, handle = self._files.get((table.qualified, tuple(columns)), {}), self.folder.handle(table)
        paths = [uri.removeprefix(handle.uri).lstrip("/") for uri in log.file_uris()]
        files = DataFiles(handle, paths, *_stored_schema(log))
        rows = {path: before[path] if path in before else files.read(path, columns) for path in paths}
        self._files[(table.qualified, tuple(columns))] = rows
        return pa.concat_tables([files.schema(columns).empty_table(), *rows.values()]).combine_chunks()


@dataclass(frozen=True)
class DataFiles:
    """Data files of a table by their paths. `stored`: the table's schema; `partitions`: its partition columns."""

    handle: TableHandle
    paths: Sequence[str]
    stored: pa.Schema
    partitions: Sequence[str]

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The schema of those columns that the stored table has."""
        names = [name for name in columns if name in self.stored.names]
        return pa.schema([self.stored.field(name) for name in names]).remove_metadata()

    def read(self, path: str, columns: Sequence[str], repeated: Sequence[str] = ()) -> pa.Table:
        """Columns of one data file; those in `repeated` as dictionaries.

        The values of partitions are read from its path, as Spark and deltalake write it. The log has them, too, but
        only together with all of its statistics.
        """
        from pyarrow import parquet

        schema = self.schema(columns)
        values = dict(part.split("=", 1) for part in path.split("/")[:-1])
        with self.handle.files().open_input_file(path) as file:
            try:
                parquet_file = parquet.ParquetFile(file, read_dictionary=list(repeated) or None)
            except KeyError:
                # a file that was written before the table had one of these columns
                file.seek(0)
                parquet_file = parquet.ParquetFile(file)
            of_file = {*parquet_file.schema_arrow.names}
            stored = [name for name in schema.names if name in of_file]
            rows = parquet_file.read(columns=stored, use_threads=False)
        arrays = {}
        for field in schema:
            if field.name not in stored:
                value = unquote(values[field.name]) if field.name in self.partitions else None
                array = pa.repeat(pa.scalar(value, pa.string()), len(rows)).cast(field.type)
            else:
                array = rows.column(field.name)
                array = array if field.name in repeated or array.type == field.type else array.cast(field.type)
            arrays[field.name] = array
        return pa.table(arrays)


def _stored_schema(log: Any) -> tuple[pa.Schema, list[str]]:
    """The schema of a table's log, and its partition columns."""
    return pa.schema(log.schema().to_arrow()), log.metadata().partition_columns


def _whole(table: Table, columns: Sequence[str], rows: pa.Table) -> pa.Table:
    """The rows with all of these columns, in their order; those that the stored table lacks are null."""
    lacking = {*columns} - {*rows.column_names}
    missing = {c.name: pa.nulls(len(rows), _kind(c)) for c in table.columns if c.name in lacking}
    return pa.table({name: missing[name] if name in missing else rows.column(name) for name in columns})


def _kind(column: Column) -> pa.DataType:
    return _KINDS.get(column.kind.lower(), pa.null())


def _by_source(log: Any) -> dict[str, tuple[str, ...]] | None:
    """The paths of a table's data files by the source of their partition; None for a table without such partitions."""
    if log.metadata().partition_columns[:1] != ["source"]:
        return None
    by_source: dict[str, list[str]] = {}
    for uri in log.file_uris():
        _, _, path = uri.rpartition("/source=")
        by_source.setdefault(unquote(path.partition("/")[0]), []).append(f"source={path}")
    return {source: tuple(sorted(paths)) for source, paths in by_source.items()}
