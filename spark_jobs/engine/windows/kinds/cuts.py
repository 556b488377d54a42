"""Adaptive windows: cut where a trigger fires; the longest duration of each follows the rate of its key's rows.

All times are event times, so that the same rows give the same windows in any run. Rows of one key are cut into *cells*
`[c*reset, (c+1)*reset)`; within a cell, in the order (time, delta id):

- The first row opens a window at its own time. It may last until `start + duration`, where
  `duration = clamp(target / rate, shortest, longest)`, and `longest` for rate 0.
- `rate` at a row is the number of earlier rows of the cell less than `measured_over` before it, divided by
  `measured_over` or by the time since the cell's first row, if that is shorter.
- Triggers are checked in list order; the first that fires closes the window and names the reason. `Time` fires when the
  duration is over, before a row at or after that instant is added; the others fire after a row was added.
- The cell's end closes an open window (reason `reset`). The next row opens the next window. No window crosses a cell.

`window_end` is the instant of closing: the end of the duration or of the cell, or the time of the row that fired.
A row is late for all windows of its cell, or for none: it counts iff the cell's last instant is at or after `min_end`.
If an id occurs several times among the rows of a cell that are not late, its delta counts once, at the first of them.
Cells share nothing, so an id that occurs in two cells names two deltas.

Cost: O(rows) once sorted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.columns.shares import as_written
from spark_jobs.engine.windows.spans import Spans, WindowSpans

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
REASONS = ("time", "count", "size", "rate_change", "memory_pressure", "reset")
"""The reasons for closing a window; the kernel's code for a reason is its place here."""
_TIME, _COUNT, _SIZE, _RATE_CHANGE, _MEMORY, _RESET = range(6)
_RECENT, _OLDER = 5, 10
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class Trigger:
    """A trigger: a reason of `REASONS`, and a threshold. It closes an adaptive window (made by `at_time`, `at_count`,
    …), or lets a window of another kind emit an early result (`firings`)."""

    reason: str
    threshold: float = 0.0
    """A number of rows, of bytes or of ticks, exact, or a share."""
    over: int = 0
    """For `rate_change` of an early result, the ticks over which the rate is measured. For adaptive windows,
    `Cuts.measured_over` is that length."""


@dataclass(frozen=True)
class Cuts:
    """The parameters by which windows are cut; durations are in ticks."""

    target: int
    shortest: int
    longest: int
    reset: int
    triggers: tuple[Trigger, ...]
    memory_bytes: int
    rate_unit: int
    """Ticks in the unit of time of a rate: a second for timestamps, else one tick."""
    rate_window: int | None = None
    """The ticks over which a rate is measured, 1 or more; None: `longest`. If given, `stats` has the rate, too."""

    @property
    def measured_over(self) -> int:
        """The ticks over which a rate is measured."""
        return self.longest if self.rate_window is None else self.rate_window


@njit(cache=True, nogil=True)
def has_changed(samples: Floats, count: int, threshold: float) -> bool:
    """True if the mean of the last 5 samples differs from the mean of the 5 to 10 samples before them by more than
    `threshold` times the earlier mean, which counts as at least 1. False for fewer than 10 samples."""
    if count < _RECENT + _RECENT:
        return False
    recent = older = 0.0
    for back in range(1, _RECENT + 1):
        recent += samples[(count - back) % samples.size]
    earlier = min(count - _RECENT, _OLDER)
    for back in range(_RECENT + 1, _RECENT + earlier + 1):
        older += samples[(count - back) % samples.size]
    recent, older = recent / _RECENT, older / earlier
    return abs(recent - older) / max(older, 1.0) > threshold


@njit(cache=True, nogil=True)
def _add(size: int, wraps: int, more: int) -> tuple[int, int]:
    """The sum of `size + wraps * 2**64` and `more`, in the same form: the new `size` and `wraps`."""
    total = size + more
    # a sum beyond int64 wraps around to the other end
    if more > 0 and total < size:
        return total, wraps + 1
    if more < 0 and total > size:
        return total, wraps - 1
    return total, wraps


