"""Rows of a table's data files, read by pyarrow: in the calling process, or in the tasks of a Spark job.

Delta's log lists the files and their bounds. Files and row groups that cannot have a wanted row are skipped, and only
the requested columns are read. About one row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.delta_log import RESTORE, open_table
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

BATCH_BYTES = 32 << 20
"""Bytes of a batch that is read at once, roughly: a chunk's row may be large."""
BATCH_ROWS = 1 << 17
_TOGETHER_BYTES = 4 << 20
"""The most bytes of the files that one scan reads, decompressed; a larger file has a scan of its own."""
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": 16}
"""The bytes of a value in memory by its type in Parquet; those of texts differ."""
_OFFSET_BYTES = 4
"""The bytes of a text's offset in memory, beside its letters."""
_READABLE = {"timestampNtz"}
"""Features of a table that do not change how its files are read."""
_MAPPED_COLUMNS = 2
"""The version of Delta's protocol for readers that introduced columns with other names in the files."""
_TICKS_CUT_OFF = 999


class FileDamaged(TidemarkError):
    """A data file that a table's log names is missing, or can't be read. Facts: `file`."""

    code = "data_file_damaged"


@dataclass(frozen=True)
class StoredRows:
    """The rows of data files that meet `where` (None: all rows), with `columns`. They may be sent to other processes.

    `beside`: further rows, which are in no file.
    """

    fragments: tuple[ds.ParquetFileFragment, ...]
    schema: pa.Schema
    columns: tuple[str, ...]
    where: pc.Expression | None = None
    beside: pa.Table | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows in the files and row groups that may have wanted rows: no fewer than there are wanted
        rows."""
        return sum(_rows_of(fragment) for fragment in self.fragments) + (self.beside.num_rows if self.beside else 0)

    @property
    def n_bytes(self) -> int:
        """The approximate bytes of `columns` in those row groups, once they are read. No values are read for it:
        footers have the number of values, their encoded bytes, and the least and the greatest text."""
        read = {*self.columns}
        beside = self.beside.select(list(self.columns)).nbytes if self.beside else 0
        return sum(_bytes_of(fragment, read) for fragment in self.fragments) + beside

    def with_columns(self, columns: Sequence[str]) -> StoredRows:
        """The same rows, other columns."""
        return replace(self, columns=tuple(dict.fromkeys(columns)))

    def without_rows(self) -> StoredRows:
        """The same columns, without any rows."""
        return replace(self, fragments=(), beside=None)

    def tables(self) -> Iterator[pa.Table]:
        """The rows, batch by batch. A column that a file lacks, since it was added later, is null."""
        from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

        schema = self.none().schema
        for group in _read_together(self.fragments):
            with naming_damage(group):
                of_files = FileSystemDataset(group, self.schema, ParquetFileFormat(), group[0].filesystem)
                scanner = of_files.scanner(
                    columns=list(self.columns), filter=self.where, batch_size=_batch_rows(group), batch_readahead=2
                )
                batches = scanner.to_batches()
            while True:
                # only around the reading: an error that a caller raises between two batches is not about the files
                with naming_damage(group):
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    yield pa.Table.from_batches([batch]).cast(schema)
        if self.beside:
            yield self.beside.select(list(self.columns)).cast(schema)

    def any(self) -> bool:
        """True if there is at least one row."""
        return next(self.tables(), None) is not None

    def none(self) -> pa.Table:
        """The columns, without rows."""
        return pa.schema([self.schema.field(column) for column in self.columns]).remove_metadata().empty_table()

    def whole(self, chosen: Callable[[pa.Table], pa.Array] | None = None) -> pa.Table:
        """All rows in one table; with `chosen`, the rows that it selects from each batch."""
        tables = (table if chosen is None else table.filter(chosen(table)) for table in self.tables())
        return pa.concat_tables([self.none(), *tables])

    def by_file(self) -> Iterator[StoredRows]:
        """The rows of each file, as parts of their own."""
        return (replace(self, fragments=(fragment,)) for fragment in self.fragments)

    def split(self, most_rows: int) -> list[StoredRows]:
        """Parts of at most `most_rows` rows, if row groups are no larger; the rows `beside` are a part of their own."""
        parts: list[list[ds.ParquetFileFragment]] = []
        room = 0
        for fragment in self.fragments:
            groups = fragment.split_by_row_group() if _rows_of(fragment) > most_rows else [fragment]
            for group in groups:
                if not parts or room < _rows_of(group):
                    parts.append([])
                    room = most_rows
                parts[-1].append(group)
                room -= _rows_of(group)
        of_files = [replace(self, fragments=tuple(part), beside=None) for part in parts]
        return [*of_files, replace(self, fragments=())] if self.beside else of_files


def stored_rows(
    handle: TableHandle,
    columns: Sequence[str],
    where: pc.Expression | None = None,
    partitions: Mapping[str, Sequence[str]] | None = None,
) -> StoredRows:
    """The rows of the newest version of a table.

    Args:
        handle: the table.
        columns: the columns to read.
        where: the condition of the wanted rows; None: all.
        partitions: the wanted values of each partition column. Only files of these partitions are listed.
    """

    table = open_table(handle)
    if partitions and not all(partitions.values()):
        return StoredRows((), pa.schema(table.schema().to_arrow()), tuple(columns), where)
    return rows_of(dataset_of(table, handle.files(), partitions), columns, where)


def dataset_of(
    table: DeltaTable, system: FileSystem, partitions: Mapping[str, Sequence[str]] | None = None
) -> ds.FileSystemDataset:
    """The files of an opened table as a dataset, only those of `partitions`. It is the one reader of the bounds that
    filters skip by.

    A file is skipped by the bounds that the log has of it. A missing bound excludes nothing, so the file is read.
    `deltalake`'s own dataset compares with null in that case, and leaves the file out whatever the filter is (decision
    0245). `system`: the file system of the table's folder. The dataset keeps the footers that it has read.

    Raises:
        deltalake.exceptions.DeltaProtocolError: the table has deletion vectors, mapped columns or the like.
    """
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat, ParquetFragmentScanOptions

    check_plain(table)
    files = pa.table(table.get_add_actions(flatten=True))
    for column, values in (partitions or {}).items():
        files = files.filter(pc.is_in(files[f"partition.{column}"], value_set=pa.array(list(values), pa.string())))
    schema = pa.schema(table.schema().to_arrow())
    format = ParquetFileFormat(default_fragment_scan_options=ParquetFragmentScanOptions(pre_buffer=True))
    fragments = [
        format.make_fragment(unquote(path), system, promise)
        for path, promise in zip(files["path"].to_pylist(), _promises(files, schema), strict=True)
    ]
    return FileSystemDataset(fragments, schema, format, system)


def check_plain(table: DeltaTable) -> None:
    """Refuse a table whose files have other rows or columns than the table.

    Raises:
        deltalake.exceptions.DeltaProtocolError: the table has deletion vectors, mapped columns or the like.
    """
    from deltalake.exceptions import DeltaProtocolError

    protocol = table.protocol()
    if not {*(protocol.reader_features or ())} <= _READABLE or protocol.min_reader_version == _MAPPED_COLUMNS:
        features = ", ".join(protocol.reader_features or ()) or "mapped columns"
        raise DeltaProtocolError(f"expected a table that Parquet's readers read as it is, found one with {features}")


def _promises(files: pa.Table, schema: pa.Schema) -> list[pc.Expression]:
    """For each file, a condition that all of its rows meet: the values of its partitions, and the bounds that the log
    has.

    `files`: one row for each file, as `get_add_actions(flatten=True)` lists them.
    """
    promises = [pc.scalar(True)] * files.num_rows
    listed = {*files.column_names}
    for field in schema:
        column = pc.field(field.name)
        if f"partition.{field.name}" in listed:
            for place, value in enumerate(files[f"partition.{field.name}"].cast(field.type)):
                promises[place] &= (column == value) if value.is_valid else column.is_null()
        elif {f"{of}.{field.name}" for of in ("min", "max", "null_count")} <= listed and _has_order(field.type):
            least, greatest, nulls = (files[f"{of}.{field.name}"] for of in ("min", "max", "null_count"))
            if pa.types.is_timestamp(field.type):
                # Delta's writers cut times off at the millisecond
                greatest = pc.add(greatest.cast(pa.int64()), _TICKS_CUT_OFF)
            bounds = zip(least.cast(field.type), greatest.cast(field.type), nulls.to_pylist(), strict=True)
            for place, (low, high, n_nulls) in enumerate(bounds):
                if low.is_valid and high.is_valid:
                    inside = (column >= low) & (column <= high)
                    promises[place] &= inside if n_nulls == 0 else inside | column.is_null()
    return promises


def _has_order(kind: pa.DataType) -> bool:
    """True if the log's bounds of this type include every value. Bounds of floating numbers leave NaN out."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind))


