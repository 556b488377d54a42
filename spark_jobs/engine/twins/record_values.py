"""The slow, obvious twin of `values`: one value of one column after another."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from spark_jobs.engine.records import times
from spark_jobs.engine.records.spec import ColumnSpec
from spark_jobs.engine.records.tokens import LITERAL, NESTED, NULL, TEXT

_INT = re.compile(r"([+-]?[0-9]+)(\.0*)?")
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?( ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?)?"
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  local times are naive on purpose


class Broken(Exception):
    """A value breaks a rule; the message is the rule's name."""


def read_value(column: ColumnSpec, kind: int, text: str) -> tuple[Any, int | None, str | None]:
    """`(value, instant, note)` of a cell. Raises Broken with the rule that the cell breaks."""
    if kind == NULL or (kind == TEXT and text in column.null_values):
        return None, None, None
    if kind == NESTED:
        raise Broken("nested_value")
    if column.type in ("timestamp", "date"):
        return _time(column, text.strip(" \t"))
    if kind == TEXT and column.type in ("int", "float", "decimal"):
        text = _plain_number(column, text)
    if column.digits is not None:
        return _decimal(text.strip(" \t"), *column.digits), None, None
    return _READERS[column.type](kind, text), None, None


def _plain_number(column: ColumnSpec, text: str) -> str:
    """The number with a point as its decimal mark and without the marks between thousands. Raises Broken."""
    if (column.decimal, column.thousands) == (".", ""):
        return text
    mark, point = re.escape(column.thousands), re.escape(column.decimal)
    grouped = rf"[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+|" if mark else ""
    number = rf"([+-]?)({grouped}[0-9]*)(?:({point})([0-9]*))?([eE][+-]?[0-9]+)?"
    match = re.fullmatch(number, text.strip(" \t"))
    if not match:
        raise Broken(f"bad_{column.type}")
    sign, whole, has_point, fraction, exponent = (part or "" for part in match.groups())
    whole = whole.replace(column.thousands, "") if mark else whole
    return sign + whole + ("." if has_point else "") + fraction + exponent


def _string(kind: int, text: str) -> str:
    if kind == LITERAL and not re.fullmatch("-?[0-9]+", text):
        raise Broken("bad_string")
    return text


def _int(_: int, text: str) -> int:
    match = _INT.fullmatch(text.strip(" \t"))
    if not match:
        raise Broken("bad_int")
    digits = match[1].lstrip("+-").lstrip("0") or "0"
    number = -int(digits[:20]) if "-" in text else int(digits[:20])
    if len(digits) > 19 or not -(2**63) <= number < 2**63:
        raise Broken("int_overflow")
    return number


def _float(_: int, text: str) -> float:
    if not _FLOAT.fullmatch(text.strip(" \t")) or not math.isfinite(float(text)):
        raise Broken("bad_float")
    return float(text)


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise Broken("bad_decimal")
    with localcontext(prec=len(text) + 40):
        value = Decimal(text)
        if abs(value) >= 10 ** (precision - scale):
            raise Broken("decimal_overflow")
        if value % Decimal(1).scaleb(-scale):
            raise Broken("inexact_decimal")
        return abs(value) if value == 0 else value


def _bool(_: int, text: str) -> bool:
    word = text.strip(" \t")
    if word.isascii() and word.lower() in _TRUE + _FALSE:
        return word.lower() in _TRUE
    raise Broken("bad_bool")


_READERS: dict[str, Callable[[int, str], Any]] = {"string": _string, "int": _int, "float": _float, "bool": _bool}


def _time(column: ColumnSpec, text: str) -> tuple[int, int, str | None]:
    bad = Broken("bad_date" if column.type == "date" else "bad_timestamp")
    time_us, has_offset = _read_time(column, text, bad)
    if column.type == "date":
        time_us, has_offset = time_us - time_us % times.DAY_US, False
    instant, note = time_us, None
    if not has_offset and column.timezone != "UTC":
        earliest, latest, how = times.local_to_utc(time_us, column.timezone)
        instant = latest if column.dst == "latest" else earliest
        if not times.LEAST_US <= instant <= times.GREATEST_US:
            raise bad
        change = {times.AMBIGUOUS: "ambiguous", times.SKIPPED: "skipped"}.get(how)
        if change and column.dst == "refuse":
            raise Broken(f"{change}_local_time")
        note = f"{change}, {column.dst}" if change else None
    return (time_us // times.DAY_US if column.type == "date" else instant), instant, note


def _read_time(column: ColumnSpec, text: str, bad: Broken) -> tuple[int, bool]:
    """The microseconds by the first format that reads the text, and True if the text has an offset. Raises `bad`."""
    for form in column.time_formats:
        if form in times.EPOCH_POWERS:
            time_us, how = _read_epoch(text, times.EPOCH_POWERS[form])
        elif form == "iso":
            time_us, how = _read_iso(column, text)
        else:
            time_us, how = times.read_pattern(text, form)
        if how != times.BAD:
            break
    if how == times.BAD or not times.LEAST_US <= time_us <= times.GREATEST_US:
        raise bad
    return time_us, how == times.READ


def _read_epoch(text: str, power: int) -> tuple[int, int]:
    if not _FLOAT.fullmatch(text):
        return 0, times.BAD
    with localcontext(prec=len(text) + 40, Emax=MAX_EMAX, Emin=MIN_EMIN):
        number = Decimal(text)
        if number and number.adjusted() + power > 20:
            return 0, times.BAD
        time_us = int(number.scaleb(power).to_integral_value(ROUND_FLOOR))
    return (time_us, times.READ) if times.LEAST_US <= time_us <= times.GREATEST_US else (0, times.BAD)


def _read_iso(column: ColumnSpec, text: str) -> tuple[int, int]:
    match = (_DATE if column.type == "date" else _INSTANT).fullmatch(text)
    if not match:
        return 0, times.BAD
    year, month, day, hour, minute, second, fraction, offset = (*match.groups(), None, None, None, None, None)[:8]
    try:
        time = dt.datetime(*(int(part or 0) for part in (year, month, day, hour, minute, second)))  # type: ignore[arg-type]  # noqa: DTZ001
        zone = _offset_minutes(offset)
    except ValueError:
        return 0, times.BAD
    time_us = (time - _EPOCH) // dt.timedelta(microseconds=1) + int(((fraction or "") + "000000")[:6])
    time_us -= zone * 60_000_000
    outside = not times.LEAST_US <= time_us <= times.GREATEST_US
    return time_us, times.BAD if outside else times.READ if offset else times.LOCAL


def _offset_minutes(offset: str | None) -> int:
    offset = (offset or "Z").strip()
    if offset in ("Z", "UTC"):
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        raise ValueError(offset)
    return -minutes if offset[0] == "-" else minutes
