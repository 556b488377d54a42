"""Hopping and tumbling windows: `[k*advance + offset, k*advance + offset + size)` for every integer k, half open.

Tumbling windows are hopping ones with `advance == size`. k is a floor, so times before 0 are treated like others. A
window exists iff a row counts in it. At the ends of int64 bounds saturate; a row at the greatest int64 is then in a
window that ends there. Only k itself must fit into int64: with an advance of one tick, rows less than a size after the
least int64 are refused.

Lateness: a row counts in a window iff the window's last instant, `end - 1`, is at or after the row's `min_end`.

Cost: O(rows + windows), also where each row is in 60 windows: rows are never copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.windows.kinds.kind import Bounds, Grain, SpanKind, SpansFound
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.spans import Spans, WindowSpans, settle
from spark_jobs.errors import ParameterError

Ints = npt.NDArray[np.int64]
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_NEVER_LATE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Hopping(SpanKind):
    """The windows `[k*advance + offset, k*advance + offset + size)` in ticks; see the module."""

    size: int
    advance: int
    offset: int = 0

    @property
    def windows_a_row(self) -> int:  # type: ignore[override]
        """The number of windows over a row."""
        return -(-self.size // self.advance)

    @property
    def halo(self) -> tuple[int, int]:
        """The windows over the row start up to `size - 1` before it."""
        return self.size - 1, 0

    @property
    def grain(self) -> Grain | None:
        """The bounds of tumbling windows, which lie side by side; None for other hopping windows."""
        return Grain(self.size, self.offset) if self.advance == self.size else None

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The first and the last instant of the window."""
        return start, end - 1

    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """True for bounds of another length than `size`, or that do not start on the grid."""
        return (end - start != self.size) | ((start - self.offset) % self.advance != 0)

    def last_instants(self, times: Ints) -> Bounds:
        """The last instants of the first and of the last grid window over each time."""
        offset = self.offset % self.advance
        opening, _, closing = _indices(times, _NEVER_LATE, self.size, self.advance, offset)
        first, last = (
            last_instants(*_bounds(index, self.size, self.advance, offset), size=self.size)
            for index in (opening, closing)
        )
        return first, last

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """The last instant of the last grid window over each time whose last instant is not after `limit`."""
        first, last = self.last_instants(times)
        return np.minimum(last, first + (limit - first) // self.advance * self.advance)

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """See `hopping_spans`."""
        return hopping_spans(
            offsets=offsets, times=times, size=self.size, advance=self.advance, offset=self.offset, min_end=min_end
        )

    def window_instants(self, windows: WindowSpans) -> Ints:
        """The instant before each window's end, as windows are half open."""
        return last_instants(windows.start, windows.end, size=self.size)


@njit(cache=True, nogil=True)
def _indices(times: Ints, min_end: Ints, size: int, advance: int, offset: int) -> tuple[Ints, Ints, Ints]:
    """Per row, the k of the first window over it, of the first window that it counts in, and of the last window over
    it; 0 <= offset < advance."""
    opening, counting = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    closing = np.empty(times.size, np.int64)
    for row in range(times.size):
        k = times[row] // advance
        since_start = times[row] - k * advance - offset
        if since_start < 0:
            k, since_start = k - 1, since_start + advance
        left = size - 1 - since_start  # from the row to the last instant of window k; 0 or more, as advance <= size
        closing[row] = k
        opening[row] = counting[row] = k - left // advance
        if min_end.size and min_end[row] > times[row]:
            # unsigned: the distance of two int64 may pass int64
            lateness = np.uint64(min_end[row]) - np.uint64(times[row])
            counting[row] = k - (left - np.int64(lateness)) // advance if lateness <= np.uint64(left) else k + 1
    return opening, counting, closing


@njit(cache=True, nogil=True)
def _enumerate(offsets: Ints, opening: Ints, closing: Ints) -> tuple[Ints, Ints]:
    """The key and the k of every window that is over a row, in order."""
    n = 0
    for key in range(offsets.size - 1):
        for row in range(offsets[key], offsets[key + 1]):
            fresh = row == offsets[key] or opening[row] > closing[row - 1]
            n += closing[row] - (opening[row] - 1 if fresh else closing[row - 1])
    group, index = np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for key in range(offsets.size - 1):
        for row in range(offsets[key], offsets[key + 1]):
            fresh = row == offsets[key] or opening[row] > closing[row - 1]
            for k in range(opening[row] if fresh else closing[row - 1] + 1, closing[row] + 1):
                group[n], index[n] = key, k
                n += 1
    return group, index


@njit(cache=True, nogil=True)
def _number(offsets: Ints, counting: Ints, closing: Ints, group: Ints, index: Ints) -> tuple[Ints, Ints]:
    """Per row, the numbers `first .. past-1` of the windows that it counts in.

    Windows over a row have consecutive k, so a window's number follows from its distance in k from the row's last one.
    """
    first, past = np.empty(counting.size, np.int64), np.empty(counting.size, np.int64)
    begin = 0
    for key in range(offsets.size - 1):
        window = begin
        for row in range(offsets[key], offsets[key + 1]):
            while index[window] < closing[row]:
                window += 1
            past[row] = window + 1
            first[row] = window - (closing[row] - counting[row])
        while begin < group.size and group[begin] == key:
            begin += 1
    return first, past


def _bounds(index: Ints, size: int, advance: int, offset: int) -> tuple[Ints, Ints]:
    """The starts and ends of windows, saturated. Products may wrap; the limits below replace the wrapped ones."""
    with np.errstate(over="ignore"):
        start = index * np.int64(advance) + np.int64(offset)
        end = start + np.int64(size)
    start[index < -((offset - _LEAST) // advance)] = _LEAST
    end[index > (_GREATEST - offset - size) // advance] = _GREATEST
    return start, end


def _check_numbers(time: int, size: int, advance: int, offset: int) -> None:
    """Refuse a time (the least one) if the number k of a window over it does not fit into int64."""
    last = (time - offset) // advance
    first = last - (size - 1 - (time - offset - last * advance)) // advance
    if first < _LEAST:
        raise ParameterError(
            expected=f"times of hopping windows from {_LEAST + size - 1} on, with an advance of {advance}",
            found=str(time),
            consequence="no window was computed",
            next_step="leave rows out whose time stands for none, or take an advance of two or more",
            parameter="time",
            value=time,
        )


def hopping_spans(
    *, offsets: Ints, times: Ints, size: int, advance: int, offset: int, min_end: Ints | None
) -> tuple[WindowSpans, Spans, npt.NDArray[np.bool_]]:
    """All hopping windows of many keys, and the windows that each row counts in.

    Args:
        offsets: rows `offsets[k] .. offsets[k+1]-1` belong to key k.
        times: in ticks, ascending within a key.
        size: length of a window, 1 .. 2**63-1 ticks.
        advance: distance between two starts, 1 .. size.
        offset: shifts all starts; any integer.
        min_end: per row, the least last instant of a window that it counts in; None: no row is late.

    Returns:
        Windows ordered by (key, start), the spans of the rows that count in a window, and flags of those rows.

    Raises:
        ParameterError: a row is so near to the least int64 that the number of a window over it does not fit into int64.
    """
    least = np.empty(0, np.int64) if min_end is None or not np.any(min_end > times) else min_end
    offset %= advance
    if times.size:
        _check_numbers(int(times.min()), size, advance, offset)
    opening, counting, closing = _indices(times, least, size, advance, offset)
    group, index = _enumerate(offsets, opening, closing)
    first, past = _number(offsets, counting, closing, group, index)
    return settle(WindowSpans(group, *_bounds(index, size, advance, offset)), first, past)


def last_instants(start: Ints, end: Ints, *, size: int) -> Ints:
    """The last instant of windows with these bounds; the greatest int64 where a window reaches beyond it."""
    room = np.uint64(_GREATEST) - start.view(np.uint64)
    return np.where((end == _GREATEST) & (room < np.uint64(size)), _GREATEST, end - 1)
