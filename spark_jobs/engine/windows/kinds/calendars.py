"""Calendar windows: local days, weeks, months, quarters or years of a time zone, half open.

A window runs from one local midnight to another and contains exactly the instants with its local dates. So days around
a change of clocks have 23 or 25 hours. Where clocks skip midnight, the day starts at the instant of the change. Where
midnight occurs twice, the day starts at the first one (Havana: an hour of the day itself is repeated), or at the second
if clocks went back to the day before. (The few zones whose clocks went back from a minute past midnight are an
exception: that minute is left in the day before.)

Periods of several units are aligned: days and weeks to Monday 1969-12-29, months, quarters and years to year 0.
Times are in the years 1 to 9999 of UTC; bounds beyond them saturate at their first and last microsecond, also where
midnight of a zone's own first or last date lies beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.calendar.midnights import FIRST_US, LAST_US, local_date, midnight
from spark_jobs.engine.windows.kinds.kind import Bounds, SpanKind, SpansFound
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.spans import WindowSpans, settle
from spark_jobs.errors import ParameterError

Ints = npt.NDArray[np.int64]
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LONGEST_DAYS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
_DAY = 86_400_000_000
UNITS = (*_DAYS, *_MONTHS)
_ORIGIN = date(1969, 12, 29).toordinal()
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Calendar(SpanKind):
    """Windows of `count` units of the calendar of `zone`; times are microseconds since 1970 in UTC."""

    count: int
    unit: str
    zone: str = "UTC"

    @property
    def longest(self) -> int:
        """An upper bound of a period's length in microseconds: clocks have gone back by as much as a day."""
        return (self.count * _LONGEST_DAYS[self.unit] + 1) * _DAY

    @property
    def halo(self) -> tuple[int, int]:
        """The longest period, less a microsecond, before a row; nothing after it."""
        return self.longest - 1, 0

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The first and the last instant of the window."""
        return start, end - 1

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """Each row is in the window over its time, unless the window's last instant is before its `min_end`."""
        bounds = self._bounds(times)
        period = _places(bounds, times)
        group = np.repeat(np.arange(offsets.size - 1, dtype=np.int64), np.diff(offsets))
        opens = np.ones(times.size, np.bool_)
        opens[1:] = (group[1:] != group[:-1]) | (period[1:] != period[:-1])
        number = np.cumsum(opens, dtype=np.int64) - 1
        windows = WindowSpans(group[opens], bounds[period[opens]], bounds[period[opens] + 1])
        past = number + 1
        if min_end is not None:
            past = np.where(_last_instants(windows.end)[number] >= min_end, past, number)
        return settle(windows, number, past)

    def window_instants(self, windows: WindowSpans) -> Ints:
        """The instant before each window's end, as windows are half open."""
        return _last_instants(windows.end)

    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """True for bounds that are empty, or further apart than the longest period."""
        return (end <= start) | (end - start > self.longest)

    def last_instants(self, times: Ints) -> Bounds:
        """The last instant of the period over each time, twice: it is the first and the last window."""
        if not times.size:
            return times, times
        bounds = self._bounds(times)
        last = _last_instants(bounds[_places(bounds, times) + 1])
        return last, last

    def _bounds(self, times: Ints) -> Ints:
        """The starts of the periods over these times and of the periods after them, ascending. Periods between are
        included only if times lie dense."""
        if not times.size:
            return np.zeros(1, np.int64)
        zone = ZoneInfo(self.zone)
        first, last = (self._period(_local_date(int(time), zone)) for time in (times.min(), times.max()))
        over = range(first, last + 1) if last - first <= times.size else self._periods_near(times)
        # and one period before: some zones have instants before the calendar's first date
        numbers = {first - 1, *over, *(period + 1 for period in over)}
        return np.unique([self._start(number, zone) for number in numbers]).astype(np.int64)

    def _periods_near(self, times: Ints) -> set[int]:
        """The numbers of the periods over these times, and of some others: a local date is at most a day from the date
        in UTC."""
        days = np.unique(times // _DAY) + _EPOCH
        near = np.clip(np.concatenate([days - 1, days, days + 1]), 1, date.max.toordinal())
        return {self._period(date.fromordinal(day)) for day in np.unique(near).tolist()}

    def _period(self, day: date) -> int:
        if self.unit in _DAYS:
            return (day.toordinal() - _ORIGIN) // (self.count * _DAYS[self.unit])
        return (day.year * 12 + day.month - 1) // (self.count * _MONTHS[self.unit])

    def _start(self, period: int, zone: ZoneInfo) -> int:
        if self.unit in _DAYS:
            ordinal = _ORIGIN + period * self.count * _DAYS[self.unit]
            in_range = 1 <= ordinal <= date.max.toordinal()
            day = date.fromordinal(ordinal) if in_range else None
        else:
            year, month = divmod(period * self.count * _MONTHS[self.unit], 12)
            day = date(year, month + 1, 1) if 1 <= year <= date.max.year else None
        if day is None:
            return FIRST_US if period <= self._period(date.min) else LAST_US
        return min(max(midnight(day, zone), FIRST_US), LAST_US)


def _last_instants(ends: Ints) -> Ints:
    """The last instants of periods with these ends. The last instant of the years 1 to 9999 is in the period that ends
    there."""
    return np.where(ends == LAST_US, LAST_US, ends - 1)


def _places(bounds: Ints, times: Ints) -> Ints:
    """Per time, the place of its period's start in `bounds`; the last bound is in the period that ends there."""
    return np.minimum(np.searchsorted(bounds, times, side="right") - 1, bounds.size - 2)


def _local_date(time: int, zone: ZoneInfo) -> date:
    """The local date at an instant; see `midnights.local_date`. Raises ParameterError beyond the years 1 to 9999."""
    if not FIRST_US <= time <= LAST_US:
        raise ParameterError(
            expected="times of calendar windows within the years 1 to 9999",
            found=f"{time} microseconds since 1970",
            consequence="no window was computed",
            parameter="time",
            value=time,
        )
    return local_date(time, zone)
