"""Data files of a table, written by pyarrow: in the process that runs a stage, or in the tasks of a Spark job.

Files are written to where Delta looks for them, and count for nothing until a commit names them (see `file_commits`).
Each attempt at a task gives its files new names, so that a task which Spark tries again overwrites none. Files that no
commit names are removed by the next VACUUM.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.storage.delta.places import TableHandle

MOST_ROWS_A_FILE = 1_000_000
"""The most rows of a file. A backfill of years writes several files, each a stretch of its sort order, so that later
reads skip most."""
ROWS_A_GROUP = 1 << 17
"""Rows of a row group: a reader has that many in memory at once, and a split of a file reads no fewer."""
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_BOUND = 32
"""The most characters of a text in Delta's statistics."""
_ABOVE_ALL = "\U0010ffff"
_LAST_INSTANT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Layout:
    """The layout of a file's rows in Parquet.

    Args:
        compression: the codec of pages.
        rows_a_group, rows_a_page: the most rows of a row group and of a page (None: the library's limit).
    """

    compression: str = "snappy"
    rows_a_group: int = ROWS_A_GROUP
    rows_a_page: int | None = None


@dataclass(frozen=True)
class WrittenFile:
    """A data file that no commit names yet.

    Args:
        path: below the table's folder.
        size: in bytes.
        modified_ms: the time at which it was written, in milliseconds since 1970.
        partition: the values of the partition columns.
        stats: Delta's statistics, as JSON.
    """

    path: str
    size: int
    modified_ms: int
    partition: Mapping[str, str | None]
    stats: str

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return int(json.loads(self.stats)["numRecords"])


def as_plain(files: Iterable[WrittenFile]) -> list[dict[str, Any]]:
    """Files as plain values, to be sent from a task to the process that commits."""
    return [asdict(file) for file in files]


@dataclass(frozen=True)
class Destination:
    """The place and layout of a table's new files; it may be sent to other processes.

    Args:
        handle: the table.
        schema: the table's columns, those of its partitions among them.
        partitions: the partition columns.
        bounded: the columns whose least and greatest values go into the statistics.
    """

    handle: TableHandle
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()
    layout: Layout = field(default_factory=Layout)

    def write(self, tables: Iterable[pa.Table]) -> list[WrittenFile]:
        """Write the tables in their order. Columns are taken by name; one that a table lacks is null. Returns the
        files, which are none if there are no rows."""
        writers: dict[tuple[str | None, ...], _Writer] = {}
        with ExitStack() as stack:
            for table in tables:
                for values, rows in self._by_partition(table):
                    if values not in writers:
                        writers[values] = stack.enter_context(_Writer(self, values))
                    writers[values].add(rows)
        return [file for writer in writers.values() for file in writer.files]

    @property
    def stored(self) -> pa.Schema:
        """The columns that are in the files."""
        return pa.schema([f for f in self.schema if f.name not in self.partitions]).remove_metadata()

    def _by_partition(self, table: pa.Table) -> list[tuple[tuple[str | None, ...], pa.Table]]:
        if not table.num_rows:
            return []
        if not self.partitions:
            return [((), table)]
        keys = table.select(list(self.partitions))
        distinct = keys.group_by(keys.column_names).aggregate([]).to_pylist()
        if len(distinct) == 1:
            return [(tuple(distinct[0].values()), table)]
        statistics = []
        for values in distinct:
            of_values = None
            for name, value in values.items():
                same = pc.is_null(table[name]) if value is None else pc.fill_null(pc.equal(table[name], value), False)
                of_values = same if of_values is None else pc.and_(of_values, same)
            statistics.append((tuple(values.values()), table.filter(of_values)))
        return statistics

    def fit(self, table: pa.Table) -> pa.Table:
        """The table with the columns of the files."""
        stored, given = self.stored, set(table.column_names)
        columns = [
            _cast(table[f.name], f.type) if f.name in given else pa.nulls(table.num_rows, f.type) for f in stored
        ]
        return pa.table(columns, schema=stored)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


