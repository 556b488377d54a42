"""Keeping sums of diffs inside int64, so that adding two of them anywhere needs no check.

A partial sum of one row's diffs, at whatever time and in whatever order, is at most the sum of their magnitudes. The
guard keeps an upper bound of that sum over all rows: rows × greatest magnitude per insert, far above the truth and far
below 2^63 in practice. Only when the cheap bound gets there is the exact one computed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_jobs.kernels.corrections.columns import Diffs, Updates, concatenate
from spark_jobs.kernels.corrections.errors import DiffOverflow

DIFF_LIMIT = 1 << 63


class MagnitudeGuard:
    """Refuses updates whose diffs, with those already held, could leave int64. `bound`: the bound so far."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound = 0

    def admit(self, updates: Updates, held: Callable[[], Updates]) -> None:
        """Take the updates into account or raise DiffOverflow; `held` gives what the buffer holds."""
        bound = self.bound + updates.size * greatest_magnitude(updates.diffs)
        if bound >= DIFF_LIMIT:
            bound = greatest_sum_of_magnitudes(concatenate([held(), updates]))
            if bound >= DIFF_LIMIT:
                raise DiffOverflow(bound)
        self.bound = bound


def greatest_magnitude(diffs: Diffs) -> int:
    """The greatest absolute value in a non-empty column, exact for -2^63."""
    return max(int(diffs.max()), -int(diffs.min()))


def greatest_sum_of_magnitudes(updates: Updates) -> int:
    """Over all rows: the greatest sum of absolute diffs of one row at any times, exact."""
    order = np.argsort(updates.data, kind="stable")
    data = updates.data[order]
    magnitudes = np.abs(updates.diffs[order]).view(np.uint64)
    starts = np.flatnonzero(np.r_[True, data[1:] != data[:-1]])
    high = np.add.reduceat(magnitudes >> np.uint64(32), starts).tolist()
    low = np.add.reduceat(magnitudes & np.uint64(0xFFFFFFFF), starts).tolist()
    return max((upper << 32) + lower for upper, lower in zip(high, low, strict=True))
