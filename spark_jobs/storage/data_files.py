"""Rows of a table's data files, read by pyarrow: in the process that asks, or in the tasks of a Spark job.

Delta's log names the files and bounds what is in them. Files and row groups that cannot hold a wanted row are skipped,
columns that nobody asks for are not read, and what is read is held a row group at a time.
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
from spark_jobs.storage.delta_log import RESTORE, open_table
from spark_jobs.storage.places import file_system

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

BATCH_BYTES = 32 << 20
"""About how much is read at once; a chunk's row may be large."""
BATCH_ROWS = 1 << 17
_READABLE = {"timestampNtz"}
"""Features of a table that change nothing of how its files are read."""
_MAPPED_COLUMNS = 2
"""The version of Delta's protocol for readers that brought columns of other names in the files."""
_TICKS_CUT_OFF = 999


class FileDamaged(TidemarkError):
    """A data file that a table's log names is missing, or can't be read. Facts: `file`."""

    code = "data_file_damaged"


@dataclass(frozen=True)
class StoredRows:
    """Rows of data files that meet `where` (None: all), their `columns`. They may be sent to other processes.

    `beside`: further rows, that are in no file.
    """

    fragments: tuple[ds.ParquetFileFragment, ...]
    schema: pa.Schema
    columns: tuple[str, ...]
    where: pc.Expression | None = None
    beside: pa.Table | None = None

    @property
    def n_rows(self) -> int:
        """The rows of the files and row groups that may hold some: at least as many as there are."""
        return sum(_rows_of(fragment) for fragment in self.fragments) + (self.beside.num_rows if self.beside else 0)

    @property
    def n_bytes(self) -> int:
        """The bytes of the columns that are read of those row groups, as Parquet encodes them, decompressed: no values
        are read for it. What a dictionary encodes takes more once it is read."""
        read = {*self.columns}
        beside = self.beside.select(list(self.columns)).nbytes if self.beside else 0
        return sum(_bytes_of(fragment, read) for fragment in self.fragments) + beside

    def with_columns(self, columns: Sequence[str]) -> StoredRows:
        """The same rows, other columns."""
        return replace(self, columns=tuple(dict.fromkeys(columns)))

    def without_rows(self) -> StoredRows:
        """None of the rows."""
        return replace(self, fragments=(), beside=None)

    def tables(self) -> Iterator[pa.Table]:
        """The rows, some at a time. A column that a file lacks, since it is newer, is null."""
        from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

        for fragment in self.fragments:
            with naming_damage([fragment]):
                of_file = FileSystemDataset([fragment], self.schema, ParquetFileFormat(), fragment.filesystem)
                scanner = of_file.scanner(
                    columns=list(self.columns), filter=self.where, batch_size=_batch_rows(fragment), batch_readahead=2
                )
                batches = scanner.to_batches()
            while True:
                # around the reading alone: what a caller raises between two batches is not about the file
                with naming_damage([fragment]):
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    yield pa.Table.from_batches([batch]).cast(self.none().schema)
        if self.beside:
            yield self.beside.select(list(self.columns)).cast(self.none().schema)

    def any(self) -> bool:
        """Whether there are any."""
        return next(self.tables(), None) is not None

    def none(self) -> pa.Table:
        """The columns, without rows."""
        return pa.schema([self.schema.field(column) for column in self.columns]).remove_metadata().empty_table()

    def whole(self, chosen: Callable[[pa.Table], pa.Array] | None = None) -> pa.Table:
        """All rows at once, or those that are `chosen` of some at a time."""
        tables = (table if chosen is None else table.filter(chosen(table)) for table in self.tables())
        return pa.concat_tables([self.none(), *tables])

    def by_file(self) -> Iterator[StoredRows]:
        """The rows of each file by themselves."""
        return (replace(self, fragments=(fragment,)) for fragment in self.fragments)

    def split(self, most_rows: int) -> list[StoredRows]:
        """Parts of about `most_rows` rows, if row groups are no larger."""
        parts: list[list[ds.ParquetFileFragment]] = []
        room = 0
        for fragment in self.fragments:
            groups = fragment.split_by_row_group() if _rows_of(fragment) > most_rows else [fragment]
            for group in groups:
                if room < _rows_of(group):
                    parts.append([])
                    room = most_rows
                parts[-1].append(group)
                room -= _rows_of(group)
        of_files = [replace(self, fragments=tuple(part), beside=None) for part in parts]
        return [*of_files, replace(self, fragments=())] if self.beside else of_files


