"""Drops: intervals without hole or overlap, and row ids that keep the order of (drop, file, line)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.errors import ParameterError
from spark_jobs.sources import RowIdOverflowError, Schedule, drop_of, first_row_id, line_of, row_id
from spark_jobs.sources.drops import DROP_BITS, LINE_BITS, PLACE_BITS
from spark_jobs.sources.quantities import DAY_US, HOUR_US, parse_instant

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
    assert list(weekly.seq_nos(monday, monday)) == list(weekly.spanned(monday, monday + 7 * DAY_US)) == [1]
    for ends in ((friday, friday), (monday, friday), (friday, friday + 10 * DAY_US)):
        with pytest.raises(ParameterError) as refusal:
            weekly.seq_nos(*ends)
        assert "within the drop 2015-03-09, which ends at 2015-03-16" in refusal.value.found
        assert "that drop, 2015-03-09, or one beside it, 2015-03-02 or 2015-03-16" in refusal.value.next_step
    with pytest.raises(ParameterError, match=r"one beside it, 2015-03-09$"):
        weekly.seq_nos(parse_instant("2015-03-06"), monday)
    with pytest.raises(ParameterError):
        weekly.spanned(monday, friday)


@given(st.integers(0, 3000), st.integers(0, 50), st.integers(1, 24))
def test_the_ends_of_a_span_give_its_drops_and_nothing_between_them_does(first: int, n: int, hours: int) -> None:
    schedule = Schedule(start_us=START, every_us=hours * HOUR_US)
    lo, hi = schedule.interval(first)[0], schedule.interval(first + n)[1]
    assert schedule.spanned(lo, hi) == range(first, first + n + 1)
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
