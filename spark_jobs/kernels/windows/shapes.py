"""The kinds of windows as values: what a kind needs to know, and how it finds its windows and the rows in them.

A row counts in a window iff the window's last instant is at or after the row's `min_end`. The last instant is `end` for
sliding windows (closed), `end - 1` for hopping and tumbling ones (half open); a row at t is in a session iff
`t + gap` is at or after its `min_end`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .aligned import hopping_spans, last_instants, latest_instant
from .rows import NullValues
from .sessions import session_spans
from .sliding import sliding_spans
from .spans import Spans, Windows

Ints = npt.NDArray[np.int64]
_LEAST = -(2**63)
Found = tuple[Windows, Spans, npt.NDArray[np.bool_]]
"""Windows by (key, start), the spans of the rows that count somewhere, and which rows those are."""


@dataclass(frozen=True)
class Settled:
    """What later rows of a key leave alone, and what is needed for the rest."""

    before: int
    """No row to come bears on windows that start earlier."""
    rows_from: int
    """Windows that start at `before` or later need no row before this time."""


class Shape(ABC):
    """One kind of windows with its parameters, in ticks."""

    null_values: NullValues = "skip_value"
    drop_negative: bool = False

    windows_a_row: int = 1
    """The most windows that a row may add."""

    @property
    def halo(self) -> tuple[int, int] | None:
        """How far before and after a row the windows start that it bears on; None: any distance."""
        return None

    def settled(self, time: int, last_start: int | None) -> Settled:
        """What rows at or after `time` leave alone; `last_start`: the start of the key's last window so far, if any."""
        assert self.halo is not None
        before, after = self.halo
        start = max(time - before, _LEAST)
        return Settled(start, max(start - after, _LEAST))

    @abstractmethod
    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> Found:
        """The windows of rows sorted by key and time."""

    def last_instants(self, windows: Windows) -> Ints | None:
        """Per window the instant that a row's `min_end` is compared with; None if that is the row's own matter."""
        return windows.end

    def latest_instants(self, times: Ints) -> Ints | None:
        """Per time the last instant of the latest window that could hold it; None if that depends on other rows."""
        return None


@dataclass(frozen=True)
class Sliding(Shape):
    """`[t-size, t]` and `[t+1, t+1+size]`, see `sliding`."""

    size: int
    clip_at_zero: bool
    null_values: NullValues = "skip_row"
    windows_a_row = 2

    @property
    def drop_negative(self) -> bool:  # type: ignore[override]
        """Kafka's times start at 0."""
        return self.clip_at_zero

    @property
    def halo(self) -> tuple[int, int]:
        """Windows over the row, and its right window."""
        return self.size, 1

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> Found:
        """See `sliding.sliding_spans`."""
        return sliding_spans(
            offsets=offsets, times=times, size=self.size, clip_at_zero=self.clip_at_zero, min_end=min_end
        )


@dataclass(frozen=True)
class Sessions(Shape):
    """Rows not further apart than `gap`, see `sessions`."""

    gap: int
    null_values: NullValues = "skip_value"

    def settled(self, time: int, last_start: int | None) -> Settled:
        """The last session may go on."""
        start = time if last_start is None else last_start
        return Settled(start, start)

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> Found:
        """See `sessions.session_spans`."""
        return session_spans(offsets=offsets, times=times, gap=self.gap, min_end=min_end)

    def last_instants(self, windows: Windows) -> Ints | None:
        """None: a late row is in no session, whatever sessions there are."""
        return None


@dataclass(frozen=True)
class Hopping(Shape):
    """`[k*advance + offset, +size)`, see `aligned`."""

    size: int
    advance: int
    offset: int = 0
    null_values: NullValues = "skip_value"

    @property
    def windows_a_row(self) -> int:  # type: ignore[override]
        """All windows over it."""
        return -(-self.size // self.advance)

    @property
    def halo(self) -> tuple[int, int]:
        """Windows over the row."""
        return self.size - 1, 0

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> Found:
        """See `aligned.hopping_spans`."""
        return hopping_spans(
            offsets=offsets, times=times, size=self.size, advance=self.advance, offset=self.offset, min_end=min_end
        )

    def last_instants(self, windows: Windows) -> Ints | None:
        """Half open: the instant before the end."""
        return last_instants(windows.start, windows.end, size=self.size)

    def latest_instants(self, times: Ints) -> Ints | None:
        """The last instant of the window that starts last."""
        return latest_instant(times, size=self.size, advance=self.advance, offset=self.offset)
