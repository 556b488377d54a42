"""Instants and dates from text: compiled ISO-8601, epoch numbers, strptime patterns, and local times by their zone.

ISO grammar: `YYYY-MM-DD`, then optionally `T` or a blank, `hh:mm`, optionally `:ss` and `.` or `,` with 1 to 9 digits,
then optionally `Z`, `UTC`, `+hh:mm`, `+hhmm` or `+hh`, with or without a blank before it. Epochs are numbers with the
grammar of floats, read exactly. Digits beyond the microsecond are cut off, as the tick of all timelines is one
microsecond. Instants before year 1 or after year 9999 (UTC) are refused, and so is second 60.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from zoneinfo import ZoneInfo

import numba
import numpy as np

from spark_jobs.engine.records.numbers import BAD, READ, Bytes, Flags, Ints, read_exponent, trim

DAY_US = 86_400_000_000
LEAST_US, GREATEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999."""
EPOCH_POWERS = {"epoch_s": 6, "epoch_ms": 3, "epoch_us": 0, "epoch_ns": -3}
"""Microseconds in a unit, as a power of ten."""
LOCAL, AMBIGUOUS, SKIPPED = 3, 4, 5
"""Outcomes of reading a time, in addition to those of `numbers`: a local time without an offset; a local time that
occurs twice in its zone; a local time that the zone's clocks skip."""
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], np.int64)
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_HOUR_US = 3_600_000_000
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  local times are naive on purpose


@numba.njit(cache=True, nogil=True)
def read_instants(buf: Bytes, starts: Ints, ends: Ints, live: Flags, values: Ints, how: Bytes) -> None:
    """Read the ISO times that are `live` into `values` (microseconds since 1970) and `how`: `READ` (with an offset),
    `LOCAL` (without one) or `BAD`."""
    for i in range(len(starts)):
        if live[i]:
            values[i], how[i] = _read_instant(buf, starts[i], ends[i])


@numba.njit(cache=True, nogil=True)
def read_dates(buf: Bytes, starts: Ints, ends: Ints, live: Flags, values: Ints, how: Bytes) -> None:
    """Read the dates `YYYY-MM-DD` that are `live` into `values`, as local midnights in microseconds since 1970, and
    `how`: `LOCAL` or `BAD`."""
    for i in range(len(starts)):
        if live[i]:
            start, end = trim(buf, starts[i], ends[i])
            days = _read_days(buf, start, end)
            good = days != _NO_DAYS and end - start == 10
            values[i], how[i] = (days * DAY_US, LOCAL) if good else (0, BAD)


@numba.njit(cache=True, nogil=True)
def read_epochs(buf: Bytes, starts: Ints, ends: Ints, live: Flags, power: int, values: Ints, how: Bytes) -> None:
    """Read the numbers of a unit since 1970 that are `live` into `values`, as microseconds, rounded down, and `how`:
    `READ` or `BAD`. `power`: the unit, see `EPOCH_POWERS`."""
    for i in range(len(starts)):
        if live[i]:
            values[i], how[i] = _read_epoch(buf, starts[i], ends[i], power)


@numba.njit(cache=True, nogil=True)
def _read_epoch(buf: Bytes, start: int, end: int, power: int) -> tuple[int, int]:
    pos, end = trim(buf, start, end)
    negative = pos < end and buf[pos] == 45
    if negative or (pos < end and buf[pos] == 43):
        pos += 1
    first, digits, leading, point = pos, 0, 0, -1
    while pos < end and (48 <= buf[pos] <= 57 or (buf[pos] == 46 and point < 0)):
        if buf[pos] == 46:
            point = digits
        else:
            digits += 1
            leading += 1 if buf[pos] == 48 and leading == digits - 1 else 0
        pos += 1
    stop = pos
    if digits == 0:
        return 0, BAD
    if pos < end and (buf[pos] == 101 or buf[pos] == 69):
        exponent, pos = read_exponent(buf, pos + 1, end)
        power += exponent
    if pos != end:
        return 0, BAD
    if leading == digits:
        return 0, READ
    # the number of digits, leading zeros included, that make whole microseconds
    whole = (digits if point < 0 else point) + power
    if whole - leading > _WHOLE_DIGITS:
        return 0, BAD
    value, seen, cut = 0, 0, False
    for pos in range(first, stop):
        if buf[pos] == 46:
            continue
        seen += 1
        if seen <= whole:
            value = value * 10 + int(buf[pos]) - 48
        else:
            cut = cut or buf[pos] != 48
    for _ in range(whole - seen):
        value *= 10
    value = (-value - (1 if cut else 0)) if negative else value
    return (value, READ) if LEAST_US <= value <= GREATEST_US else (0, BAD)


