"""The starts of a source's drops: by a fixed length, or by the calendar of a time zone.

Drop `n` is `[start(n), start(n + 1))`, so drops have no gaps and no overlaps, also where clocks change. All times are
int64 microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from spark_jobs.engine.calendar.midnights import FIRST_US, LAST_US, local_date, midnight

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

DAYS = {"day": 1, "week": 7}
"""Lengths in days of the calendar units whose drops may begin on any day."""
MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""Lengths in months of the calendar units whose drops begin on the first day of a month."""
_DAY_US = 86_400_000_000
_DENSE = 4
"""Starts are computed for a whole range of drops if it has fewer than this many drops for each one that is needed."""


@dataclass(frozen=True, slots=True)
class Drops:
    """The drops of a source, numbered from 0 at `start_us`; numbers before it are negative.

    Without `calendar` each drop is `every_us` microseconds long. `calendar` is a count and a unit: a drop is so many
    units of the calendar of `timezone`, from one local midnight to another, and `every_us` is only its approximate
    length. `start_us` is then such a midnight: of the first day of a month if the unit is a month or longer.
    """

    start_us: int
    every_us: int
    calendar: tuple[int, str] | None = None
    timezone: str = "UTC"

    def start(self, number: int) -> int:
        """The start of a drop; the first or last instant of the years 1 to 9999 where the calendar has no such day."""
        if self.calendar is None:
            return self.start_us + number * self.every_us
        return _calendar_start(self.start_us, self.calendar, self.timezone, number)

    def day(self, number: int) -> date | None:
        """The calendar day on which a drop of the calendar starts, even if the zone skipped that day; None beyond the
        years 1 to 9999."""
        assert self.calendar is not None
        return _calendar_day(local_date(self.start_us, ZoneInfo(self.timezone)), self.calendar, number)

    def number_at(self, time_us: int) -> int:
        """The number of the drop that contains a time."""
        if self.calendar is None:
            return (time_us - self.start_us) // self.every_us
        time_us = min(max(time_us, FIRST_US), LAST_US)
        count, unit = self.calendar
        zone = ZoneInfo(self.timezone)
        day, first = local_date(time_us, zone), local_date(self.start_us, zone)
        if unit in DAYS:
            number = (day.toordinal() - first.toordinal()) // (count * DAYS[unit])
        else:
            number = (_month(day) - _month(first)) // (count * MONTHS[unit])
        # where clocks went back over midnight, the local date at the time may begin only later
        return number - 1 if self.start(number) > time_us else number

    def starts(self, numbers: Ints) -> Ints:
        """The start of the drop of each number; see `start`."""
        if self.calendar is None:
            return self.start_us + numbers * self.every_us
        import numpy as np

        if not numbers.size:
            return numbers.astype(np.int64)
        least, greatest = int(numbers.min()), int(numbers.max())
        if greatest - least < _DENSE * numbers.size:
            table = np.array([self.start(number) for number in range(least, greatest + 1)], np.int64)
            return table[numbers - least]
        distinct, place = np.unique(numbers, return_inverse=True)
        return np.array([self.start(number) for number in distinct.tolist()], np.int64)[place]

    def numbers_at(self, times: Ints) -> Ints:
        """The number of the drop that contains each time; see `number_at`."""
        if self.calendar is None:
            return (times - self.start_us) // self.every_us
        import numpy as np

        if not times.size:
            return times.astype(np.int64)
        near = np.array(sorted(self._near(times)), np.int64)
        bounds = np.array([self.start(number) for number in near.tolist()], np.int64)
        return near[np.maximum(np.searchsorted(bounds, times, side="right") - 1, 0)]

    def _near(self, times: Ints) -> Iterable[int]:
        """The numbers of the drops that contain these times, and of some others."""
        import numpy as np

        first, last = (self.number_at(int(time)) for time in (times.min(), times.max()))
        if last - first < _DENSE * times.size:
            return range(first, last + 1)
        days = np.unique(times // _DAY_US).tolist()
        ends = [self.number_at(day * _DAY_US + beside) for day in days for beside in (0, _DAY_US - 1)]
        return {number for low, high in zip(ends[::2], ends[1::2], strict=True) for number in range(low, high + 1)}


UTC_DAYS = Drops(0, _DAY_US)
"""The days since 1970."""


@lru_cache(maxsize=1 << 16)
def _calendar_start(start_us: int, calendar: tuple[int, str], timezone: str, number: int) -> int:
    zone = ZoneInfo(timezone)
    day = _calendar_day(local_date(start_us, zone), calendar, number)
    if day is None:
        return FIRST_US if number < 0 else LAST_US
    return min(max(midnight(day, zone), FIRST_US), LAST_US)


def _calendar_day(first: date, calendar: tuple[int, str], number: int) -> date | None:
    """The day on which drop `number` starts if drop 0 starts on `first`; None beyond the years 1 to 9999."""
    count, unit = calendar
    if unit in DAYS:
        ordinal = first.toordinal() + number * count * DAYS[unit]
        return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else None
    year, month = divmod(_month(first) + number * count * MONTHS[unit], 12)
    return date(year, month + 1, 1) if 1 <= year <= date.max.year else None


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1
