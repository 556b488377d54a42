"""Lateness of rows: the windows for which a row comes too late, and the windows in which a policy lets it count.

Lateness follows from the row, its drop and the definition alone, never from the time at which the drop was processed
(docs/explanation/lateness.md). A row is late for a window whose last instant is before `lo`, the start of the row's own
drop: such a window could take no row at or after `lo`. A late (row, window) pair

    discard         does not count
    reemit(L)       counts iff lo - end <= L
    reemit          counts
    next_window     does not count; a row that is late for every window that it makes counts as a row at `lo` instead

A row makes the windows that exist because of it, whatever other rows there are (`WindowKind.made_until`): the windows
of the grid over it, the sliding window that ends at it, the session or the adaptive window that takes it.

A limit is measured from a window's end, which for half-open windows is a tick after their last instant. A new policy is
a class here, its name in a source file (`sources.windows`), and the action of its rows (`restatement.late`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.kinds.ticks import Ticks

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER_LATE = -(2**63)
"""The `min_end` of a row that counts in every window over it."""


@dataclass(frozen=True)
class Policy(ABC):
    """A policy: the rule by which late (row, window) pairs count or do not."""

    limit: int | None = None
    """In ticks, for policies that have one."""
    moves_rows = False
    """True if a row that is late for every window that it makes counts as a row at its drop's start."""

    @abstractmethod
    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """The least last instant of a window in which rows of a drop that starts at `lo` count; None: any."""


class Discard(Policy):
    """Late pairs do not count."""

    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """The drop's start."""
        return lo


class NextWindow(Discard):
    """Late pairs do not count; a row that is late for every window that it makes counts as one at its drop's start."""

    moves_rows = True


class Reemit(Policy):
    """Late pairs count if the window ended at most `limit` ticks before the drop's start; without a limit all count."""

    def least_instants(self, lo: Ticks, *, half_open: bool) -> Ticks | None:
        """The last instant of a window that ends `limit` before the drop's start; None without a limit."""
        return None if self.limit is None else lo - (self.limit + int(half_open))


POLICIES: dict[str, type[Policy]] = {"discard": Discard, "next_window": NextWindow, "reemit": Reemit}
"""The policies by their names in a source file."""


@dataclass(frozen=True)
class RowLateness:
    """The lateness of rows under a policy, one element a row.

    Args:
        first, last: last instants of the first and last window that can contain the row.
        min_end: the least last instant of a window that the row counts in.
        placed: the time at which the row counts: the tick of its own time, or `lo` if it moved on.
        late: True if the row is late for any window.
        discarded: True if the row counts in no window.
        moved: True if the row counts as a row at `lo`.
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
        """True for each late row that counts in only some of its windows."""
        return self.late & ~self.moved & (self.first < self.min_end) & (self.last >= self.min_end)


def judge(times: Ints, lo: Ints, kind: WindowKind, policy: Policy) -> RowLateness:
    """The lateness of rows at `times`, landed by drops that start at `lo`."""
    times = kind.in_ticks(times)
    first, last = kind.last_instants(times)
    least = policy.least_instants(lo, half_open=kind.half_open)
    min_end = np.full(lo.size, NEVER_LATE, np.int64) if least is None else least
    moved = (kind.made_until(times) < min_end) & policy.moves_rows
    discarded = (last < min_end) & ~moved
    return RowLateness(first, last, min_end, np.where(moved, lo, times), first < lo, discarded, moved)