class _Writer:
    """The files of one partition, one after the other."""

    def __init__(self, to: Destination, values: tuple[str | None, ...]) -> None:
        self.files: list[WrittenFile] = []
        self._to, self._system = to, to.handle.files()
        self._partition = dict(zip(to.partitions, values, strict=True))
        self._waiting: list[pa.Table] = []
        self._open: pq.ParquetWriter | None = None
        self._path, self._rows = "", 0
        self._described: list[pq.FileMetaData] = []

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
                self._close()
        finally:
            self._give_up()

    def add(self, rows: pa.Table) -> None:
        """Add rows to the file that is being written."""
        self._waiting.append(self._to.fit(rows))
        if sum(part.num_rows for part in self._waiting) >= self._to.layout.rows_a_group:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting = pa.concat_tables(self._waiting), []
        while rows.num_rows:
            room = MOST_ROWS_A_FILE - self._rows
            part, rows = rows.slice(0, room), rows.slice(room)
            self._file().write_table(part, row_group_size=self._to.layout.rows_a_group)
            self._rows += part.num_rows
            if self._rows == MOST_ROWS_A_FILE:
                self._close()

    def _file(self) -> pq.ParquetWriter:
        if self._open is None:
            folder = "/".join(f"{name}={_escape(value)}" for name, value in self._partition.items())
            if self._to.handle.is_local:
                self._system.create_dir(folder or ".", recursive=True)
            self._path = f"{folder}/part-{uuid.uuid4()}.parquet".lstrip("/")
            self._open = self._writer()
        return self._open

    def _writer(self) -> pq.ParquetWriter:
        layout, stored = self._to.layout, self._to.stored
        options: dict[str, Any] = {} if layout.rows_a_page is None else {"max_rows_per_page": layout.rows_a_page}
        # a dictionary of many different numbers or times costs more than it saves: writing took four times as long
        plain = {_leaf(field): kind for field in stored if _is_number(kind := _element(field))}
        steps = {leaf: "DELTA_BINARY_PACKED" for leaf, kind in plain.items() if not pa.types.is_floating(kind)}
        options["use_dictionary"] = [leaf for field in stored if (leaf := _leaf(field)) not in plain]
        options["column_encoding"] = steps
        return pq.ParquetWriter(
            self._path,
            stored,
            filesystem=self._system,
            compression=layout.compression,
            coerce_timestamps="us",
            store_schema=False,
            write_page_index=layout.rows_a_page is not None,
            metadata_collector=self._described,
            **options,
        )

    def _close(self) -> None:
        if self._open is None:
            return
        self._open.close()
        (of_file,) = self._described
        size = self._system.get_file_info(self._path).size
        stats = statistics(of_file, self._to.bounded)
        self.files.append(WrittenFile(self._path, size, int(time.time() * 1000), self._partition, stats))
        self._open, self._rows = None, 0
        self._described.clear()

    def _give_up(self) -> None:
        """Close a file that an error left open, and that no log names. That error has the cause. A second error would
        replace it, or be raised where pyarrow forgets the writer and nobody hears of it."""
        if self._open is not None:
            with suppress(OSError, RuntimeError):
                self._open.close()
            self._open.is_open = False


def _escape(value: str | None) -> str:
    return _NULL_PARTITION if value is None else quote(value, safe="")


def _leaf(field: pa.Field) -> str:
    """The path of a column in Parquet's schema."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def _element(field: pa.Field) -> pa.DataType:
    """The type of a column, or of the elements of its lists."""
    return field.type.value_type if pa.types.is_list(field.type) else field.type


def _is_number(kind: pa.DataType) -> bool:
    """True if Parquet stores values of this type as whole or floating point numbers, as it does times."""
    is_whole = pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return is_whole or pa.types.is_floating(kind)


def statistics(of_file: pq.FileMetaData, bounded: Sequence[str]) -> str:
    """Delta's statistics of a file, as JSON: the number of its rows and, for the columns `bounded`, the nulls and
    bounds. Only whole numbers, texts, dates and times have bounds."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place in range(of_file.num_columns):
        name = of_file.schema.column(place).path
        if name not in bounded:
            continue
        columns = [of_file.row_group(group).column(place) for group in range(of_file.num_row_groups)]
        of_groups = [column.statistics for column in columns]
        if any(of_group is None or not of_group.has_null_count for of_group in of_groups):
            continue
        nulls[name] = sum(of_group.null_count for of_group in of_groups)
        with_values = [s for s, c in zip(of_groups, columns, strict=True) if s.null_count < c.num_values]
        if with_values and all(of_group.has_min_max for of_group in with_values):
            low, high = _low(min(s.min for s in with_values)), _high(max(s.max for s in with_values))
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    statistics = {"numRecords": of_file.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    # no escapes: `deltalake` reads an escaped character beyond U+1FFFF as another one, and so skips the file
    return json.dumps(statistics, ensure_ascii=False)


def _low(value: Any) -> Any:
    """The lower bound as the log has it: Delta stores times in milliseconds, and the beginning of a text."""
    if isinstance(value, str):
        return value[:_LONGEST_BOUND]
    return _instant(value) if isinstance(value, datetime) else _plain(value)


def _high(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_BOUND else value[:_LONGEST_BOUND] + _ABOVE_ALL
    if isinstance(value, datetime):
        # no millisecond follows the last one of year 9999; readers take a bound for a whole millisecond
        beyond = min(timedelta(microseconds=-value.microsecond % 1000), _LAST_INSTANT - value)
        return _instant(value + beyond)
    return _plain(value)


def _instant(time: datetime) -> str:
    """The time cut off at the millisecond, the year in four digits."""
    return f"{time.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) else None
