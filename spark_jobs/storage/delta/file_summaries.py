"""Summaries of a table's data files by their own footers: rows, bytes, bounds of columns. No Spark job.

The log of the table lists the files; their rows and bounds are read from the files themselves (but see `logged_files`).
So a summary describes the data as it was stored, not as a writer meant to store it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.storage.delta.data_files import dataset_of, naming_damage
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyarrow.fs import FileSystem

UNPACKED = 4
"""The approximate bytes in memory of a byte of a Parquet file."""
_TAIL_BYTES = 1 << 16
"""Bytes at the end of a file that are read at once: more than nearly every footer has."""
_TRAILER_BYTES = 8
"""Bytes after a footer: its length, and Parquet's mark."""
_DIGITS = 16
"""Hexadecimal digits of each part of a checksum."""

Bounds = tuple[Any, Any]
"""Least and greatest value of a column."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """One data file that has rows: the value of its partition column, its rows and bytes, bounds by column.

    `types`: a digest of the columns and their types. `footer`: a digest of the file's footer, which has the sizes,
    counts and bounds of all columns. Both are empty for a summary that is not of a file.
    """

    partition: str
    rows: int
    size: int
    bounds: Mapping[str, Bounds]
    types: str = ""
    footer: str = ""


def summarize_files(
    handle: TableHandle, partition: str, values: Sequence[str] | None, columns: Sequence[str]
) -> Iterator[FileSummary]:
    """The files of the partitions whose column `partition` is one of `values` (None: all). Files without rows are left
    out.

    The `columns` must have no nulls. Their bounds come from the footers' statistics. If a file has no statistics of a
    column, the column is read.
    """
    from pyarrow.dataset import get_partition_keys

    table = open_table(handle)
    listed = pa.table(table.get_add_actions(flatten=True))
    sizes = dict(zip(map(unquote, listed["path"].to_pylist()), listed["size_bytes"].to_pylist(), strict=True))
    system = handle.files()
    dataset = dataset_of(table, system, None if values is None else {partition: values})
    for fragment in dataset.get_fragments():
        with naming_damage([fragment]):
            rows = fragment.count_rows()
            bounds = {column: _bounds(fragment, dataset.schema, column) for column in columns} if rows else {}
            digests = (_digest_types(fragment), _digest_footer(system, fragment.path)) if rows else ()
        if rows:
            value = get_partition_keys(fragment.partition_expression)[partition]
            yield FileSummary(value, rows, sizes[fragment.path], bounds, *digests)


def logged_files(handle: TableHandle, column: str) -> list[FileSummary]:
    """The files of a table without partitions, with the log's bounds of `column`, of which the log must have
    statistics."""

    listed = pa.table(open_table(handle).get_add_actions(flatten=True)).to_pylist()
    bounds = (f"min.{column}", f"max.{column}")
    return [
        FileSummary("", file["num_records"], file["size_bytes"], {column: (file[bounds[0]], file[bounds[1]])})
        for file in listed
        if file["num_records"]
    ]


def _digest_types(fragment: ds.ParquetFileFragment) -> str:
    schema = fragment.metadata.schema
    columns = [schema.column(place) for place in range(len(schema))]
    return _digest(repr([(c.path, c.physical_type, str(c.logical_type)) for c in columns]).encode())


def _digest_footer(system: FileSystem, path: str) -> str:
    with system.open_input_file(path) as file:
        size = file.size()
        first = max(size - _TAIL_BYTES, 0)
        tail = file.read_at(size - first, first)
        length = int.from_bytes(tail[-_TRAILER_BYTES : -_TRAILER_BYTES + 4], "little") + _TRAILER_BYTES
        return _digest(tail[-length:] if length <= len(tail) else file.read_at(length, size - length))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _bounds(fragment: ds.ParquetFileFragment, schema: pa.Schema, column: str) -> Bounds:
    of_groups = [group.statistics.get(column) for group in fragment.row_groups if group.num_rows]
    if all(of_group is not None and "min" in of_group for of_group in of_groups):
        return min(group["min"] for group in of_groups), max(group["max"] for group in of_groups)
    least_greatest = pc.min_max(fragment.to_table(schema=schema, columns=[column])[column]).as_py()
    return least_greatest["min"], least_greatest["max"]