@njit(cache=True, nogil=True)
def _find_fired(
    kinds: Ints, limits: Ints, shares: Floats, rows: int, size: int, wraps: int, samples: Floats, sampled: int
) -> int:
    """The code of the first trigger that fires after a row was added; -1: none fires. The window has
    `size + wraps * 2**64` bytes."""
    for place in range(kinds.size):
        kind, limit = kinds[place], limits[place]
        if kind == _COUNT and rows >= limit:
            return kind
        if kind in (_SIZE, _MEMORY) and (wraps > 0 or (wraps == 0 and size >= limit)):
            return kind
        if kind == _RATE_CHANGE and has_changed(samples, sampled, shares[place]):
            return kind
    return -1


_FIRST, _SAMPLED, _OPEN, _START, _DURATION, _ROWS, _BYTES, _WRAPS = range(8)


@dataclass(frozen=True)
class CutState:
    """The state of cutting within a cell, from which later rows are cut without the rows before them.

    Args:
        cell: the number of the cell, `time // reset`.
        windows: the number of windows that opened in the cell, without the open one.
        whole: time of the cell's first row, rates sampled, 1 if a window is open; that window's start, duration, rows,
            and bytes as in `_add`.
        samples: the last rates, in a ring.
        near: times of the rows less than `measured_over` before the rows to come.
    """

    cell: int
    windows: int
    whole: Ints
    samples: Floats
    near: Ints

    @property
    def open_since(self) -> int | None:
        """The start of the open window; None if no window is open."""
        return int(self.whole[_START]) if self.whole[_OPEN] else None

    def open_at(self, time: int, cuts: Cuts) -> bool:
        """True if a window is open and stays open until a row at `time`: its duration does not end by then."""
        timed = any(trigger.reason == "time" for trigger in cuts.triggers)
        whole = self.whole.tolist()
        return bool(whole[_OPEN]) and not (timed and time - whole[_START] >= whole[_DURATION])


def _fresh() -> tuple[Ints, Floats]:
    return np.zeros(8, np.int64), np.zeros(_RECENT + _OLDER, np.float64)


@njit(cache=True, nogil=True)
def _cut(
    new_cell: npt.NDArray[np.bool_],
    cell_end: Ints,
    times: Ints,
    sizes: Ints,
    kinds: Ints,
    limits: Ints,
    shares: Floats,
    bounds: tuple[int, int, int, int, int, int],
    whole: Ints,
    samples: Floats,
    near: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Floats, Ints]:
    """Per row, its window; per window, its start, end and reason, the rate at its first row by rate unit, and the ticks
    over which that was measured. A window that was open before the first row has rate 0. `bounds`: target, shortest,
    longest, measured over, rate unit, reset. `whole`, `samples` and `near` are as in CutState, for the rows before if
    the first row is not the first of its cell. `whole` and `samples` are changed to the state after the last row."""
    target, shortest, longest, over, unit, reset = bounds
    timed = measured = sized = False
    for kind in kinds:
        timed, measured = timed or kind == _TIME, measured or kind == _RATE_CHANGE
        sized = sized or kind in (_SIZE, _MEMORY)
    number = np.empty(times.size, np.int64)
    start, end = np.empty(times.size + 1, np.int64), np.empty(times.size + 1, np.int64)
    reason = np.empty(times.size + 1, np.int64)
    rates, elapsed_at = np.zeros(times.size + 1, np.float64), np.zeros(times.size + 1, np.int64)
    cell_first, sampled, duration = whole[_FIRST], whole[_SAMPLED], whole[_DURATION]
    rows, size, wraps = whole[_ROWS], whole[_BYTES], whole[_WRAPS]
    window, is_open, tail, rate, elapsed = -1, whole[_OPEN] != 0, -near.size, 0.0, np.uint64(0)
    if is_open:
        window, start[0], end[0], reason[0] = 0, whole[_START], whole[_START], _RESET
    for row in range(times.size):
        time = times[row]
        if new_cell[row]:
            is_open, tail, cell_first, sampled = False, row, time, 0
        # unsigned: the distance of two int64 may pass int64
        elif is_open and timed and np.uint64(time) - np.uint64(start[window]) >= np.uint64(duration):
            is_open = False
        if measured or not is_open:
            while np.uint64(time) - np.uint64(near[tail] if tail < 0 else times[tail]) >= np.uint64(over):
                tail += 1
            elapsed = min(np.uint64(time) - np.uint64(cell_first), np.uint64(over))
            rate = (row - tail) / float(elapsed) if elapsed > 0 else 0.0
        if measured:
            samples[sampled % samples.size] = rate * unit
            sampled += 1
        if not is_open:
            window, is_open, rows, size, wraps = window + 1, True, 0, 0, 0
            wanted = target / rate if rate > 0.0 else float(longest)
            duration = longest if wanted >= longest else max(shortest, int(wanted))
            start[window], rates[window], elapsed_at[window] = time, rate * unit, np.int64(elapsed)
            end[window], reason[window] = _end(time, duration, cell_end[row], timed, reset)
        number[row] = window
        rows += 1
        if sized:
            size, wraps = _add(size, wraps, sizes[row])
        kind = _find_fired(kinds, limits, shares, rows, size, wraps, samples, sampled)
        if kind >= 0:
            end[window], reason[window], is_open = time, kind, False
    whole[_FIRST], whole[_SAMPLED], whole[_DURATION] = cell_first, sampled, duration
    whole[_OPEN], whole[_START] = int(is_open), start[max(window, 0)]
    whole[_ROWS], whole[_BYTES], whole[_WRAPS] = rows, size, wraps
    past = window + 1
    return number, start[:past], end[:past], reason[:past], rates[:past], elapsed_at[:past]


