"""Microseconds and timestamps: the one place where they become each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(time_us: int) -> datetime:
    """Microseconds since 1970 as an aware datetime, exact; years 1 to 9999."""
    return EPOCH + timedelta(microseconds=time_us)


def micros(time: datetime) -> int:
    """An aware datetime as microseconds since 1970, exact."""
    return (time - EPOCH) // timedelta(microseconds=1)
