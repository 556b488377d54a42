"""Session windows: the rows of a key, cut where the distance to the row before is greater than the gap.

Rows at a distance of exactly `gap` join (Kafka's inequality). Bounds are the first and the last time of the session,
both inclusive. A session is a function of the set of times, whatever their order.

Lateness: a row at t is in no session if `t + gap < min_end`. The sessions that exist when the row arrives do not
matter. Kafka does consider them, for a late row that touches a live session, so its result depends on the time at which
a batch is processed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.windows.kinds.kind import Bounds, Settled, SpanKind, SpansFound, plus
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.spans import Spans, WindowSpans

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sessions(SpanKind):
    """Rows not further apart than `gap`; see the module."""

    gap: int
    half_open = False

    @property
    def halo(self) -> None:
        """None: a session may be of any length."""
        return

    @property
    def span(self) -> int:
        """The session gap in ticks."""
        return self.gap

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """From a gap before the session to a gap after it: rows join those within a gap of them."""
        return start - self.gap, end + self.gap

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """Two gaps after the end: a row that can change the session is at most a gap after it, and that row's session
        counts as ending another gap later."""
        return end + 2 * self.gap

    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """True for bounds that end before they start."""
        return end < start

    def last_instants(self, times: Ints) -> Bounds:
        """A gap after each time: the session of a row counts as ending there, whatever other rows are in it."""
        last = plus(times, self.gap)
        return last, last

    def window_instants(self, windows: WindowSpans) -> None:
        """None: a late row is in no session, so its lateness does not depend on the sessions."""
        return

    def settle(self, time: int, last_start: int | None) -> Settled:
        """All sessions before the key's last one, which later rows may extend."""
        start = time if last_start is None else last_start
        return Settled(start, start)

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """See `session_spans`."""
        return session_spans(offsets=offsets, times=times, gap=self.gap, min_end=min_end)


def session_spans(
    *, offsets: Ints, times: Ints, gap: int, min_end: Ints | None
) -> tuple[WindowSpans, Spans, npt.NDArray[np.bool_]]:
    """All sessions of many keys, and the sessions that each row is in.

    Args:
        offsets: rows `offsets[k] .. offsets[k+1]-1` belong to key k.
        times: in ticks, ascending within a key.
        gap: greatest distance between neighbours of one session, 1 .. 2**63-1 ticks.
        min_end: per row, the least `time + gap` with which it counts; None: no row is late.

    Returns:
        Sessions ordered by (key, start), the spans of the rows in them, and flags of those rows.
    """
    counted = np.ones(times.size, np.bool_)
    group = np.repeat(np.arange(offsets.size - 1, dtype=np.int64), np.diff(offsets))
    if min_end is not None and np.any(min_end > times):
        # unsigned: the distance of two int64 may pass int64
        lateness = min_end.view(np.uint64) - times.view(np.uint64)
        counted = (min_end <= times) | (lateness <= np.uint64(gap))
        group, times = group[counted], times[counted]
    opens = np.ones(times.size, np.bool_)
    if times.size:
        distance = times[1:].view(np.uint64) - times[:-1].view(np.uint64)
        opens[1:] = (group[1:] != group[:-1]) | (distance > np.uint64(gap))
    begins = np.flatnonzero(opens)
    ends = np.append(begins[1:], times.size) - 1 if begins.size else begins
    session = np.cumsum(opens, dtype=np.int64) - 1
    windows = WindowSpans(group[begins], times[begins], times[ends])
    return windows, Spans(session, session + 1, begins.size), counted
