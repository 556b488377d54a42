"""Keeping every answer inside int64, so that adding two diffs anywhere needs no check.

An answer is the sum of a row's diffs at some of its times: since may bring any of them together, and a read may leave
any out. So it lies between the sum of what is negative at each time and the sum of what is positive, and the guard
keeps an upper bound of both over all rows: rows × greatest magnitude per insert, far above the truth and far below
2^63 in practice. Only when the cheap bound gets there are the exact sums computed.

Sums on the way to an answer may leave int64: they wrap around, and what is added later brings them back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_jobs.kernels.corrections.columns import Diffs, Updates, concatenate
from spark_jobs.kernels.refusals import DiffOverflow

DIFF_LIMIT = 1 << 63


class MagnitudeGuard:
    """Refuses updates that, with those already held, could make an answer leave int64. `bound`: the bound so far."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound = 0

    def admit(self, updates: Updates, held: Callable[[], Updates], *, negated: bool) -> None:
        """Take the updates into account or raise DiffOverflow.

        Args:
            updates: what comes, its times forwarded to since.
            held: gives what the buffer holds, consolidated and forwarded to since.
            negated: the updates come with their diffs negated.
        """
        bound = self.bound + updates.size * greatest_magnitude(updates.diffs)
        if bound >= DIFF_LIMIT:
            positive, negative = greatest_sums(held(), updates, negated=negated)
            bound = max(positive, negative)
            # int64 reaches one further down than up
            if bound >= DIFF_LIMIT and (positive >= DIFF_LIMIT or negative > DIFF_LIMIT):
                raise DiffOverflow(bound)
        self.bound = bound


def greatest_magnitude(diffs: Diffs) -> int:
    """The greatest absolute value in a non-empty column, exact for -2^63."""
    return max(int(diffs.max()), -int(diffs.min()))


def greatest_sums(held: Updates, fresh: Updates, *, negated: bool = False) -> tuple[int, int]:
    """Over all rows: the greatest sum of what is positive at a row's times, and of what is negative (without its sign).

    Exact at any size. Cost O(n log n), in Python integers.
    """
    times, data, diffs = concatenate([held, fresh])
    order = np.lexsort((times, data))
    sign = np.where(np.arange(order.size) < held.size, 1, -1 if negated else 1)[order]
    times, data, diffs = times[order], data[order], diffs[order]
    new_row = np.r_[True, data[1:] != data[:-1]]
    starts = np.flatnonzero(new_row | np.r_[True, times[1:] != times[:-1]])
    high = np.add.reduceat(sign * (diffs >> 32), starts).astype(object)
    at_a_time = high * (1 << 32) + np.add.reduceat(sign * (diffs & 0xFFFFFFFF), starts)
    rows = np.flatnonzero(new_row[starts])
    positive = np.add.reduceat(np.maximum(at_a_time, 0), rows)
    negative = np.add.reduceat(np.maximum(-at_a_time, 0), rows)
    return int(positive.max()), int(negative.max())
