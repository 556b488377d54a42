"""A table read a second way: files by the log's own text, rows by plain Parquet, no dataset and no skipping.

The other readers skip files by the bounds in the log and by a dataset's use of them. A wrong bound hides rows from all
of them alike, so they can't check each other. Here each file is read whole, and compared with the log's bounds of it
and with the rows of the skipping reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.storage.delta.data_files import damage_of_file, stored_rows
from spark_jobs.storage.delta.log_files import LOG_DIR, LogBroken, LoggedFile, differs, files_of_log
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SAMPLE = 20
"""Files of a table that are compared with their checksums, spread over all."""
_ROUNDED_US = 1000
"""Bounds of times in a log may be rounded down to the millisecond, the greatest too."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _Values:
    """The values of a column that are not null: their number, the least and greatest, and the sum of whole numbers.
    Times and dates are numbers, as Parquet has them."""

    count: int = 0
    least: Any = None
    greatest: Any = None
    total: int = 0

    def add(self, values: pa.ChunkedArray | pa.Array) -> None:
        """Add values to the summary."""
        present = _plain(values).drop_null()
        if len(present):
            bounds = pc.min_max(present).as_py()
            self.count += len(present)
            self.least = bounds["min"] if self.least is None else min(self.least, bounds["min"])
            self.greatest = bounds["max"] if self.greatest is None else max(self.greatest, bounds["max"])
            self.total += pc.sum(present).as_py() if pa.types.is_integer(present.type) else 0

    def agrees(self, other: _Values) -> bool:
        """True if both have equally many values, and the same sum modulo 2^64."""
        return self.count == other.count and (self.total - other.total) % 2**64 == 0


@dataclass
class _Read:
    """The rows of a file or table, and its values by column."""

    rows: int = 0
    values: dict[str, _Values] = field(default_factory=dict)

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """Add rows to the summary."""
        self.rows += table.num_rows
        for column in table.schema.names:
            self.values.setdefault(column, _Values()).add(table.column(column))


def misread_rows(
    handle: TableHandle, columns: Sequence[str], partitions: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The differences that reading whole files shows. Each file is compared with the log's statistics of it. The rows
    of all files are compared with those that the skipping reader finds under a filter that all of them meet. Each
    difference has a `file` or `column`, and the text `found`.

    Args:
        handle: the table.
        columns: the columns with bounds in the log: whole numbers, times, dates, texts.
        partitions: the values of partition columns to look at, in a shared table.
    """
    system, whole = handle.files(), _Read()
    present, damaged = set[str](), False
    for path, logged in _files_of(system, partitions):
        of_file = _Read()
        try:
            with system.open_input_file(path) as opened:
                file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
                fields = (f for f in file.schema_arrow if f.name in columns and _is_plain(f.type))
                read = [f.name for f in fields]
                for batch in file.iter_batches(columns=read):
                    of_file.add(batch)
                    whole.add(batch)
        except (pa.ArrowException, OSError):
            finding = damage_of_file(system, path)
            if finding is None:
                raise
            damaged = True
            yield {"file": path, "found": finding}
            continue
        present.update(read)
        yield from ({"file": path, "found": finding} for finding in _statistics_faults(of_file, logged))
    # the skipping reader stops at a damaged file
    for column in sorted(present) if not damaged else ():
        yield from _otherwise(handle, column, whole.values.get(column, _Values()), partitions)


def differing_files(handle: TableHandle, partitions: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The files of a sample of the table's that differ from the checksums beside them. Files without checksums are
    passed over."""
    system = handle.files()
    files = [path for path, _ in _files_of(system, partitions)]
    for path in files[:: -(-len(files) // SAMPLE) or 1]:
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/.{name}.crc".lstrip("/")
        try:
            with system.open_input_file(beside) as checksums, system.open_input_file(path) as content:
                finding = differs(content.read(), checksums.read())
        except FileNotFoundError:
            continue
        if finding:
            yield {"file": path, "found": finding}


def _files_of(system: FileSystem, partitions: Mapping[str, str]) -> list[tuple[str, LoggedFile]]:
    """The files of some partitions with their paths, sorted; none if the log is damaged, which other checks report."""
    try:
        files = files_of_log(system)
    except LogBroken:
        return []
    wanted = partitions.items()
    return sorted((path, of) for path, of in files.items() if wanted <= of.partition.items() and LOG_DIR not in path)


def _statistics_faults(read: _Read, logged: LoggedFile) -> Iterator[str]:
    """The log's statistics of a file that its rows contradict, in words."""
    rows = logged.stats.get("numRecords")
    if rows is not None and rows != read.rows:
        yield f"has {read.rows} rows, the log says {rows}"
    for column, values in read.values.items():
        if not values.count:
            continue
        least, greatest = (logged.stats.get(side, {}).get(column) for side in ("minValues", "maxValues"))
        if least is not None and _number(least, values.least) > values.least:
            yield f"has {column} {values.least}, the log's least is {least}"
        if greatest is not None and not _reaches(greatest, values.greatest):
            yield f"has {column} {values.greatest}, the log's greatest is {greatest}"


def _reaches(bound: Any, greatest: Any) -> bool:
    """True if the log's bound is not below the greatest value, allowing for rounded times and cut-off texts."""
    if isinstance(greatest, str):
        return bool(greatest <= bound or greatest.startswith(bound))
    return bool(greatest < _number(bound, greatest) + (_ROUNDED_US if isinstance(bound, str) else 1))


def _number(bound: Any, like: Any) -> Any:
    """A bound of the log in the form of plain values: a time as microseconds since 1970, a date as days since then."""
    if isinstance(like, str) or not isinstance(bound, str):
        return bound
    time = datetime.fromisoformat(bound)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return since.days if len(bound) == len("2024-01-01") else since // timedelta(microseconds=1)


def _otherwise(
    handle: TableHandle, column: str, whole: _Values, partitions: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The difference between a column's values in the files and those that the skipping reader finds, if there is
    one."""
    if not whole.count:
        return
    chosen = {name: [value] for name, value in partitions.items()}
    stored = stored_rows(handle, [column], None, chosen)
    kind = stored.schema.field(column).type
    least, greatest = (_scalar(bound, kind) for bound in (whole.least, whole.greatest))
    where = (pc.field(column) >= least) & (pc.field(column) <= greatest)
    skipping = _Read()
    for table in stored_rows(handle, [column], where, chosen).tables():
        skipping.add(table)
    skipped = skipping.values.get(column, _Values())
    if not skipped.agrees(whole):
        sums = f"{skipped.total % 2**64} and {whole.total % 2**64}"
        counts = f"{skipped.count} values by the log's bounds, {whole.count} in the files"
        yield {"column": column, "found": f"{counts}; their sums are {sums}"}


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Times, dates and whole numbers as int64; texts as they are."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _is_plain(kind: pa.DataType) -> bool:
    """True if the log has bounds of this type, and both readers order its values alike."""
    of_time = pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return of_time or pa.types.is_integer(kind) or pa.types.is_string(kind)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A plain value as one of a column's type."""
    if pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    return pa.scalar(value).cast(kind)
