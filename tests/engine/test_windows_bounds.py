"""Which windows there are, and which rows count in them: each kind against its twin."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.twins.windows import GREATEST, LEAST, NaiveRow, Window
from spark_jobs.engine.windows.kinds.hopping import hopping_spans
from spark_jobs.engine.windows.kinds.kind import Ints, SpansFound
from spark_jobs.engine.windows.kinds.sessions import session_spans
from spark_jobs.engine.windows.kinds.sliding import sliding_spans
from spark_jobs.errors import ParameterError
from tests.effort import tries

NEAR = st.integers(-30, 30)
EDGES = st.sampled_from([LEAST, LEAST + 1, LEAST + 7, -1, 0, 1, GREATEST - 7, GREATEST - 1, GREATEST])
LATENESS = st.one_of(st.just(None), st.integers(-5, 40))


def rows_of(times: SearchStrategy[int], *, keys: int = 2) -> SearchStrategy[list[NaiveRow]]:
    """Rows of a few keys; each late by nothing or by some ticks beyond its own time."""
    row = st.builds(
        lambda key, time, late: NaiveRow(key, time, LEAST if late is None else max(LEAST, min(time + late, GREATEST))),
        st.integers(0, keys - 1),
        times,
        LATENESS,
    )
    return st.lists(row, max_size=14)


def columns(rows: list[NaiveRow]) -> tuple[list[NaiveRow], Ints, Ints, Ints]:
    """Sorted rows as the kernels take them: offsets, times, min_end."""
    by_key = sorted(rows, key=lambda row: (row.key, row.time))
    keys = np.array([row.key for row in by_key], np.int64)
    times = np.array([row.time for row in by_key], np.int64)
    least = np.array([row.min_end for row in by_key], np.int64)
    return by_key, np.searchsorted(keys, np.arange(4)).astype(np.int64), times, least


def content(
    rows: list[NaiveRow], spans_of: Callable[..., SpansFound], **parameters: int
) -> tuple[list[NaiveRow], dict[Window, list[int]]]:
    """The kernel's windows and the rows in them, as the twin gives them."""
    by_key, offsets, times, least = columns(rows)
    windows, spans, chosen = spans_of(offsets=offsets, times=times, min_end=least, **parameters)
    found = {}
    numbers = np.flatnonzero(chosen)
    for w in range(windows.start.size):
        window = Window(int(windows.group[w]), int(windows.start[w]), int(windows.end[w]))
        assert window not in found
        found[window] = [int(numbers[i]) for i in range(numbers.size) if spans.first[i] <= w < spans.past[i]]
        assert spans.counts[w] == len(found[window])
    assert list(found) == sorted(found)
    assert np.all(np.diff(spans.past) >= 0)
    return by_key, found


@settings(max_examples=tries(120), deadline=None)
@given(rows_of(NEAR), st.sampled_from([0, 1, 2, 5, 10, 61]))
def test_sliding_windows_are_those_of_the_definition(rows: list[NaiveRow], size: int) -> None:
    by_key, found = content(rows, sliding_spans, size=size, clip_at_zero=False)
    assert found == naive.sliding_windows(by_key, size=size, clip_at_zero=False)


@settings(max_examples=tries(120), deadline=None)
@given(rows_of(st.integers(0, 30)), st.sampled_from([0, 1, 2, 5, 10, 61]))
def test_sliding_windows_of_early_rows_share_one_window(rows: list[NaiveRow], size: int) -> None:
    by_key, found = content(rows, sliding_spans, size=size, clip_at_zero=True)
    assert found == naive.sliding_windows(by_key, size=size, clip_at_zero=True)


@settings(max_examples=tries(60), deadline=None)
@given(rows_of(NEAR), st.sampled_from([1, 2, 5, 61]), st.sampled_from([2, 1000]), st.booleans())
def test_right_windows_start_a_tick_after_their_row(rows: list[NaiveRow], size: int, tick: int, clip: bool) -> None:
    times = [(abs(row.time) if clip else row.time) * tick for row in rows]
    ends = [row.min_end if row.min_end == LEAST else row.min_end * tick for row in rows]
    in_ticks = [replace(r, time=t, min_end=e) for r, t, e in zip(rows, times, ends, strict=True)]
    shape: dict[str, Any] = {"size": size * tick, "clip_at_zero": clip, "tick": tick}
    by_key, found = content(in_ticks, sliding_spans, **shape)
    assert found == naive.sliding_windows(by_key, **shape)