def rows_of(dataset: ds.FileSystemDataset, columns: Sequence[str], where: pc.Expression | None = None) -> StoredRows:
    """The rows of a table's files that meet `where`, with `columns`."""
    return StoredRows(tuple(dataset.get_fragments(where)), dataset.schema, tuple(dict.fromkeys(columns)), where)


@contextmanager
def naming_damage(fragments: Iterable[ds.ParquetFileFragment]) -> Iterator[None]:
    """Raise FileDamaged, which names the file, if the block fails and a file of `fragments` is damaged. Any other
    failure is raised as it is.

    Raises:
        FileDamaged: one is missing or can't be read.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        for fragment in fragments:
            refusal = damage_refusal(fragment.filesystem, fragment.path)
            if refusal is not None:
                raise refusal from error
        raise


def damage_refusal(system: FileSystem, path: str) -> FileDamaged | None:
    """The error that names a damaged file; None for a whole one."""
    finding = damage_of_file(system, path)
    if finding is None:
        return None
    place = f"{getattr(system, 'base_path', '')}{path}"
    return FileDamaged(
        expected="the data files that a table's log names",
        found=f"{place} {finding}",
        consequence="nothing was done: the rows of this file are unknown",
        next_step=f"put the file back, or {RESTORE}",
        file=place,
    )


def damage_of_file(system: FileSystem, path: str) -> str | None:
    """The damage of a Parquet file in words, None if it is whole. Every page is compared with its own checksum.

    Raises:
        OSError: the file can't be fetched.
    """
    try:
        with system.open_input_file(path) as file:
            content = file.read_buffer()
    except FileNotFoundError:
        return "is missing"
    try:
        with pq.ParquetFile(content, page_checksum_verification=True) as opened:
            for _ in opened.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return f"cannot be read: {str(error)[:120]}"
    return None


def _groups_of(fragment: ds.ParquetFileFragment) -> list[ds.RowGroupInfo]:
    with naming_damage([fragment]):
        groups: list[ds.RowGroupInfo] = fragment.row_groups
    return groups


def _rows_of(fragment: ds.ParquetFileFragment) -> int:
    return sum(group.num_rows for group in _groups_of(fragment))


def _bytes_of(fragment: ds.ParquetFileFragment, columns: Collection[str]) -> int:
    with naming_damage([fragment]):
        of_file = fragment.metadata
    leaves = [n for n in range(of_file.num_columns) if of_file.schema.column(n).path.split(".", 1)[0] in columns]
    groups = [of_file.row_group(group.id) for group in _groups_of(fragment)]
    return sum(_bytes_of_column(group.column(leaf)) for group in groups for leaf in leaves)


def _bytes_of_column(column: pq.ColumnChunkMetaData) -> int:
    """The approximate bytes of a column's values in memory: no fewer than Parquet's, which may be numbers of a
    dictionary."""
    width = _VALUE_BYTES.get(column.physical_type)
    if width is None:
        bounds = column.statistics
        has_bounds = bounds is not None and bounds.has_min_max
        width = _OFFSET_BYTES + (len(bounds.min_raw) + len(bounds.max_raw)) // 2 if has_bounds else _OFFSET_BYTES
    return max(column.total_uncompressed_size, column.num_values * width)


def _size_of(fragment: ds.ParquetFileFragment) -> int:
    return sum(group.total_byte_size for group in _groups_of(fragment))


def _read_together(fragments: Iterable[ds.ParquetFileFragment]) -> Iterator[list[ds.ParquetFileFragment]]:
    """Groups of files that one scan reads, in their order: small ones together, since a scan costs as much as such a
    file."""
    group: list[ds.ParquetFileFragment] = []
    room = _TOGETHER_BYTES
    for fragment in fragments:
        size = _size_of(fragment)
        if group and size > room:
            yield group
            group, room = [], _TOGETHER_BYTES
        group.append(fragment)
        room -= size
    if group:
        yield group


def _batch_rows(fragments: Iterable[ds.ParquetFileFragment]) -> int:
    """The rows of a batch of BATCH_BYTES of the file with the widest rows."""
    rows = BATCH_ROWS
    for fragment in fragments:
        rows = min(rows, BATCH_BYTES * _rows_of(fragment) // max(_size_of(fragment), 1))
    return max(1, rows)
