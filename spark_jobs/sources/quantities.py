"""Durations, sizes and instants as people write them in a source file, and as integers inside the program.

Durations and instants are int64 microseconds (instants since 1970-01-01T00:00:00Z), sizes are bytes.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, PositiveInt

from spark_jobs.engine.calendar import MONTHS, midnight
from spark_jobs.model import TICKS_PER_SECOND
from spark_jobs.sources.problems import refuse

SECOND_US = TICKS_PER_SECOND
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

_UNITS = (
    (("us", "µs", "microsecond", "microseconds"), 1),
    (("ms", "millisecond", "milliseconds"), 1_000),
    (("s", "sec", "second", "seconds"), SECOND_US),
    (("m", "min", "minute", "minutes"), MINUTE_US),
    (("h", "hour", "hours"), HOUR_US),
    (("d", "day", "days"), DAY_US),
    (("w", "week", "weeks"), 7 * DAY_US),
)
_UNIT_US = {name: size for names, size in _UNITS for name in names}
CALENDAR_UNITS = ("day", "week", "month", "quarter", "year")
"""Units of the calendar of a time zone; their lengths differ."""
_MOST_PERIODS = 1000
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_PART = re.compile(r"(\d+)\s*([a-zµ]+)\s*")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LONGEST_DURATION_US = 3_652_058 * DAY_US  # the days of the years 1 to 9999: no window can be longer


def parse_duration(value: Any) -> int:
    """`"60 min"`, `"1 day"`, `"1 h 30 min"` as microseconds; refuses a number without a unit."""
    expected = 'a duration with its unit, such as "60 min", "6 hours" or "1 day"'
    text = value.strip().lower() if isinstance(value, str) else ""
    if not re.fullmatch(f"({_PART.pattern})+", text):
        raise refuse(expected, value)
    parts = _PART.findall(text)
    if any(unit not in _UNIT_US for _, unit in parts):
        raise refuse(f"{expected} (units: us, ms, s, min, h, day, week)", value)
    total_us = sum(int(count) * _UNIT_US[unit] for count, unit in parts)
    if total_us > _LONGEST_DURATION_US:
        raise refuse("a duration of less than 10,000 years", value)
    return total_us


def format_duration(duration_us: int) -> str:
    """The shortest text that `parse_duration` reads back as `duration_us`, in one unit."""
    for names, size in reversed(_UNITS):
        if duration_us and duration_us % size == 0:
            count = duration_us // size
            return f"{count} {names[-2] if count == 1 else names[-1]}"
    return "0 seconds"


def parse_size(value: Any) -> int:
    """`"1 MiB"` or a number of bytes as bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _PART.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None or match[2] not in _SIZES or int(match[1]) == 0:
        raise refuse('a size such as "1 MiB", or a number of bytes', value)
    return int(match[1]) * _SIZES[match[2]]


def parse_period(value: Any) -> tuple[int, str]:
    """`"1 month"`, `"2 weeks"` as a count and one of `CALENDAR_UNITS`."""
    match = _PART.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    unit = match[2].removesuffix("s") if match else ""
    if match is None or unit not in CALENDAR_UNITS or not 1 <= int(match[1]) <= _MOST_PERIODS:
        units = ", ".join(CALENDAR_UNITS)
        raise refuse(f'a count from 1 to {_MOST_PERIODS} and a unit ({units}), such as "1 month"', value)
    return int(match[1]), unit


def parse_every(value: Any) -> int | tuple[int, str]:
    """The length of a drop: microseconds, or a count and the unit for months, quarters and years."""
    match = _PART.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is not None and match[2].removesuffix("s") in MONTHS:
        return parse_period(value)
    return _positive_duration(value)


def parse_instant(value: Any) -> int:
    """A date (`2013-01-01`, midnight UTC) or an ISO-8601 time as microseconds; without an offset the time is UTC."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            raise refuse("a date such as 2013-01-01, or an ISO-8601 time", value) from None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if not isinstance(value, dt.datetime):
        raise refuse("a date such as 2013-01-01, or an ISO-8601 time", value)
    return parse_instant_in(value, "UTC")


def parse_instant_in(time: dt.datetime, timezone: str) -> int:
    """A time as microseconds since 1970. A time without an offset is in `timezone`.

    Midnight is then the first instant of its date, even if clocks skip or repeat it.
    """
    if time.tzinfo is None:
        zone = ZoneInfo(timezone)
        if time.time() == dt.time():
            return midnight(time.date(), zone)
        time = time.replace(tzinfo=zone)
    return (time.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)


def local_start(value: Any, timezone: str) -> Any:
    """`value` as an aware time if it is a date or time without an offset, which is in `timezone`; else as it is."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        return value
    try:
        return instant_at(parse_instant_in(value, timezone))
    except OverflowError:
        return value


def instant_at(time_us: int) -> dt.datetime:
    """`time_us` as an aware datetime in UTC; raises OverflowError outside the years 1 to 9999."""
    return _EPOCH + dt.timedelta(microseconds=time_us)


def _positive_duration(value: Any) -> int:
    duration_us = parse_duration(value)
    if duration_us == 0:
        raise refuse("a duration greater than zero", value)
    return duration_us


def _in_any_case(words: Iterable[str]) -> str:
    """A regular expression for one of the words, in letters of any case."""
    return "|".join("".join(f"[{c.upper()}{c}]" if c.isascii() else c for c in word) for word in words)


def _text(pattern: str, *examples: str) -> Any:
    """The JSON Schema of a quantity as people write it."""
    return Annotated[str, Field(pattern=rf"^\s*{pattern}\s*$", json_schema_extra={"examples": [*examples]})]


_DURATION = _text(rf"([0-9]+\s*({_in_any_case(_UNIT_US)})\s*)+", "60 min", "6 hours", "1 h 30 min")
_PERIOD = _text(rf"[0-9]+\s*({_in_any_case(CALENDAR_UNITS)})[Ss]?", "1 month", "2 weeks")
_EVERY = _text(rf"([0-9]+\s*({_in_any_case([*_UNIT_US, *MONTHS])})[Ss]?\s*)+", "1 day", "15 min", "1 month")
_INSTANT = _text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?", "2024-03-01", "2024-03-01T12:00:00Z")
_SIZE = _text(rf"[0-9]+\s*({_in_any_case(_SIZES)})", "1 MiB", "64 kB")

Duration = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=_DURATION)]
"""A duration in microseconds, zero allowed."""
PositiveDuration = Annotated[int, BeforeValidator(_positive_duration, json_schema_input_type=_DURATION)]
"""A duration in microseconds, greater than zero."""
Every = Annotated[int | tuple[int, str], BeforeValidator(parse_every, json_schema_input_type=_EVERY)]
"""The length of a drop: microseconds, or a number of months, quarters or years of the calendar."""
Instant = Annotated[int, BeforeValidator(parse_instant, json_schema_input_type=_INSTANT)]
"""An instant in microseconds since 1970-01-01T00:00:00Z."""
Period = Annotated[tuple[int, str], BeforeValidator(parse_period, json_schema_input_type=_PERIOD)]
"""A number of days, weeks, months, quarters or years of the calendar."""
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=PositiveInt | _SIZE)]
"""A size in bytes, greater than zero."""
