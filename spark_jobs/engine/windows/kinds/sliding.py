"""Sliding windows as KIP-450 defines them: windows set by the rows themselves, both bounds inclusive.

For the rows of one key and a size `d`, with exact bounds:

    left window of a row at t     [t-d, t]       always exists
    right window of a row at t    [t+1, t+1+d]   exists iff a row lies in it; the row at t does not
    content                       every row with start <= time <= end
    windows with one start are one window (the left one of one row may be the right one of another)

So n distinct times have at most 2n-1 windows. Size 10, rows at 103, 107, 112 and 119 (KIP figure 1):

    103 107 112 119      [93,103] [97,107] [102,112] [104,114] [108,118] [109,119] [113,123]

`clip_at_zero` (Kafka's times start at 0): rows at t <= d share the window [0, d] as their left one; rows before 0 do
not count. With a `tick` of several units, times are whole ticks, and a right window starts a tick after its row. At the
ends of int64 bounds saturate, and a right window whose start would pass the end does not exist.

Lateness: row i counts in a window iff `end >= min_end[i]`. A left window exists iff a row at its end counts in it. A
right window exists iff at least one row counts in it and a row a tick before its start is not late for all its windows
(`t + d >= min_end`). This one rule serves a grace (`min_end` = stream time at arrival - grace) and the late policies of
a source file. If no row is late, it is the definition above. With late rows, Kafka's own result depends on the content
of its stores; this is not imitated.

Cost: O(rows) once sorted, plus O(log rows) for each late row; independent of the number of rows a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.windows.kinds.kind import Bounds, SpanKind, SpansFound, plus
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.rows import NullValues
from spark_jobs.engine.windows.spans import Spans, WindowSpans, settle

Ints = npt.NDArray[np.int64]
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Sliding(SpanKind):
    """The windows `[t - size, t]` and `[t + 1, t + 1 + size]` of a row at t; see the module."""

    size: int
    clip_at_zero: bool
    null_values: NullValues = "skip_row"
    tick: int = 1
    half_open = False
    windows_a_row = 2

    @property
    def drop_negative(self) -> bool:  # type: ignore[override]
        """True with `clip_at_zero`: Kafka's times start at 0."""
        return self.clip_at_zero

    @property
    def halo(self) -> tuple[int, int]:
        """The windows over the row start up to `size` before it; its right window starts a tick after it."""
        return self.size, self.tick

    @property
    def span(self) -> int:
        """To the end of the row's right window."""
        return self.size + self.tick - 1

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The tick before the start, as the window may be the right window of a row there, and the end."""
        return start - self.tick, end

    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """True for bounds of another length than `size`."""
        return end - start != self.size

    def last_instants(self, times: Ints) -> Bounds:
        """The ends of the row's left window, which ends first, and of the window that starts at the row, which ends
        last."""
        return np.maximum(times, self.size) if self.clip_at_zero else times, plus(times, self.size)

    def within(self, times: Ints, least: int, greatest: int) -> npt.NDArray[np.bool_]:
        """Per time, True if all windows that can contain a row there lie within the bounds, and the row can count."""
        inside = super().within(times, least, greatest)
        return inside & (times >= 0) if self.clip_at_zero else inside

    def made_until(self, times: Ints) -> Ints:
        """The end of the row's left window: other windows over the row exist only if other rows make them."""
        return self.last_instants(times)[0]

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """See `sliding_spans`."""
        return sliding_spans(
            offsets=offsets,
            times=times,
            size=self.size,
            clip_at_zero=self.clip_at_zero,
            min_end=min_end,
            tick=self.tick,
        )


@njit(cache=True, nogil=True)
def _left_bounds(time: int, size: int, clip: bool) -> tuple[int, int]:
    if clip:
        return max(time - size, 0), max(time, size)
    return (time - size if time >= _LEAST + size else _LEAST), time


@njit(cache=True, nogil=True)
def _plus(time: int, distance: int) -> int:
    """`time + distance`, saturated; distance >= 0."""
    return time + distance if time <= _GREATEST - distance else _GREATEST


