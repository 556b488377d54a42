"""The amounts that rows add to measures, and their exact sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_jobs.engine.columns.plain import Flags, Ints

_LOW = np.int64((1 << 32) - 1)


@dataclass(frozen=True)
class Scaled:
    """The amount `values * by` per row; `by` is a small number, and the product may need more than 64 bits."""

    values: Ints
    by: Ints

    def __len__(self) -> int:
        return len(self.values)


Addends = Flags | Ints | Scaled
"""The amount that each row adds to one measure; a flag that is set adds 1."""
Adds = Mapping[str, Addends]
"""The amounts that each row adds, by the name of the measure."""


def both(rows: Any, *, one: Callable[[Any], Adds], other: Callable[[Any], Adds]) -> Adds:
    """The amounts that `one` and `other` return for the rows, together; they must be of different measures."""
    return {**one(rows), **other(rows)}


def total(addends: Addends) -> int:
    """The exact sum of the amounts, for up to 2^31 rows if `by` is +1 or -1."""
    if isinstance(addends, Scaled):
        # halves of 32 bits, so that neither sum passes 64 bits
        high, low = (addends.values >> 32) * addends.by, (addends.values & _LOW) * addends.by
        return (int(high.sum()) << 32) + int(low.sum())
    if addends.dtype == np.bool_:
        return int(np.count_nonzero(addends))
    return total(Scaled(addends.astype(np.int64, copy=False), np.ones(1, np.int64)))


def take_amounts(addends: Addends, rows: Ints) -> Addends:
    """The amounts that the rows at these places add."""
    if isinstance(addends, Scaled):
        return Scaled(addends.values[rows], addends.by if len(addends.by) == 1 else addends.by[rows])
    return addends[rows]


def nonzero_places(addends: Addends) -> Ints:
    """The places of the rows whose amount is not 0."""
    if isinstance(addends, Scaled):
        return np.flatnonzero((addends.values != 0) & (addends.by != 0))
    return np.flatnonzero(addends)
