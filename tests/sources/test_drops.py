"""Drops: intervals without hole or overlap, and row ids that keep the order of (drop, file, line)."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.calendar import midnight
from spark_jobs.engine.calendar.midnights import FIRST_US, LAST_US
from spark_jobs.errors import ParameterError
from spark_jobs.sources import RowIdOverflowError, Schedule, drop_of, first_row_id, line_of, row_id
from spark_jobs.sources.drops import DROP_BITS, LINE_BITS, PLACE_BITS, schedule
from spark_jobs.sources.quantities import DAY_US, HOUR_US, instant_at, parse_instant, parse_instant_in

START = parse_instant("2013-01-01")
DAILY = Schedule(start_us=START, every_us=DAY_US)
numbers = st.tuples(st.integers(0, 2**DROP_BITS - 1), st.text(), st.integers(1, 2**LINE_BITS - 1))


def test_a_drop_is_named_after_the_start_of_its_interval() -> None:
    assert DAILY.interval(0) == (START, START + DAY_US)
    assert DAILY.label(6) == "2013-01-07"
    assert Schedule(start_us=START, every_us=6 * HOUR_US).label(5) == "2013-01-02T06:00"
    assert (
        Schedule(start_us=START, every_us=HOUR_US // 2).path("x/{date}/{hour}-{minute}.csv", 3)
        == "x/2013-01-01/01-30.csv"
    )


def test_both_ends_of_a_range_name_drops() -> None:
    first, last = parse_instant("2013-01-01"), parse_instant("2013-01-07")
    assert list(DAILY.seq_nos(first, last)) == [0, 1, 2, 3, 4, 5, 6]
    assert list(DAILY.seq_nos(last, last)) == [6]


def test_a_time_within_a_drop_names_none() -> None:
    weekly = Schedule(start_us=parse_instant("2015-03-02"), every_us=7 * DAY_US)
    monday, friday = parse_instant("2015-03-09"), parse_instant("2015-03-13")
    assert list(weekly.seq_nos(monday, monday)) == list(weekly.drops_spanned(monday, monday + 7 * DAY_US)) == [1]
    for ends in ((friday, friday), (monday, friday), (friday, friday + 10 * DAY_US)):
        with pytest.raises(ParameterError) as refusal:
            weekly.seq_nos(*ends)
        assert "within the drop 2015-03-09, which ends at 2015-03-16" in refusal.value.found
        assert "that drop, 2015-03-09, or one beside it, 2015-03-02 or 2015-03-16" in refusal.value.next_step
    with pytest.raises(ParameterError, match=r"one beside it, 2015-03-09$"):
        weekly.seq_nos(parse_instant("2015-03-06"), monday)
    with pytest.raises(ParameterError):
        weekly.drops_spanned(monday, friday)


@given(st.integers(0, 3000), st.integers(0, 50), st.integers(1, 24))
def test_the_ends_of_a_span_give_its_drops_and_nothing_between_them_does(first: int, n: int, hours: int) -> None:
    schedule = Schedule(start_us=START, every_us=hours * HOUR_US)
    lo, hi = schedule.interval(first)[0], schedule.interval(first + n)[1]
    assert schedule.drops_spanned(lo, hi) == range(first, first + n + 1)
    for within in (lo + 1, lo + schedule.every_us - 1):
        with pytest.raises(ParameterError, match="the start of a drop"):
            schedule.seq_no_named(within)


def test_a_range_before_the_start_or_backwards_is_refused() -> None:
    with pytest.raises(ParameterError):
        DAILY.seq_nos(START - 1, START)
    with pytest.raises(ParameterError):
        DAILY.seq_nos(START + DAY_US, START)


@given(st.integers(0, 10**17), st.sampled_from([HOUR_US // 60, HOUR_US, DAY_US, 7 * DAY_US]))
def test_every_time_is_in_exactly_the_drop_that_holds_it(after_us: int, every_us: int) -> None:
    schedule = Schedule(start_us=START, every_us=every_us)
    seq_no = schedule.seq_no_at(START + after_us)
    lo_us, hi_us = schedule.interval(seq_no)
    assert lo_us <= START + after_us < hi_us
    assert schedule.interval(seq_no + 1)[0] == hi_us


ZONES = ("America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "America/Havana", "UTC")
PERIODS = (DAY_US, 2 * DAY_US, 7 * DAY_US, (1, "month"), (3, "month"), (1, "quarter"), (1, "year"))
calendars = st.builds(
    lambda zone, every: schedule(parse_instant_in(datetime(2013, 1, 1), zone), every, zone),  # noqa: DTZ001
    st.sampled_from(ZONES),
    st.sampled_from(PERIODS),
)


def _days_passed(first: date, count: int, unit: str, number: int) -> date:
    """The slow way to the first day of a drop."""
    if unit == "day":
        return first + timedelta(days=count * number)
    months = first.month - 1 + number * count * {"month": 1, "quarter": 3, "year": 12}[unit]
    return date(first.year + months // 12, months % 12 + 1, 1)


@given(calendars, st.integers(0, 1000))
def test_drops_of_the_calendar_leave_no_hole_and_never_overlap(drops: Schedule, number: int) -> None:
    lo, hi = drops.interval(number)
    assert drops.interval(number + 1)[0] == hi > lo
    for time in (lo, lo + 1, (lo + hi) // 2, hi - 1):
        assert drops.seq_no_at(time) == number
    assert drops.seq_no_at(hi) == number + 1
    assert drops.drops_spanned(lo, hi) == range(number, number + 1)
    count, unit = drops.calendar or (drops.every_us // DAY_US, "day")
    day = _days_passed(date(2013, 1, 1), count, unit, number)
    assert drops.label(number) == day.isoformat()
    assert drops.path("x/{date}.csv", number) == f"x/{day}.csv"
    assert drops.time_named(day.isoformat()) == lo
    # the instant before is of the day before, on the clocks of the zone
    assert instant_at(lo - 1).astimezone(ZoneInfo(drops.timezone)).date() < day


@given(calendars, st.lists(st.integers(-400, 9000), min_size=1, max_size=30), st.integers(0, DAY_US - 1))
def test_columns_of_numbers_and_times_are_told_as_single_ones(
    drops: Schedule, numbers_: list[int], within: int
) -> None:
    column = np.array(numbers_, np.int64)
    starts = drops.starts(column)
    assert starts.tolist() == [drops.start(number) for number in numbers_]
    times = starts + within
    assert drops.numbers_at(times).tolist() == [drops.number_at(int(time)) for time in times]


def test_a_day_of_changing_clocks_has_its_own_length() -> None:
    new_york = schedule(parse_instant("2026-01-01T05:00"), DAY_US, "America/New_York")
    lengths = {
        day: (new_york.interval(n)[1] - new_york.interval(n)[0]) / HOUR_US
        for day in ("2026-03-07", "2026-03-08", "2026-10-31", "2026-11-01", "2028-02-29")
        for n in [new_york.seq_no_named(new_york.time_named(day))]
    }
    assert list(lengths.values()) == [24, 23, 24, 25, 24]
    island = schedule(parse_instant("2025-12-31T13:00"), DAY_US, "Australia/Lord_Howe")
    changes = [island.time_named(day) for day in ("2026-04-05", "2026-04-06", "2026-10-04", "2026-10-05")]
    assert [(b - a) / HOUR_US for a, b in (changes[:2], changes[2:])] == [24.5, 23.5]
    monthly = schedule(START, (1, "month"), None)
    assert [monthly.label(n) for n in (0, 1, 13)] == ["2013-01-01", "2013-02-01", "2014-02-01"]
    assert monthly.every == "1 month"


@pytest.mark.parametrize(
    ("zone", "skipped"),
    [
        ("Pacific/Apia", "2011-12-30"),
        ("Pacific/Fakaofo", "2011-12-30"),
        ("Pacific/Kwajalein", "1993-08-21"),
        ("Pacific/Kiritimati", "1994-12-31"),
        ("Pacific/Enderbury", "1994-12-31"),
    ],
)
def test_the_drop_of_a_day_that_a_zone_skipped_is_empty_and_has_a_name_of_its_own(zone: str, skipped: str) -> None:
    day = date.fromisoformat(skipped)
    before, after = day - timedelta(days=1), day + timedelta(days=1)
    drops = schedule(midnight(before, ZoneInfo(zone)), DAY_US, zone)
    assert [drops.label(n) for n in range(3)] == [str(before), skipped, str(after)]
    assert [drops.path("x/{date}/*", n) for n in range(3)] == [f"x/{d}/*" for d in (before, day, after)]
    assert [hi - lo for lo, hi in map(drops.interval, range(3))] == [DAY_US, 0, DAY_US]
    assert [list(drops.drops_spanned(*drops.interval(n))) for n in (0, 2)] == [[0, 1], [2]]
    assert drops.seq_no_named(drops.time_named(str(after))) == 2
    with pytest.raises(ParameterError) as refusal:
        drops.time_named(skipped)
    assert refusal.value.found == f"{skipped}, which its clocks skipped"


def test_the_calendars_end_is_no_error() -> None:
    drops = schedule(START, (1, "month"), "Asia/Kathmandu")
    last = drops.number_at(LAST_US)
    assert drops.start(last) <= LAST_US
    assert drops.start(last + 5) == LAST_US
    far = np.array([START, LAST_US, FIRST_US], np.int64)
    assert drops.numbers_at(far).tolist() == [drops.number_at(int(time)) for time in far]


def test_row_ids_do_not_depend_on_the_calendar() -> None:
    # the drop's number is all that they know of it
    assert drop_of(first_row_id(3, "meters/2026-03-08/a.csv")) == 3


@given(numbers, numbers)
def test_row_ids_are_positive_int64_ordered_by_drop_then_place_of_the_file_then_line(
    one: tuple[int, str, int], other: tuple[int, str, int]
) -> None:
    firsts = [first_row_id(drop, path) for drop, path, _ in (one, other)]
    ids = [row_id(first, line) for first, (_, _, line) in zip(firsts, (one, other), strict=True)]
    for first, made, (drop, path, line) in zip(firsts, ids, (one, other), strict=True):
        assert 0 <= first <= made < 2**63
        assert (drop_of(first), drop_of(made), line_of(made, first)) == (drop, drop, line)
        assert first - (drop << PLACE_BITS) == first_row_id(0, path), "the place follows from the path"
        assert first_row_id(0, path) >= 2 ** (PLACE_BITS - 1), "ranks of older versions lie below"
    if one[0] != other[0]:
        assert (ids[0] < ids[1]) == (one[0] < other[0])


def test_places_of_files_are_spread_over_their_half_of_a_drop() -> None:
    places = sorted(first_row_id(0, f"readings/2024-01-01/part-{i:05}.csv") for i in range(10_000))
    eighths = [sum(2**42 + i * 2**39 <= place < 2**42 + (i + 1) * 2**39 for place in places) for i in range(8)]
    assert sum(eighths) == 10_000
    assert all(1_100 < count < 1_400 for count in eighths)
    assert len(set(places)) == 10_000


def test_an_id_that_is_told_once_stays_so_for_ever() -> None:
    assert first_row_id(1, "flights/2013-01-02/flights.csv") == 16_600_297_928_818


@pytest.mark.parametrize("parts", [(2**DROP_BITS, 1), (0, 2**LINE_BITS), (-1, 1), (0, 0)])
def test_a_number_beyond_its_bits_is_refused(parts: tuple[int, int]) -> None:
    with pytest.raises(RowIdOverflowError) as refused:
        row_id(first_row_id(parts[0], "a"), parts[1])
    assert refused.value.code == "row_id_overflow"
    assert refused.value.value in parts
