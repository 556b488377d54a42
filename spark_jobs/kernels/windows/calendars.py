"""Calendar windows: local days, weeks, months, quarters or years of a time zone, half open.

A window runs from one local midnight to another, so days around a change of clocks have 23 or 25 hours. Where midnight
is skipped by the clocks the day starts at the instant of the change; where it comes twice, at the second time, so
that a window holds exactly the instants with its local dates.

Periods of several units are aligned: days and weeks to Monday 1969-12-29, months, quarters and years to year 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from spark_jobs.errors import ParameterError

from .shapes import Found, Shape
from .spans import Windows, settle

Ints = npt.NDArray[np.int64]
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LONGEST_DAYS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
_DAY = 86_400_000_000
UNITS = (*_DAYS, *_MONTHS)
_ORIGIN = date(1969, 12, 29).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Calendar(Shape):
    """Windows of `count` units of the calendar of `zone`; times are microseconds since 1970 in UTC."""

    count: int
    unit: str
    zone: str = "UTC"

    @property
    def halo(self) -> tuple[int, int]:
        """A period at its longest: two days allow for what clocks do at both of its ends."""
        return (self.count * _LONGEST_DAYS[self.unit] + 2) * _DAY, 0

    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> Found:
        """Each row is in the window over its time, unless the window's last instant is before its `min_end`."""
        bounds = self._bounds(times)
        period = np.searchsorted(bounds, times, side="right") - 1
        group = np.repeat(np.arange(offsets.size - 1, dtype=np.int64), np.diff(offsets))
        opens = np.ones(times.size, np.bool_)
        opens[1:] = (group[1:] != group[:-1]) | (period[1:] != period[:-1])
        number = np.cumsum(opens, dtype=np.int64) - 1
        windows = Windows(group[opens], bounds[period[opens]], bounds[period[opens] + 1])
        past = number + 1
        if min_end is not None:
            past = np.where(windows.end[number] - 1 >= min_end, past, number)
        return settle(windows, number, past)

    def last_instants(self, windows: Windows) -> Ints | None:
        """Half open: the instant before the end."""
        return windows.end - 1

    def latest_instants(self, times: Ints) -> Ints | None:
        """The last instant of the window over each time."""
        bounds = self._bounds(times)
        return bounds[np.searchsorted(bounds, times, side="right")] - 1

    def _bounds(self, times: Ints) -> Ints:
        """The starts of all periods over these times, and the one after."""
        if not times.size:
            return np.zeros(1, np.int64)
        zone = ZoneInfo(self.zone)
        period, last = (self._period(_local_date(int(time), zone)) for time in (times.min(), times.max()))
        bounds = [_midnight(self._start(number), zone) for number in range(period, last + 2)]
        return np.array(bounds, np.int64)

    def _period(self, day: date) -> int:
        if self.unit in _DAYS:
            return (day.toordinal() - _ORIGIN) // (self.count * _DAYS[self.unit])
        return (day.year * 12 + day.month - 1) // (self.count * _MONTHS[self.unit])

    def _start(self, period: int) -> date:
        if self.unit in _DAYS:
            return date.fromordinal(_ORIGIN + period * self.count * _DAYS[self.unit])
        months = period * self.count * _MONTHS[self.unit]
        return date(months // 12, months % 12 + 1, 1)


def _local_date(time: int, zone: ZoneInfo) -> date:
    try:
        return (_EPOCH + time * _MICROSECOND).astimezone(zone).date()
    except OverflowError:
        raise ParameterError(
            expected="times of calendar windows within the years 1 to 9999",
            found=f"{time} microseconds since 1970",
            consequence="no window was computed",
            parameter="time",
            value=time,
        ) from None


def _midnight(day: date, zone: ZoneInfo) -> int:
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    return max((midnight.replace(fold=fold) - _EPOCH) // _MICROSECOND for fold in (0, 1))
