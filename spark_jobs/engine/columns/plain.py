"""Arrow columns of plain values as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Whole = TypeVar("Whole", np.int64, np.uint64)


def numbers(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """A column of whole numbers, times (in microseconds) or booleans as int64, with nulls replaced by `null`."""
    whole = column.cast(pa.int64()) if not pa.types.is_int64(column.type) else column
    return pc.fill_null(whole, null).combine_chunks().to_numpy(zero_copy_only=False)


def present(column: pa.ChunkedArray) -> Flags:
    """Flags of the rows in which the column has a value."""
    return pc.is_valid(column).combine_chunks().to_numpy(zero_copy_only=False)


def are(column: pa.ChunkedArray, value: str) -> Flags:
    """Flags of the rows in which a column of texts has this value."""
    return holds(pc.equal(column, value))


def holds(condition: pa.ChunkedArray) -> Flags:
    """Flags of the rows in which the condition is true; null counts as false."""
    return pc.fill_null(condition, False).combine_chunks().to_numpy(zero_copy_only=False)


def among(column: pa.ChunkedArray, values: list[str] | list[int]) -> Flags:
    """Flags of the rows in which a column has one of these values; False for a null."""
    listed = pa.array(values, column.type)
    return pc.is_in(column, value_set=listed).combine_chunks().to_numpy(zero_copy_only=False) & present(column)


def repeated_values(values: npt.NDArray[Whole]) -> npt.NDArray[Whole]:
    """The values that occur more than once, each listed once, ascending."""
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def within_ranges(values: Ints, ranges: Sequence[tuple[int, int]]) -> Flags:
    """Flags of the values that lie in one of the inclusive ranges, which ascend and do not overlap."""
    if not ranges:
        return np.zeros(values.size, np.bool_)
    lows, highs = (np.array(bounds, np.int64) for bounds in zip(*ranges, strict=True))
    place = np.searchsorted(lows, values, side="right") - 1
    return (place >= 0) & (values <= highs[place])