@njit(cache=True, nogil=True)
def _next_right(times: Ints, min_end: Ints, row: int, stop: int, size: int, tick: int) -> tuple[int, int]:
    """The next row from `row` on whose right window may exist, and the next row with a later time; (stop, stop): there
    is none."""
    while row < stop:
        if min_end.size and _plus(times[row], size) < min_end[row]:
            row += 1
            continue
        following = row + 1
        while following < stop and times[following] == times[row]:
            following += 1
        # unsigned: the distance of two int64 may pass int64
        if following < stop:
            distance = np.uint64(times[following]) - np.uint64(times[row])
            if distance - np.uint64(tick) <= np.uint64(size):
                return row, following
        row = following
    return stop, stop


@njit(cache=True, nogil=True)
def _next_left(times: Ints, min_end: Ints, row: int, stop: int, size: int, clip: bool) -> int:
    """The next row from `row` on that counts in its left window; `stop` if there is none."""
    while min_end.size and row < stop and min_end[row] > _left_bounds(times[row], size, clip)[1]:
        row += 1
    return row


@njit(cache=True, nogil=True)
def _candidates(offsets: Ints, times: Ints, min_end: Ints, size: int, clip: bool, tick: int) -> tuple[Ints, Ints, Ints]:
    """The key, start and end of the windows that may exist: a right window may turn out to have no row."""
    group, start = np.empty(2 * times.size, np.int64), np.empty(2 * times.size, np.int64)
    end = np.empty(2 * times.size, np.int64)
    n = 0
    for key in range(offsets.size - 1):
        stop = offsets[key + 1]
        left = _next_left(times, min_end, offsets[key], stop, size, clip)
        right, following = _next_right(times, min_end, offsets[key], stop, size, tick)
        while left < stop or right < stop:
            opens, closes = _GREATEST, _GREATEST
            if left < stop:
                opens, closes = _left_bounds(times[left], size, clip)
            if right < stop and times[right] + tick <= opens:
                if left >= stop or times[right] + tick < opens:
                    opens, closes = times[right] + tick, _plus(times[right] + tick, size)
                right, following = _next_right(times, min_end, following, stop, size, tick)
            while left < stop and _left_bounds(times[left], size, clip) == (opens, closes):
                left = _next_left(times, min_end, left + 1, stop, size, clip)
            group[n], start[n], end[n] = key, opens, closes
            n += 1
    return group[:n], start[:n], end[:n]


@njit(cache=True, nogil=True)
def _first_reaching(end: Ints, low: int, high: int, bound: int) -> int:
    """The first of the windows low .. high-1 that ends at or after `bound`; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if end[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def closed_spans(offsets: Ints, times: Ints, min_end: Ints, group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Per row, the windows `first .. past-1` of its key with start <= time <= end and end >= min_end (none if past <=
    first).

    Starts and ends must ascend within a key; neighbours may be equal.
    """
    first, past = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    begin = 0
    for key in range(offsets.size - 1):
        finish = begin
        while finish < group.size and group[finish] == key:
            finish += 1
        reaching = opened = begin
        for row in range(offsets[key], offsets[key + 1]):
            while reaching < finish and end[reaching] < times[row]:
                reaching += 1
            while opened < finish and start[opened] <= times[row]:
                opened += 1
            first[row], past[row] = reaching, opened
            if min_end.size and min_end[row] > times[row]:
                first[row] = _first_reaching(end, reaching, finish, min_end[row])
        begin = finish
    return first, past


def sliding_spans(
    *, offsets: Ints, times: Ints, size: int, clip_at_zero: bool, min_end: Ints | None, tick: int = 1
) -> tuple[WindowSpans, Spans, npt.NDArray[np.bool_]]:
    """All sliding windows of many keys, and the windows that each row counts in.

    Args:
        offsets: rows `offsets[k] .. offsets[k+1]-1` belong to key k.
        times: in ticks, ascending within a key; none below 0 if `clip_at_zero`.
        size: greatest distance between two rows of one window, 0 .. 2**63-1 ticks.
        min_end: per row, the least end of a window that it counts in; None: no row is late.
        tick: times are multiples of it; 1 .. size, or 1.

    Returns:
        Windows ordered by (key, start), the spans of the rows that count in a window, and flags of those rows.
    """
    least = np.empty(0, np.int64) if min_end is None or not np.any(min_end > times) else min_end
    windows = WindowSpans(*_candidates(offsets, times, least, size, clip_at_zero, tick))
    first, past = closed_spans(offsets, times, least, windows.group, windows.start, windows.end)
    return settle(windows, first, past)
