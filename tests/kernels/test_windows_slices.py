"""A key cut into slices of time, each worked on alone, gives the windows of the whole key."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.kernels.windows import Hopping, Inputs, Sessions, Sliding, count, sum_, window_table
from spark_jobs.kernels.windows.naive import GREATEST, LEAST
from spark_jobs.kernels.windows.slices import SLICES, HotKey, cells_of, kept
from tests.effort import tries

INPUTS = Inputs(["k"], "t", {"n": count(), "s": sum_("v")})


def table_of(rows):
    times, values = zip(*rows, strict=True) if rows else ((), ())
    columns = {"k": [1] * len(times), "t": pa.array(times, pa.int64()), "v": pa.array(values, pa.int64())}
    return pa.table(columns)


def slices_of(key, time, halo):
    """The slices that a row bears on, from their definition."""
    if key.breaks is not None:
        return [sum(at is not None and at <= time for at in key.breaks)]
    before, after = halo
    first, last = key.cell(np.array([max(time - before, LEAST), min(time + after, GREATEST)])).tolist()
    return list(range(first, last + 1))


def worked_apart(table, key, shape):
    """Windows made slice by slice, those of a halo left out."""
    rows = table.to_pylist()
    made = []
    # breaks make one slice more than there are
    for place in range(key.cells + (key.breaks is not None)):
        own = [(row["t"], row["v"]) for row in rows if place in slices_of(key, row["t"], shape.halo)]
        windows, _ = window_table(table_of(own), shape, INPUTS)
        keep = kept(
            (key,), np.full(windows.num_rows, key.number * SLICES + place), windows.column("window_start").to_numpy()
        )
        made.extend(windows.filter(pa.array(keep)).to_pylist())
    return made


ROWS = st.lists(st.tuples(st.integers(-10, 60), st.integers(-5, 5)), max_size=25)


@settings(max_examples=tries(30), deadline=None)
@given(
    ROWS,
    st.sampled_from([Sliding(4, False), Sliding(7, True), Hopping(6, 2, 1), Hopping(5, 5)]),
    st.integers(-5, 20),
    st.integers(1, 15),
    st.integers(2, 5),
)
def test_slices_with_a_halo_make_each_window_once(rows, shape, low, length, cells):
    table = table_of([row for row in rows if row[0] >= 0 or not shape.drop_negative])
    wanted, _ = window_table(table, shape, INPUTS)
    assert worked_apart(table, HotKey(0, 1, low, length, cells), shape) == wanted.to_pylist()


@settings(max_examples=tries(25), deadline=None)
@example([(at, 0) for at in (-3, -1, 1, 10, 20, 30, 40)], 1, 10)  # a break in every cell
@given(ROWS, st.integers(1, 6), st.integers(1, 12))
def test_sessions_cut_at_breaks_are_whole(rows, gap, length):
    times = sorted({time for time, _ in rows})
    breaks = [later for earlier, later in pairwise(times) if later - earlier > gap]
    key = HotKey(0, 1, -10, length, 6)
    first = {int(key.cell(np.array([at]))[0]): at for at in reversed(breaks)}
    key = HotKey(0, 1, -10, length, 6, tuple(first.get(cell) for cell in range(6)))
    assert key.broken_before() == [sum(cell < other for cell in first) for other in range(6)]
    wanted, _ = window_table(table_of(rows), Sessions(gap), INPUTS)
    assert worked_apart(table_of(rows), key, Sessions(gap)) == wanted.to_pylist()


def test_cells_cover_the_times_and_stay_long_against_the_halo():
    length, cells = cells_of(rows=4_500_000, rows_a_slice=500_000, low=-5, high=9_999_994, halo=(1000, 1))
    assert (length, cells) == (1_111_112, 9)
    length, cells = cells_of(rows=4_500_000, rows_a_slice=500_000, low=0, high=4_999_999, halo=(100_000, 1))
    assert (length, cells) == (800_016, 7)
    assert cells_of(rows=10**9, rows_a_slice=10, low=0, high=10**12, halo=None)[1] < SLICES
    assert cells_of(rows=10**9, rows_a_slice=10, low=3, high=3, halo=(5, 1))[1] == 1


@pytest.mark.parametrize("low", [LEAST, GREATEST - 30])
def test_cells_hold_at_the_ends_of_int64(low):
    key = HotKey(0, 1, low, 10, 4)
    assert key.cell(np.array([LEAST, GREATEST])).tolist() == [0, 3]
    assert key.top <= GREATEST
