"""A guard that keeps every answer within int64, so that additions of two diffs need no check.

An answer is the sum of a row's diffs at some of its times: since may bring any of them together, and a read may leave
any out. Add up a row's diffs per time: the answer lies between the sum of the negative totals and the sum of the
positive ones. The guard keeps an upper bound of both over all rows: number of rows × greatest magnitude, per insert. In
practice this bound is far above the true sums and far below 2^63. The exact sums are computed only if the cheap bound
reaches 2^63.

Intermediate sums may leave int64: they wrap around, and later additions bring them back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_jobs.engine.corrections.columns import Diffs, Updates, concatenate
from spark_jobs.engine.updates.refusals import DiffOverflow

DIFF_LIMIT = 1 << 63


class MagnitudeGuard:
    """Refuses updates that, with those in the buffer, could make an answer leave int64. `bound` is the bound so far."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound = 0

    def admit(self, updates: Updates, contents: Callable[[], Updates], *, negated: bool) -> None:
        """Add the updates to the bound, or raise DiffOverflow.

        Args:
            updates: the new updates, with times forwarded to since.
            contents: returns the updates in the buffer, consolidated and forwarded to since.
            negated: True if the updates are to be inserted with their diffs negated.
        """
        bound = self.bound + updates.size * greatest_magnitude(updates.diffs)
        if bound >= DIFF_LIMIT:
            positive, negative = greatest_sums(contents(), updates, negated=negated)
            bound = max(positive, negative)
            # the least int64 has a magnitude greater by one than the greatest int64
            if bound >= DIFF_LIMIT and (positive >= DIFF_LIMIT or negative > DIFF_LIMIT):
                raise DiffOverflow(bound)
        self.bound = bound


def greatest_magnitude(diffs: Diffs) -> int:
    """The greatest absolute value in a non-empty column, exact even for -2^63."""
    return max(int(diffs.max()), -int(diffs.min()))


def greatest_sums(contents: Updates, fresh: Updates, *, negated: bool = False) -> tuple[int, int]:
    """The greatest sum, over all rows, of a row's positive totals per time, and of its negative ones (without sign).

    Exact at any size. Cost O(n log n), in Python integers.
    """
    times, data, diffs = concatenate([contents, fresh])
    order = np.lexsort((times, data))
    sign = np.where(np.arange(order.size) < contents.size, 1, -1 if negated else 1)[order]
    times, data, diffs = times[order], data[order], diffs[order]
    new_row = np.r_[True, data[1:] != data[:-1]]
    starts = np.flatnonzero(new_row | np.r_[True, times[1:] != times[:-1]])
    high = np.add.reduceat(sign * (diffs >> 32), starts).astype(object)
    at_a_time = high * (1 << 32) + np.add.reduceat(sign * (diffs & 0xFFFFFFFF), starts)
    rows = np.flatnonzero(new_row[starts])
    positive = np.add.reduceat(np.maximum(at_a_time, 0), rows)
    negative = np.add.reduceat(np.maximum(-at_a_time, 0), rows)
    return int(positive.max()), int(negative.max())