def stored_rows(
    uri: str,
    options: Mapping[str, str],
    columns: Sequence[str],
    where: pc.Expression | None = None,
    partitions: Mapping[str, Sequence[str]] | None = None,
) -> StoredRows:
    """The rows of the newest version of the table at `uri`.

    Args:
        uri: the table's folder.
        options: what `deltalake` needs to open it.
        columns: those read.
        where: which rows are wanted; None: all.
        partitions: per partition column the values wanted. Only files of these are listed.
    """

    table = open_table(uri, options)
    if partitions and not all(partitions.values()):
        return StoredRows((), pa.schema(table.schema().to_arrow()), tuple(columns), where)
    return rows_of(dataset_of(table, file_system(uri, options), partitions), columns, where)


def dataset_of(
    table: DeltaTable, system: FileSystem, partitions: Mapping[str, Sequence[str]] | None = None
) -> ds.FileSystemDataset:
    """The files of a table as it was opened, of these partitions alone; the one reader of what filters skip by.

    A file is skipped by the bounds that the log has of it. A missing bound promises nothing, so the file is read;
    `deltalake`'s own dataset compares with null then, and leaves the file out whatever is asked (decision 0245).
    `system`: the file system of the table's folder. The dataset keeps the footers that it has read.

    Raises:
        deltalake.exceptions.DeltaProtocolError: the rows of a file are not just those of the table.
    """
    from deltalake.exceptions import DeltaProtocolError
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat, ParquetFragmentScanOptions

    protocol = table.protocol()
    if not {*(protocol.reader_features or ())} <= _READABLE or protocol.min_reader_version == _MAPPED_COLUMNS:
        features = ", ".join(protocol.reader_features or ()) or "mapped columns"
        raise DeltaProtocolError(f"expected a table that Parquet's readers read as it is, found one with {features}")
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


def _promises(files: pa.Table, schema: pa.Schema) -> list[pc.Expression]:
    """Per file what holds of each of its rows: the values of partitions, and the bounds that the log has.

    `files`: one row a file, as `get_add_actions(flatten=True)` lists them.
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
    """Whether bounds bound every value: of floating numbers they leave NaN out."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind))


def rows_of(dataset: ds.FileSystemDataset, columns: Sequence[str], where: pc.Expression | None = None) -> StoredRows:
    """Rows of a table's files: the `columns` of those that meet `where`."""
    return StoredRows(tuple(dataset.get_fragments(where)), dataset.schema, tuple(dict.fromkeys(columns)), where)


@contextmanager
def naming_damage(fragments: Iterable[ds.ParquetFileFragment]) -> Iterator[None]:
    """Let a failure of the block that comes from a damaged file among `fragments` name the file.

    Raises:
        FileDamaged: one is missing or can't be read.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        for fragment in fragments:
            finding = damage_of_file(fragment.filesystem, fragment.path)
            if finding:
                place = f"{getattr(fragment.filesystem, 'base_path', '')}{fragment.path}"
                raise FileDamaged(
                    expected="the data files that a table's log names",
                    found=f"{place} {finding}",
                    consequence="nothing was done: the rows of this file are unknown",
                    next_step=f"put the file back, or {RESTORE}",
                    file=place,
                ) from error
        raise


def damage_of_file(system: FileSystem, path: str) -> str | None:
    """The damage of a Parquet file, every page read against its own checksum; None of a whole file.

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
    return sum(group.column(leaf).total_uncompressed_size for group in groups for leaf in leaves)


def _batch_rows(fragment: ds.ParquetFileFragment) -> int:
    size = sum(group.total_byte_size for group in _groups_of(fragment))
    return max(1, min(BATCH_ROWS, BATCH_BYTES * _rows_of(fragment) // max(size, 1)))
