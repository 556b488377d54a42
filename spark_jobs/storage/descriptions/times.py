"""Conversions between microseconds, timestamps, texts and Spark's rows, all in one place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(time_us: int) -> datetime:
    """Microseconds since 1970 as an aware datetime, exact; years 1 to 9999."""
    return EPOCH + timedelta(microseconds=time_us)


def micros(time: datetime) -> int:
    """An aware datetime as microseconds since 1970, exact."""
    return (time - EPOCH) // timedelta(microseconds=1)


def parse_time(text: str) -> datetime:
    """An ISO-8601 date or instant as an aware datetime in UTC; a text without a time zone is in UTC.

    Raises:
        ValueError: the text is neither.
        OverflowError: in UTC it is outside the years 1 to 9999.
    """
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def instant_text(time: datetime) -> str:
    """An instant for people: `2026-03-01 08:15Z`, with seconds or microseconds only where these are not zero."""
    fine = "microseconds" if time.microsecond else "seconds" if time.second else "minutes"
    return time.isoformat(sep=" ", timespec=fine).replace("+00:00", "Z")


def utc_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The frame's rows, with aware times in UTC: `collect` gives times of this machine's time zone, without naming
    it."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
