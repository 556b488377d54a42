"""What rows add to measures, and the exact sums of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plain import Flags, Ints

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


def taken(addends: Addends, rows: Ints) -> Addends:
    """What the rows at some places add."""
    if isinstance(addends, Scaled):
        return Scaled(addends.values[rows], addends.by if len(addends.by) == 1 else addends.by[rows])
    return addends[rows]


def adding(addends: Addends) -> Ints:
    """The places of the rows that add anything."""
    if isinstance(addends, Scaled):
        return np.flatnonzero((addends.values != 0) & (addends.by != 0))
    return np.flatnonzero(addends)