@settings(max_examples=tries(80), deadline=None)
@given(rows_of(EDGES), st.sampled_from([0, 1, 7, 2**62, GREATEST]))
def test_sliding_bounds_saturate_at_the_ends_of_int64(rows: list[NaiveRow], size: int) -> None:
    by_key, found = content(rows, sliding_spans, size=size, clip_at_zero=False)
    assert found == naive.sliding_windows(by_key, size=size, clip_at_zero=False)


@settings(max_examples=tries(80), deadline=None)
@given(rows_of(NEAR), st.sampled_from([1, 2, 5, 10, 61]))
def test_sessions_are_those_of_the_definition(rows: list[NaiveRow], gap: int) -> None:
    by_key, found = content(rows, session_spans, gap=gap)
    assert found == naive.session_windows(by_key, gap=gap)


@settings(max_examples=tries(80), deadline=None)
@given(rows_of(EDGES), st.sampled_from([1, 7, 2**62, GREATEST]))
def test_sessions_hold_at_the_ends_of_int64(rows: list[NaiveRow], gap: int) -> None:
    by_key, found = content(rows, session_spans, gap=gap)
    assert found == naive.session_windows(by_key, gap=gap)


SHAPES = st.sampled_from([(10, 10), (10, 5), (10, 3), (7, 1), (1, 1), (60, 7)])


@settings(max_examples=tries(100), deadline=None)
@given(rows_of(NEAR), SHAPES, st.integers(-15, 15))
def test_hopping_windows_are_those_of_the_definition(rows: list[NaiveRow], shape: tuple[int, int], offset: int) -> None:
    size, advance = shape
    by_key, found = content(rows, hopping_spans, size=size, advance=advance, offset=offset)
    assert found == naive.hopping_windows(by_key, size=size, advance=advance, offset=offset)


WIDE_SHAPES = st.sampled_from([(7, 7), (7, 3), (2**62, 2**62), (GREATEST, GREATEST), (GREATEST, 2**62), (1, 1)])


@settings(max_examples=tries(80), deadline=None)
@given(rows_of(EDGES), WIDE_SHAPES, st.sampled_from([0, 1, -1, GREATEST]))
def test_hopping_bounds_saturate_at_the_ends_of_int64(
    rows: list[NaiveRow], shape: tuple[int, int], offset: int
) -> None:
    size, advance = shape
    by_key, found = content(rows, hopping_spans, size=size, advance=advance, offset=offset)
    assert found == naive.hopping_windows(by_key, size=size, advance=advance, offset=offset)


