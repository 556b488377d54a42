"""Microseconds, timestamps, texts and what Spark gives: the one place where they become each other."""

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


def parsed(text: str) -> datetime:
    """An ISO-8601 date or instant as an aware datetime of UTC, which it is in unless it says otherwise.

    Raises:
        ValueError: the text is none.
        OverflowError: in UTC it lies outside the years 1 to 9999.
    """
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def utc_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The frame's rows, their times aware and in UTC: `collect` gives those of this machine's time zone, and does not
    say so."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
