"""Early results of windows: after which rows, and at which instants, triggers let a window emit what it has so far.

The rows of a window count in the order of event time. An *emission* is the result of the first `upto` of them. Triggers
are checked in list order; the first that fires names the emission. All times are event times, so that the same rows
give the same emissions in any run.

    time(interval)            at the instants start + n * interval, before a row at or after that instant is added
    count(rows)               after a row: that many rows were added since the emission before
    size(bytes)               after a row: the rows since the emission before have that many bytes, or more
    rate_change(share, over)  after a row: the rate changed by more than `share`, see `cuts.has_changed`
    a trigger of a team       after each row that it flags

An early emission has at least one row more than the one before, so `time` emits nothing where no row came. The rate at
a row is the number of earlier rows of the window less than `over` before it, divided by `over` or by the time since the
window's first row, if that is shorter. The last emission of each window has the reason `end` and all rows: it is the
window's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.windows.kinds.cuts import REASONS, Trigger, has_changed
from spark_jobs.engine.windows.kinds.own_trigger import OwnTrigger

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
END = "end"
"""The reason of each window's last emission."""
EARLY_REASONS = ("time", "count", "size", "rate_change")
"""The reasons of early emissions that ship. `memory_pressure` is not among them: see decision 0300."""
_TIME, _COUNT, _SIZE, _RATE_CHANGE = (REASONS.index(reason) for reason in EARLY_REASONS)
_OF_TEAM = len(REASONS)
_SAMPLES = 15


@dataclass(frozen=True)
class Emissions:
    """Emissions in the order (window, number); one element an emission in each array.

    Args:
        window: the number of its window.
        upto: the number of the window's rows that it has.
        reason: the place of the trigger that fired among the triggers; their number for the end of the window.
        at: the instant at which it is emitted: that of `time`, the time of the row that fired, or the window's end.
    """

    window: Ints
    upto: Ints
    reason: Ints
    at: Ints

    @classmethod
    def none(cls) -> Emissions:
        """No emissions."""
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass(frozen=True)
class ListedRows:
    """The rows of some windows, window after window, each window's in the order in which they count.

    Args:
        bounds: window w has the rows `bounds[w] .. bounds[w+1]-1`.
        times, sizes: per row, its time in ticks and its bytes.
    """

    bounds: Ints
    times: Ints
    sizes: Ints


@dataclass(frozen=True)
class FiringRules:
    """The triggers by which windows emit early, in list order. `rate_unit`: ticks in the unit of time in which a change
    of rate is measured."""

    triggers: tuple[Trigger | OwnTrigger, ...]
    rate_unit: int

    @property
    def reasons(self) -> list[str]:
        """The texts that `Emissions.reason` numbers."""
        return [*(trigger.reason for trigger in self.triggers), END]

    @property
    def measures_size(self) -> bool:
        """True if some trigger looks at the bytes of rows."""
        return any(trigger.reason == "size" and isinstance(trigger, Trigger) for trigger in self.triggers)

    def fire(
        self, rows: ListedRows, windows: tuple[Ints, Ints, Ints], flags_of: Callable[[OwnTrigger], Flags]
    ) -> Emissions:
        """The emissions of some windows, which are numbered from 0.

        Args:
            windows: the start, the end and the last instant of each.
            flags_of: returns, for a trigger of a team's own, flags of the rows after which it fires.
        """
        built_in = [trigger if isinstance(trigger, Trigger) else None for trigger in self.triggers]
        kinds = np.array([_OF_TEAM if each is None else REASONS.index(each.reason) for each in built_in], np.int64)
        limits = np.array([0 if each is None else int(each.threshold) for each in built_in], np.int64)
        shares = np.array([0.0 if each is None else each.threshold for each in built_in], np.float64)
        interval = max((int(each.threshold) for each in built_in if each and each.reason == "time"), default=0)
        over = max((each.over for each in built_in if each and each.reason == "rate_change"), default=0)
        flags = np.zeros((len(self.triggers), rows.times.size if _OF_TEAM in kinds else 0), np.bool_)
        for place, trigger in enumerate(self.triggers):
            if isinstance(trigger, OwnTrigger):
                flags[place] = flags_of(trigger)
        capacity = windows[0].size + rows.times.size // 8
        while True:
            emitted = np.empty((4, capacity), np.int64)
            measures = (interval, over, self.rate_unit)
            n = _fire(rows.bounds, rows.times, rows.sizes, *windows, kinds, limits, shares, flags, measures, emitted)
            if n <= capacity:
                return Emissions(*(column[:n].copy() for column in emitted))
            capacity = n


@njit(cache=True, nogil=True)
def _fire(
    bounds: Ints,
    times: Ints,
    sizes: Ints,
    starts: Ints,
    ends: Ints,
    last: Ints,
    kinds: Ints,
    limits: Ints,
    shares: Floats,
    flags: Flags,
    measures: tuple[int, int, int],
    emitted: npt.NDArray[np.int64],
) -> int:
    """Write emissions as the rows of `Emissions` into the columns of `emitted`, as far as they fit; return their
    number. `measures`: interval (0: no trigger `time`), the ticks over which the rate is measured (0: no such trigger),
    and the rate's unit."""
    interval, over, unit = measures
    samples = np.zeros(_SAMPLES, np.float64)
    n, end = 0, kinds.size
    timer = 0
    for place in range(kinds.size):
        if kinds[place] == _TIME:
            timer = place
    for window in range(starts.size):
        first, stop, start = bounds[window], bounds[window + 1], starts[window]
        fresh, size, sampled, tail, passed = 0, 0, 0, first, np.uint64(0)
        for row in range(first, stop):
            time = times[row]
            if interval > 0:
                # unsigned: the distance of two int64 may pass int64
                now = (np.uint64(time) - np.uint64(start)) // np.uint64(interval)
                if fresh > 0 and now > passed:
                    _put(emitted, n, window, row - first, timer, start + (np.int64(passed) + 1) * interval)
                    n, fresh, size = n + 1, 0, 0
                passed = now
            if over > 0:
                while np.uint64(time) - np.uint64(times[tail]) >= np.uint64(over):
                    tail += 1
                elapsed = min(np.uint64(time) - np.uint64(times[first]), np.uint64(over))
                samples[sampled % samples.size] = ((row - tail) / float(elapsed) if elapsed > 0 else 0.0) * unit
                sampled += 1
            fresh, size = fresh + 1, size + sizes[row]
            for place in range(kinds.size):
                kind = kinds[place]
                fires = (kind == _COUNT and fresh >= limits[place]) or (kind == _SIZE and size >= limits[place])
                fires = fires or (kind == _RATE_CHANGE and has_changed(samples, sampled, shares[place]))
                if fires or (kind == _OF_TEAM and flags[place, row]):
                    _put(emitted, n, window, row - first + 1, place, time)
                    n, fresh, size = n + 1, 0, 0
                    break
        if interval > 0 and fresh > 0:
            instant = np.uint64(start) + passed * np.uint64(interval)
            if np.uint64(last[window]) - instant >= np.uint64(interval):
                _put(emitted, n, window, stop - first, timer, start + (np.int64(passed) + 1) * interval)
                n += 1
        _put(emitted, n, window, stop - first, end, ends[window])
        n += 1
    return n


@njit(cache=True, nogil=True)
def _put(emitted: npt.NDArray[np.int64], n: int, window: int, upto: int, reason: int, at: int) -> None:
    if n < emitted.shape[1]:
        emitted[0, n], emitted[1, n], emitted[2, n], emitted[3, n] = window, upto, reason, at
