"""Arrow columns of plain values as numpy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def numbers(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """Whole numbers, times in microseconds and booleans as int64; `null` for null."""
    whole = column.cast(pa.int64()) if not pa.types.is_int64(column.type) else column
    return pc.fill_null(whole, null).combine_chunks().to_numpy(zero_copy_only=False)


def present(column: pa.ChunkedArray) -> Flags:
    """Where the column has a value."""
    return pc.is_valid(column).combine_chunks().to_numpy(zero_copy_only=False)


def are(column: pa.ChunkedArray, value: str) -> Flags:
    """Where a column of texts has this value."""
    return pc.fill_null(pc.equal(column, value), False).combine_chunks().to_numpy(zero_copy_only=False)


def among(column: pa.ChunkedArray, values: list[str] | list[int]) -> Flags:
    """Where a column has one of these values; null is none of them."""
    listed = pa.array(values, column.type)
    return pc.is_in(column, value_set=listed).combine_chunks().to_numpy(zero_copy_only=False) & present(column)


def repeated(values: Ints) -> Ints:
    """The values that are there several times, each once."""
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
