"""Local dates and midnights of a time zone, as instants: int64 microseconds since 1970-01-01T00:00:00Z."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_US, LAST_US = (
    (end - _EPOCH) // _MICROSECOND for end in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)
"""The first and the last instant of the years 1 to 9999 in UTC."""


def local_date(time_us: int, zone: ZoneInfo) -> date:
    """The local date at an instant from FIRST_US to LAST_US; `date.min` or `date.max` where the zone's date would lie
    beyond the years 1 to 9999."""
    try:
        return (_EPOCH + time_us * _MICROSECOND).astimezone(zone).date()
    except OverflowError:
        return date.min if time_us < 0 else date.max


def midnight(day: date, zone: ZoneInfo) -> int:
    """The instant from which on local dates are `day` or later, also where clocks skip or repeat midnight."""
    clock = datetime(day.year, day.month, day.day, tzinfo=zone)
    early, late = sorted((clock.replace(fold=fold) - _EPOCH) // _MICROSECOND for fold in (0, 1))
    if early == late or local_date(late - 1, zone) < day:
        return late
    # midnight occurs twice on the day itself, or clocks skipped it in a change from some time before it
    return early + bisect_left(range(early, late), day, key=lambda time: local_date(time, zone))
