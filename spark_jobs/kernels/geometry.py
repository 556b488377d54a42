"""How windows of each kind lie in time: which ones can hold a row, and which rows can change one.

    kind                   windows over a row at t end between     a window [s, e] changes with rows at
    sliding                t  and  t + size                        s - 1 .. e    (a row at s - 1 opens it)
    session                t + gap  (by definition)                s - gap .. e + gap
    tumbling, hopping      the first and the last grid window      s .. e - 1
    calendar               the period over t                       s .. e - 1
    adaptive               the cell over t                         the cell over s

Ends are *last instants*: `end` of closed windows, `end - 1` of half-open ones. A row counts in a window iff its last
instant is at or after the row's `min_end`. All times are int64 ticks and far from the ends of int64 (years 1 to 9999).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.windows import Calendar

Ints = npt.NDArray[np.int64]
Bounds = tuple[Ints, Ints]


class Geometry(ABC):
    """Where the windows of one definition can lie."""

    half_open: bool = True

    @property
    @abstractmethod
    def span(self) -> int:
        """No window reaches further than this (and one tick) from a row that can change it; sessions: their gap."""

    @abstractmethod
    def last_instants(self, times: Ints) -> Bounds:
        """Per time the last instants of the first and of the last window that can hold a row there."""

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """Per time the greatest last instant up to `limit` of a window over it; one such window there is."""
        _, last = self.last_instants(times)
        return np.minimum(last, limit)

    @abstractmethod
    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """Per window the first and the last time at which a row that comes or goes can change it."""

    @property
    def halo(self) -> tuple[int, int] | None:
        """How far before and after a row the windows start that it bears on; None: any distance."""
        return self.span, 0


@dataclass(frozen=True)
class SlidingGeometry(Geometry):
    """`[t - size, t]` and `[t + 1, t + 1 + size]`."""

    size: int
    half_open = False

    @property
    def span(self) -> int:
        """The size."""
        return self.size

    def last_instants(self, times: Ints) -> Bounds:
        """The left window of the row ends first; the one that starts at the row ends last."""
        return times, times + self.size

    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """Rows inside, and the one whose right window it is."""
        return start - 1, end

    @property
    def halo(self) -> tuple[int, int]:
        """Windows over the row, and its right window."""
        return self.size, 1


@dataclass(frozen=True)
class SessionGeometry(Geometry):
    """Rows not further apart than a gap."""

    gap: int
    half_open = False

    @property
    def span(self) -> int:
        """The gap."""
        return self.gap

    def last_instants(self, times: Ints) -> Bounds:
        """A row's session counts as ending a gap after the row, whatever else is in it."""
        return times + self.gap, times + self.gap

    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """A row joins, or parted, what lies within a gap of it."""
        return start - self.gap, end + self.gap

    @property
    def halo(self) -> None:
        """A session may be of any length."""
        return


@dataclass(frozen=True)
class GridGeometry(Geometry):
    """`[k*advance + offset, k*advance + offset + size)`."""

    size: int
    advance: int
    offset: int = 0

    @property
    def span(self) -> int:
        """The size."""
        return self.size

    def last_instants(self, times: Ints) -> Bounds:
        """Of the first and the last grid window over each time."""
        since = times - self.offset
        first = (since - self.size) // self.advance + 1
        last = since // self.advance
        end = self.offset + self.size - 1
        return first * self.advance + end, last * self.advance + end

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """The last grid window over the time that ends by then."""
        first, last = self.last_instants(times)
        return np.minimum(last, first + (limit - first) // self.advance * self.advance)

    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """Rows inside."""
        return start, end - 1


@dataclass(frozen=True)
class CalendarGeometry(Geometry):
    """Periods of the calendar of a time zone."""

    calendar: Calendar
    longest: int
    """No period lasts longer."""

    @property
    def span(self) -> int:
        """The longest period."""
        return self.longest

    def last_instants(self, times: Ints) -> Bounds:
        """Of the one period over each time."""
        last = self.calendar.latest_instants(times) if times.size else times
        assert last is not None, "a calendar knows the period over any time"
        return last, last

    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """Rows inside."""
        return start, end - 1


@dataclass(frozen=True)
class CellGeometry(Geometry):
    """Adaptive windows: any row of a cell `[n*reset, (n+1)*reset)` may move all windows of the cell."""

    reset: int

    @property
    def span(self) -> int:
        """The length of a cell."""
        return self.reset

    def last_instants(self, times: Ints) -> Bounds:
        """A row is late for all windows of its cell, or for none."""
        last = (times // self.reset + 1) * self.reset - 1
        return last, last

    def changed_by(self, start: Ints, end: Ints) -> Bounds:
        """Rows of its cell."""
        cell = start // self.reset * self.reset
        return cell, cell + (self.reset - 1)

    @property
    def halo(self) -> tuple[int, int]:
        """Slices are cells."""
        return 0, 0