@settings(max_examples=tries(120), deadline=None)
@given(rows_of(EDGES), st.sampled_from([(2, 1), (7, 1), (20, 1), (7, 2), (GREATEST, 2**61)]), st.integers(-2, 2))
def test_hopping_windows_whose_number_does_not_fit_are_refused(
    rows: list[NaiveRow], shape: tuple[int, int], offset: int
) -> None:
    size, advance = shape
    first = min((-(-(row.time - size + 1 - offset % advance) // advance) for row in rows), default=0)
    if first < LEAST:
        with pytest.raises(ParameterError) as refused:
            content(rows, hopping_spans, size=size, advance=advance, offset=offset)
        assert refused.value.facts["value"] == min(row.time for row in rows)
    else:
        by_key, found = content(rows, hopping_spans, size=size, advance=advance, offset=offset)
        assert found == naive.hopping_windows(by_key, size=size, advance=advance, offset=offset)


@settings(max_examples=tries(100), deadline=None)
@given(rows_of(NEAR), st.sampled_from([0, 3, 10]))
def test_sliding_with_no_late_row_is_the_same_with_and_without_the_column(rows: list[NaiveRow], size: int) -> None:
    punctual = [NaiveRow(row.key, row.time, row.time) for row in rows]
    plain = [NaiveRow(row.key, row.time) for row in rows]
    late_path = content(punctual, sliding_spans, size=size, clip_at_zero=False)[1]
    assert late_path == content(plain, sliding_spans, size=size, clip_at_zero=False)[1]
    assert late_path == content(rows[:0] + plain, _slow_path, size=size)[1]


def _slow_path(*, offsets: Ints, times: Ints, min_end: Ints, size: int) -> SpansFound:
    """The path for late rows, forced by a late row of a key of its own."""
    extended = np.append(offsets, offsets[-1] + 1)
    windows, spans, chosen = sliding_spans(
        offsets=extended,
        times=np.append(times, 0),
        min_end=np.append(times, GREATEST),
        size=size,
        clip_at_zero=False,
    )
    return windows, spans, chosen[:-1]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([103, 107, 112, 119], [(93, 103), (97, 107), (102, 112), (104, 114), (108, 118), (109, 119), (113, 123)]),
        ([3, 7, 12, 19], [(0, 10), (2, 12), (4, 14), (8, 18), (9, 19), (13, 23)]),
    ],
)
def test_the_examples_of_kip_450(times: list[int], expected: list[tuple[int, int]]) -> None:
    _, found = content([NaiveRow(0, time) for time in times], sliding_spans, size=10, clip_at_zero=True)
    assert [(window.start, window.end) for window in found] == expected


def test_a_late_row_leaves_its_trace_in_the_windows_still_open() -> None:
    # d=1, g=2: A@4, A@1, A@2; stream time 4, so windows that end before 2 are closed
    rows = [NaiveRow(0, 4, 2), NaiveRow(0, 1, 2), NaiveRow(0, 2, 2)]
    by_key, found = content(rows, sliding_spans, size=1, clip_at_zero=True)
    times = {(window.start, window.end): [by_key[n].time for n in held] for window, held in found.items()}
    assert times == {(1, 2): [1, 2], (2, 3): [2], (3, 4): [4]}


def test_a_million_rows_at_one_time_make_one_left_window() -> None:
    n = 1_000_000
    windows, spans, _ = sliding_spans(
        offsets=np.array([0, n]), times=np.full(n, 7), min_end=None, size=10, clip_at_zero=False
    )
    assert (windows.start.tolist(), windows.end.tolist(), spans.counts.tolist()) == ([-3], [7], [n])


def test_late_rows_within_one_window_cost_no_more_than_their_sort() -> None:
    n = 200_000
    times = np.arange(n)
    _, spans, chosen = sliding_spans(
        offsets=np.array([0, n]), times=times, min_end=times + n // 2, size=n, clip_at_zero=False
    )
    assert spans.counts.max() > n // 3
    assert int(chosen.sum()) == n - 1  # no window starts at or before the first row


def test_the_worked_example_of_the_readme() -> None:
    rows = [NaiveRow(0, time) for time in (103, 107, 112, 119)]
    assert len(content(rows, sliding_spans, size=10, clip_at_zero=True)[1]) == 7
    hopping = {n: content(rows, hopping_spans, size=10, advance=n, offset=0)[1] for n in (1, 2, 5)}
    assert [len(windows) for windows in hopping.values()] == [26, 13, 5]
    assert [[0, 1, 2] in windows.values() for windows in hopping.values()] == [True, False, False]
    ten = [held for window, held in hopping[1].items() if 98 <= window.start <= 107]
    assert ten == [[0, 1]] * 5 + [[0, 1, 2]] + [[1, 2]] * 4
    assert [(w.start, w.end) for w in content(rows, session_spans, gap=5)[1]] == [(103, 112), (119, 119)]
    tumbling = content(rows, hopping_spans, size=10, advance=10, offset=0)[1]
    assert [(w.start, w.end) for w in tumbling] == [(100, 110), (110, 120)]


@settings(max_examples=tries(60), deadline=None)
@given(rows_of(NEAR), st.sampled_from([0, 1, 5, 61]), SHAPES, st.integers(-15, 15))
def test_each_row_is_in_exactly_as_many_windows_as_the_definition_says(
    rows: list[NaiveRow], size: int, shape: tuple[int, int], offset: int
) -> None:
    by_key, offsets, times, _ = columns(rows)

    def counts(spans_of: Callable[..., SpansFound], **parameters: int) -> list[int]:
        _, spans, chosen = spans_of(offsets=offsets, times=times, min_end=None, **parameters)
        assert chosen.all()
        return (spans.past - spans.first).tolist()

    def starts(key: Hashable) -> set[int]:
        own = {row.time for row in by_key if row.key == key}
        right = {time + 1 for time in own if any(time < other <= time + 1 + size for other in own)}
        return {time - size for time in own} | right

    assert counts(session_spans, gap=size + 1) == [1] * len(by_key)
    assert counts(sliding_spans, size=size, clip_at_zero=False) == [
        sum(row.time - size <= start <= row.time for start in starts(row.key)) for row in by_key
    ]
    length, advance = shape
    assert counts(hopping_spans, size=length, advance=advance, offset=offset) == [
        (row.time - offset) // advance - (row.time - offset - length) // advance for row in by_key
    ]
