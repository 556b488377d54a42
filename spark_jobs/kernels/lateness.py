"""Lateness of rows: for which windows a row comes too late, and what a policy makes of it.

It follows from the row, its drop and the definition alone, never from when the drop was processed (design.md, `late`):
a row is late for a window that could take no row at or after `lo`, the start of the row's own drop; that is, for a
window whose last instant is before `lo`. A late (row, window) pair

    discard         does not count
    reemit(L)       counts iff lo - end <= L
    reemit          counts
    next_window     does not count; a row late for all its windows counts in those over `lo` instead

Half-open windows end a tick after their last instant, so a limit is measured from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.geometry import Geometry

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER_LATE = -(2**63)
"""The `min_end` of a row that counts in every window over it."""


@dataclass(frozen=True)
class Policy:
    """What becomes of late pairs. `limit` (ticks) is of `reemit` alone; None: without limit."""

    name: str
    limit: int | None = None


@dataclass(frozen=True)
class Lateness:
    """What a policy makes of rows, one element a row.

    Args:
        first, last: last instants of the first and last window that can hold the row.
        min_end: the least last instant of a window that it counts in.
        placed: the time by which it is placed: its own, or `lo` if it moved on.
        late: whether it is late for any window.
        discarded: whether it counts in no window.
        moved: whether it counts in the windows over `lo`.
    """

    first: Ints
    last: Ints
    min_end: Ints
    placed: Ints
    late: Flags
    discarded: Flags
    moved: Flags

    @property
    def partial(self) -> Flags:
        """Whether it counts in some of its windows alone."""
        return self.late & (self.first < self.min_end) & (self.last >= self.min_end)


def least_instants(lo: Ints, policy: Policy, *, half_open: bool) -> Ints:
    """Per row its `min_end`, by its drop's start."""
    if policy.name != "reemit":
        return lo
    if policy.limit is None:
        return np.full(lo.size, NEVER_LATE, np.int64)
    return lo - policy.limit - int(half_open)


def judge(times: Ints, lo: Ints, geometry: Geometry, policy: Policy) -> Lateness:
    """The lateness of rows at `times`, landed by drops that start at `lo`."""
    first, last = geometry.last_instants(times)
    least = least_instants(lo, policy, half_open=geometry.half_open)
    nowhere = last < least
    moved = nowhere if policy.name == "next_window" else np.zeros(times.size, np.bool_)
    return Lateness(first, last, least, np.where(moved, lo, times), first < lo, nowhere & ~moved, moved)
