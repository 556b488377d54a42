"""Bytes of Arrow tables, independent of the cut into batches, on which Arrow's own count of its buffers depends."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def bytes_of(table: pa.Table) -> int:
    """The bytes of the values of a table, with four bytes for the length of every list and text."""
    return sum(_bytes(column) for column in table.columns)


def _bytes(column: pa.ChunkedArray | pa.Array) -> int:
    kind, count = column.type, len(column) - column.null_count
    if pa.types.is_list(kind):
        return 4 * count + _bytes(pc.list_flatten(column))
    if pa.types.is_string(kind):
        return 4 * count + (pc.sum(pc.binary_length(column)).as_py() or 0)
    return 0 if pa.types.is_null(kind) else count * max(kind.bit_width // 8, 1)