_NO_DAYS = -10_000_000
_WHOLE_DIGITS = 18
"""The most digits of an instant of the years 1 to 9999 in microseconds."""


@numba.njit(cache=True, nogil=True)
def _digits(buf: Bytes, pos: int, count: int, end: int) -> int:
    """The number in the `count` digits at `pos`; -1 if not all of these bytes are digits."""
    if pos + count > end:
        return -1
    value = 0
    for index in range(count):
        digit = int(buf[pos + index]) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@numba.njit(cache=True, nogil=True)
def _read_days(buf: Bytes, pos: int, end: int) -> int:
    """Days since 1970 of the `YYYY-MM-DD` at `pos`, or `_NO_DAYS`."""
    if end - pos < 10 or buf[pos + 4] != 45 or buf[pos + 7] != 45:
        return _NO_DAYS
    year, month, day = _digits(buf, pos, 4, end), _digits(buf, pos + 5, 2, end), _digits(buf, pos + 8, 2, end)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return _NO_DAYS
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if day > _MONTH_DAYS[month - 1] + (1 if leap and month == 2 else 0):
        return _NO_DAYS
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + _DAYS_BEFORE[month - 1] + (1 if leap and month > 2 else 0) + day - 1 - 719_162


@numba.njit(cache=True, nogil=True)
def _read_instant(buf: Bytes, start: int, end: int) -> tuple[int, int]:
    pos, end = trim(buf, start, end)
    days = _read_days(buf, pos, end)
    if days == _NO_DAYS:
        return 0, BAD
    value = days * DAY_US
    pos += 10
    if pos == end:
        return value, LOCAL
    if (buf[pos] != 84 and buf[pos] != 32) or pos + 6 > end or buf[pos + 3] != 58:
        return 0, BAD
    hour, minute, second = _digits(buf, pos + 1, 2, end), _digits(buf, pos + 4, 2, end), 0
    pos += 6
    if pos < end and buf[pos] == 58:
        second = _digits(buf, pos + 1, 2, end)
        pos += 3
        if pos < end and (buf[pos] == 46 or buf[pos] == 44):
            micros, pos = _read_fraction(buf, pos + 1, end)
            if pos < 0:
                return 0, BAD
            value += micros
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, BAD
    value += ((hour * 60 + minute) * 60 + second) * 1_000_000
    if pos >= end:
        return value, LOCAL
    minutes, good = _read_offset(buf, pos, end)
    value -= minutes * 60_000_000
    return (value, READ) if good and LEAST_US <= value <= GREATEST_US else (0, BAD)


