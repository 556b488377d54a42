"""Durations, sizes and instants read as people write them, and nothing else does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from spark_jobs.sources.quantities import format_duration, instant_at, parse_duration, parse_instant, parse_size


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("60 min", 3_600_000_000),
        ("1 day", 86_400_000_000),
        ("6 hours", 21_600_000_000),
        ("1 h 30 min", 5_400_000_000),
        ("250ms", 250_000),
        ("1 Week", 604_800_000_000),
        ("0 s", 0),
    ],
)
def test_durations_read_in_their_units(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "value", [60, "60", "", "1.5 h", "-1 day", "a day", "1 lightyear", None, True, "9999999 weeks"]
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_duration(value)


@given(st.integers(0, 10**15))
def test_a_formatted_duration_reads_back(duration_us: int) -> None:
    assert parse_duration(format_duration(duration_us)) == duration_us


@pytest.mark.parametrize(("value", "size"), [("1 MiB", 1 << 20), ("10MB", 10_000_000), (7, 7)])
def test_sizes_read_in_their_units(value: Any, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize("value", [0, -1, True, "0 MB", "1 mile", "MiB", 1.5])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError):
        parse_size(value)


@pytest.mark.parametrize(
    "value",
    [
        "2013-01-01",
        "2013-01-01T00:00:00Z",
        "2012-12-31T19:00-05:00",
        dt.date(2013, 1, 1),
        dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
    ],
)
def test_instants_are_utc_unless_they_say_otherwise(value: Any) -> None:
    assert parse_instant(value) == 1_356_998_400_000_000


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_an_instant_reads_back(instant: dt.datetime) -> None:
    assert instant_at(parse_instant(instant.isoformat())) == instant
