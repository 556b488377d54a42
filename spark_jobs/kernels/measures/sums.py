"""What rows add to measures, and the exact sums of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LOW = np.int64((1 << 32) - 1)


@dataclass(frozen=True)
class Scaled:
    """Per row `values` times `by`, a small number: the product may pass 64 bits."""

    values: Ints
    by: Ints

    def __len__(self) -> int:
        return len(self.values)


Addends = Flags | Ints | Scaled
"""What each row adds to one measure; a flag adds 1."""
Adds = Mapping[str, Addends]
"""By measure."""


def both(rows: Any, *, one: Callable[[Any], Adds], other: Callable[[Any], Adds]) -> Adds:
    """What rows add by one function and by another, to different measures."""
    return {**one(rows), **other(rows)}


def total(addends: Addends) -> int:
    """The exact sum, of up to 2^31 rows where `by` is +1 or -1."""
    if isinstance(addends, Scaled):
        # halves of 32 bits: neither's sum passes 64
        high, low = (addends.values >> 32) * addends.by, (addends.values & _LOW) * addends.by
        return (int(high.sum()) << 32) + int(low.sum())
    if addends.dtype == np.bool_:
        return int(np.count_nonzero(addends))
    return total(Scaled(addends.astype(np.int64, copy=False), np.ones(1, np.int64)))


def adding(addends: Addends) -> Ints:
    """The places of the rows that add anything."""
    if isinstance(addends, Scaled):
        return np.flatnonzero((addends.values != 0) & (addends.by != 0))
    return np.flatnonzero(addends)


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
