"""Reading the rows of one entity from a Delta table's files by pyarrow, in this process: a Spark job would cost more
than the whole read.

Delta's log lists the files and their bounds, and the `deltalake` library follows it from one version to the next. Spark
reads a table that requires more of its reader than Delta's first version (deletion vectors, mapped columns). It also
reads a lake on a file system for which only Spark has the credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.s3 import is_s3
from spark_jobs.session_settings import session_settings
from spark_jobs.storage.delta.delta_log import commit_file, inode_and_time, open_anew
from spark_jobs.storage.delta.places import LakeFolder, TableHandle
from spark_jobs.storage.descriptions.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_GROUP_BYTES = 2 << 20
"""Bytes of a row group, which is the smallest part of a file that pyarrow reads for an entity."""

_ROW_GROUP = "parquet.block.size"
_READER_VERSION = 1

_open: dict[tuple[Any, ...], DeltaLog] = {}
_opening = Lock()


@dataclass(frozen=True)
class DeltaFiles:
    """The files of one version of a Delta table. `files` has their partitions and bounds, as Delta's log lists them. It
    may be sent to other processes."""

    handle: TableHandle
    partitions: tuple[str, ...]
    files: pa.Table

    def between(
        self, least: str, greatest: str, columns: Sequence[str], partitions: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[dict[str, str], pa.Table]]:
        """For each file that may have entities from `least` to `greatest`: its partition, and their rows.

        Args:
            least: the first entity that is wanted. Files and row groups are skipped by their bounds of `entity`.
            greatest: the last entity that is wanted.
            columns: the columns to read. A column that a file lacks, since it was added later, is left out.
            partitions: the wanted values of each partition column.
        """
        of_table = self.handle.files()
        for file in self.files.filter(_may_hold(self.files, least, greatest, partitions)).to_pylist():
            partition = {name: str(file[f"partition.{name}"]) for name in self.partitions}
            with of_table.open_input_file(unquote(file["path"])) as opened:
                yield partition, rows_between(opened, least, greatest, columns)


class DeltaLog:
    """A Delta table that is followed from one version to the next, or opened anew if another has taken its place."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle, self._lock = handle, Lock()
        self._open()

    def now(self) -> DeltaFiles | None:
        """The files of the newest version; None if the table requires a newer reader, since its files then may have
        other rows than the table."""
        with self._lock:
            before = self._table.version()
            if self._commit_of(before) == self._commit:
                self._table.update_incremental()
                if self._table.version() != before:
                    self._list_files()
            else:
                self._open()
            return self._now if self._table.protocol().min_reader_version <= _READER_VERSION else None

    def _open(self) -> None:
        self._table = open_anew(self._handle)
        self._list_files()

    def _list_files(self) -> None:
        partitions = tuple(self._table.metadata().partition_columns)
        self._commit = self._commit_of(self._table.version())
        self._now = DeltaFiles(self._handle, partitions, pa.table(self._table.get_add_actions(flatten=True)))

    def _commit_of(self, version: int) -> tuple[int, int] | None:
        """The inode and time of the commit of a version in a local table's log; None for a URI."""
        if not self._handle.is_local:
            return None
        return inode_and_time(commit_file(self._handle, version))


def delta_files(folder: LakeFolder, table: Table) -> DeltaFiles | None:
    """The files of a table of the lake; None if Spark has to read it."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if not folder.is_local and not is_s3(folder.root):
        return None
    handle = folder.handle(table)
    key = (handle.uri, *sorted(handle.options.items()))
    try:
        with _opening:
            if key not in _open:
                _open[key] = DeltaLog(handle)
        return _open[key].now()
    except (OSError, TableNotFoundError, DeltaError):
        # Spark finds the table elsewhere, or raises the error
        return None


def small_row_groups(spark: SparkSession) -> AbstractContextManager[None]:
    """A context in which the session writes files with row groups of `ROW_GROUP_BYTES`."""
    return session_settings(spark, {_ROW_GROUP: str(ROW_GROUP_BYTES)})


def _may_hold(files: pa.Table, least: str, greatest: str, partitions: Mapping[str, Sequence[str]]) -> pa.Array:
    wanted = pa.array([True] * files.num_rows, pa.bool_())
    for name, values in partitions.items():
        column = pc.cast(files[f"partition.{name}"], pa.string())
        wanted = pc.and_(wanted, pc.is_in(column, value_set=pa.array(list(values), pa.string())))
    for bound, fits, wished in (("min", pc.less_equal, greatest), ("max", pc.greater_equal, least)):
        if f"{bound}.entity" in files.column_names:
            wanted = pc.and_(wanted, pc.fill_null(fits(files[f"{bound}.entity"], wished), fill_value=True))
    return wanted


def rows_between(opened: Any, least: str, greatest: str, columns: Sequence[str]) -> pa.Table:
    """The rows of the entities from `least` to `greatest` in an open Parquet file, read from the row groups that have
    any."""
    file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True)
    schema = file.schema_arrow
    names = set(schema.names)
    present = list(dict.fromkeys(["entity", *(column for column in columns if column in names)]))
    leaf = [file.schema.column(i).path for i in range(len(file.schema))].index("entity")
    groups = []
    for number in range(file.num_row_groups):
        bounds = file.metadata.row_group(number).column(leaf).statistics
        if bounds is None or not bounds.has_min_max or (bounds.min <= greatest and bounds.max >= least):
            groups.append(number)
    # lists cost much more to read than texts
    holding = [n for n in groups if pc.any(_within(file.read_row_group(n, ["entity"]), least, greatest)).as_py()]
    if not holding:
        return pa.schema([schema.field(name) for name in present]).empty_table()
    rows = file.read_row_groups(holding, columns=present)
    return rows.filter(_within(rows, least, greatest))


def _within(rows: pa.Table, least: str, greatest: str) -> pa.Array:
    return pc.and_(pc.greater_equal(rows["entity"], least), pc.less_equal(rows["entity"], greatest))
