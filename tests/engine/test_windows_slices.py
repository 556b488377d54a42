"""A key cut into slices of time, each worked on alone, gives the windows of the whole key."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.twins.windows import GREATEST, LEAST
from spark_jobs.engine.windows import (
    SLICE_COLUMN,
    SLICES,
    AdaptiveKind,
    Cuts,
    Deltas,
    Hopping,
    HotKey,
    OwnSlice,
    Sessions,
    Sliding,
    Trigger,
    WindowInputs,
    WindowKind,
    count,
    in_slices,
    slice_halo,
    sum_,
)
from spark_jobs.engine.windows.slices import cells_of
from spark_jobs.engine.windows.spreading import KeySample, SampledKey, spread
from tests.effort import tries
from tests.engine.whole_tables import window_table

INPUTS = WindowInputs(["k"], "t", {"n": count(), "s": sum_("v")})


def table_of(rows: list[tuple[int, int]]) -> pa.Table:
    times, values = zip(*rows, strict=True) if rows else ((), ())
    columns = {"k": [1] * len(times), "t": pa.array(times, pa.int64()), "v": pa.array(values, pa.int64())}
    return pa.table(columns)


def slices_of(key: HotKey, time: int, halo: tuple[int, int] | None) -> list[int]:
    """The slices that a row bears on, from their definition."""
    if key.breaks is not None:
        return [sum(at is not None and at <= time for at in key.breaks)]
    assert halo is not None
    before, after = halo
    first, last = key.cell(np.array([max(time - before, LEAST), min(time + after, GREATEST)])).tolist()
    return list(range(first, last + 1))


def worked_apart(table: pa.Table, key: HotKey, shape: WindowKind) -> list[dict[str, Any]]:
    """Windows made slice by slice, those of a halo left out."""
    rows = table.to_pylist()
    made = []
    # breaks make one slice more than there are
    for place in range(key.cells + (key.breaks is not None)):
        own = [(row["t"], row["v"]) for row in rows if place in slices_of(key, row["t"], slice_halo(shape))]
        windows, _ = window_table(table_of(own), shape, INPUTS)
        numbers = pa.array(np.full(windows.num_rows, key.number * SLICES + place))
        keep = OwnSlice((key,))(windows.append_column(SLICE_COLUMN, numbers))
        made.extend(windows.filter(pa.array(keep)).to_pylist())
    return made


TIMES = st.integers(-10, 90) | st.sampled_from([LEAST, GREATEST])
ROWS = st.lists(st.tuples(st.integers(-10, 60), st.integers(-5, 5)), max_size=25)


@settings(max_examples=tries(30), deadline=None)
@given(
    ROWS,
    st.sampled_from([Sliding(4, False), Sliding(7, True), Hopping(6, 2, 1)]),
    st.integers(-5, 20),
    st.integers(1, 15),
    st.integers(2, 5),
)
def test_slices_with_a_halo_make_each_window_once(
    rows: list[tuple[int, int]], shape: Sliding | Hopping, low: int, length: int, cells: int
) -> None:
    table = table_of([row for row in rows if row[0] >= 0 or not shape.drop_negative])
    wanted, _ = window_table(table, shape, INPUTS)
    assert worked_apart(table, HotKey(0, 1, low, length, cells), shape) == wanted.to_pylist()


CUTS = Cuts(target=2, shortest=1, longest=4, reset=6, triggers=(Trigger("time"),), memory_bytes=1, rate_unit=1)


@settings(max_examples=tries(30), deadline=None)
@given(
    ROWS,
    st.sampled_from([Hopping(5, 5), Hopping(7, 7, 3), AdaptiveKind(CUTS, Deltas("v"))]),
    st.integers(-9, 20),
    st.integers(21, 90),
    st.integers(1, 60),
)
def test_slices_cut_where_nothing_crosses_share_no_row(
    rows: list[tuple[int, int]], shape: Hopping | AdaptiveKind, low: int, high: int, wanted_cells: int
) -> None:
    low, length, cells = cells_of(shape, rows=wanted_cells, rows_a_slice=1, low=low, high=high)
    key = HotKey(0, 1, low, length, cells)
    assert all(len(slices_of(key, time, slice_halo(shape))) == 1 for time, _ in rows)
    wanted, _ = window_table(table_of(rows), shape, INPUTS)
    assert worked_apart(table_of(rows), key, shape) == wanted.to_pylist()


@settings(max_examples=tries(25), deadline=None)
@example([(at, 0) for at in (-3, -1, 1, 10, 20, 30, 40)], 1, 10)  # a break in every cell
@given(ROWS, st.integers(1, 6), st.integers(1, 12))
def test_sessions_cut_at_breaks_are_whole(rows: list[tuple[int, int]], gap: int, length: int) -> None:
    times = sorted({time for time, _ in rows})
    breaks = [later for earlier, later in pairwise(times) if later - earlier > gap]
    key = HotKey(0, 1, -10, length, 6)
    first = {int(key.cell(np.array([at]))[0]): at for at in reversed(breaks)}
    key = HotKey(0, 1, -10, length, 6, tuple(first.get(cell) for cell in range(6)))
    assert key.broken_before() == [sum(cell < other for cell in first) for other in range(6)]
    wanted, _ = window_table(table_of(rows), Sessions(gap), INPUTS)
    assert worked_apart(table_of(rows), key, Sessions(gap)) == wanted.to_pylist()


def test_cells_cover_the_times_and_stay_long_against_the_halo() -> None:
    sliding = Sliding(1000, False)
    assert cells_of(sliding, rows=4_500_000, rows_a_slice=500_000, low=-5, high=9_999_994) == (-5, 1_111_112, 9)
    wide = Sliding(100_000, False)
    assert cells_of(wide, rows=4_500_000, rows_a_slice=500_000, low=0, high=4_999_999) == (0, 800_016, 7)
    assert cells_of(Sessions(1), rows=10**9, rows_a_slice=10, low=0, high=10**12)[2] < SLICES
    assert cells_of(Sliding(5, False), rows=10**9, rows_a_slice=10, low=3, high=3)[2] == 1


def test_cells_begin_and_end_with_what_nothing_crosses() -> None:
    cells = cells_of(Hopping(10, 10, 3), rows=4, rows_a_slice=1, low=17, high=99)
    assert cells == (13, 30, 3)
    # there is no such instant to begin at
    assert cells_of(Hopping(10, 10), rows=4, rows_a_slice=1, low=LEAST, high=GREATEST)[2] == 1


@pytest.mark.parametrize("low", [LEAST, GREATEST - 30])
def test_cells_hold_at_the_ends_of_int64(low: int) -> None:
    key = HotKey(0, 1, low, 10, 4)
    assert key.cell(np.array([LEAST, GREATEST])).tolist() == [0, 3]
    assert key.top <= GREATEST


@settings(max_examples=tries(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=12),
    st.booleans(),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.integers(-5, 20),
    st.integers(1, 15),
    st.integers(2, 5),
)
def test_rows_go_to_the_slices_that_they_bear_on(
    rows: list[tuple[int, int]], broken: bool, halo: tuple[int, int], low: int, length: int, cells: int
) -> None:
    breaks = tuple(None if cell % 2 else low + length * cell for cell in range(cells)) if broken else None
    hot = tuple(HotKey(hashed, hashed, low, length, cells, breaks) for hashed in (1, 2))
    hashes, times = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    places, slices = in_slices(hot, None if broken else halo, hashes, times)
    expected = set()
    for place, (hashed, time) in enumerate(rows):
        keys = [key for key in hot if key.hashed == hashed]
        if not keys:
            expected.add((place, 0))
        for key in keys:
            expected |= {(place, key.number * SLICES + cell) for cell in slices_of(key, time, halo)}
    pairs = list(zip(places.tolist(), slices.tolist(), strict=True))
    assert sorted(pairs) == sorted(expected)


@dataclass(frozen=True)
class TimesOfKeys:
    """Rows that are all in the sample: the times of each key, by the key's hash."""

    times: dict[int, list[int]]

    def sample(self, share: float, least_rows: float) -> KeySample:
        keys = [SampledKey(key, len(times), min(times), max(times)) for key, times in self.times.items()]
        return KeySample(sum(key.n_rows for key in keys), tuple(key for key in keys if key.n_rows > least_rows))

    def breaks(self, hot: tuple[HotKey, ...], gap: int) -> Mapping[int, int]:
        first: dict[int, int] = {}
        for key in hot:
            for before, after in pairwise(sorted(self.times[key.hashed])):
                cell = (after - key.low) // key.length
                is_near = (after - key.low) % key.length < key.beginning
                if cell and is_near and (before - key.low) // key.length == cell and after - before > gap:
                    first.setdefault(key.number * SLICES + cell, after)
        return first


@pytest.mark.parametrize(
    ("kind", "slices"), [(Sliding(1, False), [10]), (Hopping(10, 10), [10]), (Sessions(3), [4]), (Sessions(9), [])]
)
def test_a_key_with_too_many_rows_is_cut_and_the_others_share_tasks(kind: WindowKind, slices: list[int]) -> None:
    # cells of 80 ticks, with breaks of 5 ticks near the beginnings of three of them
    times = [time for time in range(800) if not any(edge + 2 <= time < edge + 6 for edge in (80, 240, 560))]
    over = spread(TimesOfKeys({7: times, 8: [1, 2], 9: list(range(70))}), kind, rows_a_slice=79)
    assert [key.slices for key in over.hot] == slices
    n_others = 72 if slices else 72 + len(times)
    assert (over.shared, over.tasks) == (-(-n_others // 79), -(-n_others // 79) + sum(slices))
    hashed = np.array([8, 9, 7], np.int64)
    tasks = over.tasks_of(hashed, np.array([0, 0, SLICES + 2 if slices else 0], np.int64))
    assert tasks[0] < over.shared and tasks[1] < over.shared
    assert not slices or tasks[2] == over.shared + 2
