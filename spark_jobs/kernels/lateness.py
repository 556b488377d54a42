"""Lateness of rows: for which windows a row comes too late, and what a policy makes of it.

It follows from the row, its drop and the definition alone, never from when the drop was processed (design.md, `late`):
a row is late for a window that could take no row at or after `lo`, the start of the row's own drop; that is, for a
window whose last instant is before `lo`. A late (row, window) pair

    discard         does not count
    reemit(L)       counts iff lo - end <= L
    reemit          counts
    next_window     does not count; a row late for all its windows counts in those over `lo` instead

Half-open windows end a tick after their last instant, so a limit is measured from there. A new policy is a class here,
and its name in a source file (`sources.windows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.windows import Kind
from spark_jobs.kernels.windows.kinds.ticks import Ticks

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER_LATE = -(2**63)
"""The `min_end` of a row that counts in every window over it."""


@dataclass(frozen=True)
class Policy(ABC):
    """What becomes of late pairs."""

    limit: int | None = None
    """In ticks, for policies that have one."""
    moves_rows = False
    """Whether a row that is late for all its windows counts in those over its drop's start."""

    @abstractmethod
    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """The least last instant of a window in which rows of a drop that starts at `lo` count; None: any."""


class Discard(Policy):
    """Late pairs do not count."""

    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """The drop's start."""
        return lo


class NextWindow(Discard):
    """Late pairs do not count; a row without any other counts in the windows over its drop's start."""

    moves_rows = True


class Reemit(Policy):
    """Late pairs count, as long as the window ended at most `limit` before."""

    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """So much before the drop's start."""
        return None if self.limit is None else lo - (self.limit + int(half_open))


POLICIES: dict[str, type[Policy]] = {"discard": Discard, "next_window": NextWindow, "reemit": Reemit}
"""By their names in a source file."""


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


def judge(times: Ints, lo: Ints, kind: Kind, policy: Policy) -> Lateness:
    """The lateness of rows at `times`, landed by drops that start at `lo`."""
    first, last = kind.last_instants(times)
    least = policy.least_instants(lo, half_open=kind.half_open)
    min_end = np.full(lo.size, NEVER_LATE, np.int64) if least is None else least
    nowhere = last < min_end
    moved = nowhere & policy.moves_rows
    return Lateness(first, last, min_end, np.where(moved, lo, times), first < lo, nowhere & ~moved, moved)