@njit(cache=True, nogil=True)
def _end(time: int, duration: int, cell_end: int, timed: bool, reset: int) -> tuple[int, int]:
    """The end and the reason of a window that opens at `time`, unless another trigger fires first."""
    if timed and duration <= reset - time % reset:
        return (time + duration if time <= _GREATEST - duration else _GREATEST), _TIME
    return cell_end, _RESET


@njit(cache=True, nogil=True)
def _cells(offsets: Ints, times: Ints, reset: int) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Per row, True if it is the first of its cell, and the cell's end (saturated)."""
    new_cell, cell_end = np.zeros(times.size, np.bool_), np.empty(times.size, np.int64)
    for key in range(offsets.size - 1):
        cell = 0
        for row in range(offsets[key], offsets[key + 1]):
            # divide only for the first row of a cell
            if row == offsets[key] or times[row] >= cell_end[row - 1]:
                cell_of_row = times[row] // reset
                new_cell[row] = row == offsets[key] or cell_of_row != cell
                cell = cell_of_row
                cell_end[row] = (cell_of_row + 1) * reset if cell_of_row < _GREATEST // reset else _GREATEST
            else:
                cell_end[row] = cell_end[row - 1]
    return new_cell, cell_end


def cell_ends(times: Ints, reset: int) -> Ints:
    """Per time, the last instant of its cell; the greatest int64 where a cell reaches beyond it."""
    beyond = times // reset >= _GREATEST // reset
    with np.errstate(over="ignore"):
        return np.where(beyond, _GREATEST, (times // reset + 1) * reset - 1)


def in_time(times: Ints, cuts: Cuts, min_end: Ints | None) -> Flags:
    """Flags of the rows that are not late: the last instant of their cell is at or after their `min_end`."""
    if min_end is None or not np.any(min_end > times):
        return np.ones(times.size, np.bool_)
    return cell_ends(times, cuts.reset) >= min_end


def first_of_deltas(offsets: Ints, times: Ints, cuts: Cuts, deltas: Ints, counted: Flags) -> Flags:
    """Flags of the `counted` rows that are the first of their delta in their cell; `deltas` numbers the ids from 0."""
    cell = np.cumsum(_cells(offsets, times, cuts.reset)[0])[counted]
    # numbers of cells and of ids stay below the number of rows, so the product stays below 2**63
    first = np.unique(cell * np.int64(deltas.max(initial=0) + 1) + deltas[counted], return_index=True)[1]
    rows = np.flatnonzero(counted)[first]
    chosen = np.zeros(times.size, np.bool_)
    chosen[rows] = True
    return chosen


@dataclass(frozen=True)
class Cutting:
    """The reasons and rates by which adaptive windows were cut.

    Args:
        reason: the reason of its end, a place in `REASONS`.
        rate: the rate at its first row, in rows per `rate_unit`.
        rate_window: the ticks over which that was measured; 0 at the first row of a cell.
    """

    reason: Ints
    rate: Floats
    rate_window: Ints

    def select(self, windows: slice | Flags) -> Cutting:
        """The same for some of the windows."""
        return Cutting(self.reason[windows], self.rate[windows], self.rate_window[windows])


def adaptive_spans(
    *, offsets: Ints, times: Ints, sizes: Ints, cuts: Cuts, counted: Flags, state: CutState | None = None
) -> tuple[WindowSpans, Spans, Cutting]:
    """All adaptive windows of many keys, the spans of the counted rows, and the cutting of each window.

    Args:
        offsets: rows `offsets[k] .. offsets[k+1]-1` belong to key k.
        times: in ticks, ascending within a key; rows of one time in the order in which they count.
        sizes: bytes of each row.
        counted: flags of the rows that count; the others are left out.
        state: the state of cutting before the first key's rows, if it had earlier rows. A window that is open in it is
            the first window, without its earlier rows.
    """
    if not counted.all():
        n_counted = np.concatenate(([0], np.cumsum(counted)))
        offsets, times, sizes = n_counted[offsets], times[counted], sizes[counted]
    new_cell, cell_end = _cells(offsets, times, cuts.reset)
    of_first = int(offsets[1]) if offsets.size > 1 else 0
    if state is not None and of_first and int(times[0]) // cuts.reset == state.cell:
        new_cell[0] = False
        (number, start, end, *cutting), _ = _run(new_cell, cell_end, times, sizes, cuts, state)
    else:
        (number, start, end, *cutting), _ = _run(new_cell, cell_end, times, sizes, cuts, None)
    # a window that was open may have closed before the first row
    opens = np.searchsorted(number, np.arange(start.size))
    group = np.searchsorted(offsets, opens, side="right") - 1
    return WindowSpans(group, start, end), Spans(number, number + 1, start.size), Cutting(*cutting)


def state_before(times: Ints, sizes: Ints, cuts: Cuts, cell: int, state: CutState | None) -> CutState | None:
    """The state of cutting after rows of one cell that follow the rows of `state` (None: no rows before). None if the
    cell has no row at all."""
    if not times.size:
        return state
    new_cell = np.zeros(times.size, np.bool_)
    new_cell[0] = state is None
    cell_end = np.full(times.size, min((cell + 1) * cuts.reset, _GREATEST))
    (_, start, *_), (whole, samples) = _run(new_cell, cell_end, times, sizes, cuts, state)
    near = times if state is None else np.concatenate((state.near, times))
    # later rows are not before the last one
    past = int(times[-1]) - cuts.measured_over
    near = near[near > past] if past >= -_GREATEST else near
    earlier = 0 if state is None else state.windows
    return CutState(cell, earlier + start.size - int(whole[_OPEN]), whole, samples, near)


def _run(
    new_cell: Flags, cell_end: Ints, times: Ints, sizes: Ints, cuts: Cuts, state: CutState | None
) -> tuple[tuple[Any, ...], tuple[Ints, Floats]]:
    """The results of `_cut`, and the state after the last row."""
    kinds = np.array([REASONS.index(trigger.reason) for trigger in cuts.triggers], np.int64)
    limits = np.array([_limit(trigger, cuts) for trigger in cuts.triggers], np.int64)
    shares = np.array([trigger.threshold for trigger in cuts.triggers], np.float64)
    bounds = (cuts.target, cuts.shortest, cuts.longest, cuts.measured_over, cuts.rate_unit, cuts.reset)
    whole, samples = _fresh() if state is None else (state.whole.copy(), state.samples.copy())
    near = np.zeros(0, np.int64) if state is None else state.near
    cut_windows = _cut(new_cell, cell_end, times, sizes, kinds, limits, shares, bounds, whole, samples, near)
    return cut_windows, (whole, samples)


def _limit(trigger: Trigger, cuts: Cuts) -> int:
    """The least number of rows or bytes at which a trigger fires; 0 for triggers by time or by a change of rate."""
    if trigger.reason == "memory_pressure":
        return min(math.ceil(as_written(trigger.threshold) * cuts.memory_bytes), _GREATEST)
    return min(math.ceil(trigger.threshold), _GREATEST) if trigger.reason in ("count", "size") else 0