@numba.njit(cache=True, nogil=True)
def _read_fraction(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """`(microseconds, position after them)` of the 1 to 9 digits at `pos`; position -1 if there are none, or more."""
    first, micros = pos, 0
    while pos < end and 48 <= buf[pos] <= 57:
        if pos - first < 6:
            micros = micros * 10 + int(buf[pos]) - 48
        pos += 1
    for _ in range(6 - min(pos - first, 6)):
        micros *= 10
    return micros, (pos if 1 <= pos - first <= 9 else -1)


@numba.njit(cache=True, nogil=True)
def _read_offset(buf: Bytes, pos: int, end: int) -> tuple[int, bool]:
    """The offset in `[pos, end)` in minutes east of UTC, and True; `(0, False)` if the text is not an offset."""
    pos += 1 if buf[pos] == 32 else 0
    if end == pos + 3 and buf[pos] == 85 and buf[pos + 1] == 84 and buf[pos + 2] == 67:
        return 0, True
    if pos == end:
        return 0, False
    if buf[pos] == 90:
        return 0, end == pos + 1
    if buf[pos] != 43 and buf[pos] != 45:
        return 0, False
    hours, minutes, n_left = _digits(buf, pos + 1, 2, end), 0, end - pos - 3
    if n_left == 3 and buf[pos + 3] == 58:
        minutes = _digits(buf, pos + 4, 2, end)
    elif n_left == 2:
        minutes = _digits(buf, pos + 3, 2, end)
    elif n_left != 0:
        return 0, False
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return 0, False
    total = hours * 60 + minutes
    return (-total if buf[pos] == 45 else total), True


def read_pattern(text: str, pattern: str) -> tuple[int, int]:
    """`(microseconds, how)` of one text in a strptime pattern. `how` is `READ` with an offset, `LOCAL` without one, or
    `BAD`."""
    try:
        time = dt.datetime.strptime(text.strip(" \t"), pattern)  # noqa: DTZ007  a pattern may have no zone
    except (ValueError, OverflowError):
        return 0, BAD
    offset = time.utcoffset() or dt.timedelta()
    value = (time.replace(tzinfo=None) - _EPOCH - offset) // dt.timedelta(microseconds=1)
    if not LEAST_US <= value <= GREATEST_US:
        return 0, BAD
    return value, LOCAL if time.tzinfo is None else READ


def local_to_utc(local_us: int, zone: str) -> tuple[int, int, int]:
    """`(earliest, latest, how)`: the instants, in microseconds, that a local time of `zone` may mean, and `READ`,
    `AMBIGUOUS` or `SKIPPED`.

    A time that the clocks skip is read with the offset before the change and with the offset after it.
    """
    one, other = (local_us - _offset_us(local_us, zone, fold) for fold in (0, 1))
    if one == other:
        return one, one, READ
    return min(one, other), max(one, other), AMBIGUOUS if one < other else SKIPPED


def landed_instant(time_us: int, how: int, *, zone: str, dst: str, is_date: bool) -> int | None:
    """The instant that a column of times gets for one value, in microseconds; None if the value becomes a reject.

    Args:
        time_us, how: the time as it was read and the way it was read, as `read_pattern` returns them.
        zone: the time zone of local times.
        dst: `earliest`, `latest` or `refuse`: the instant of a local time that `zone` has twice or skips.
        is_date: True if the column has dates, which begin at local midnight.
    """
    if how == BAD:
        return None
    if is_date:
        time_us, how = time_us - time_us % DAY_US, LOCAL
    if how == READ:
        return time_us
    earliest, latest, change = local_to_utc(time_us, zone)
    refused = dst == "refuse" and change in (AMBIGUOUS, SKIPPED)
    return None if refused else latest if dst == "latest" else earliest


def resolve_local(values: np.ndarray, local: np.ndarray, zone: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The results of `local_to_utc` for the `values` flagged by `local`; for others the value itself and `READ`. Times
    are int64 microseconds.

    Offsets change seldom, so all times of an hour without a change are resolved at once.
    """
    earliest, latest, how = values.copy(), values.copy(), np.full(len(values), READ, np.uint8)
    if zone == "UTC" or not local.any():
        return earliest, latest, how
    rows = np.flatnonzero(local)
    hours, inverse = np.unique(values[rows] // _HOUR_US, return_inverse=True)
    offsets = [_hour_offset(int(hour), zone) for hour in hours]
    shift = np.array([offset if offset is not None else 0 for offset in offsets], np.int64)
    steady = np.array([offset is not None for offset in offsets], bool)[inverse]
    earliest[rows] = latest[rows] = values[rows] - shift[inverse]
    for row in rows[~steady]:
        earliest[row], latest[row], how[row] = local_to_utc(int(values[row]), zone)
    return earliest, latest, how


@lru_cache(maxsize=1 << 16)
def _hour_offset(hour: int, zone: str) -> int | None:
    """The zone's offset in microseconds during a local hour; None if the offset changes in that hour."""
    first = hour * _HOUR_US
    ends = (first, min(first + _HOUR_US, GREATEST_US))
    offsets = {at - instant for at in ends for instant in local_to_utc(at, zone)[:2]}
    return offsets.pop() if len(offsets) == 1 else None


def _offset_us(local_us: int, zone: str, fold: int) -> int:
    time = (_EPOCH + dt.timedelta(microseconds=local_us)).replace(tzinfo=_zone(zone), fold=fold)
    return (time.utcoffset() or dt.timedelta()) // dt.timedelta(microseconds=1)


@lru_cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
