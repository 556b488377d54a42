"""Groups come whole where they are small, and in stretches of time where they are not."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import parts_of
from tests.effort import tries


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 9)), max_size=40),
    chunk=st.integers(1, 9),
    least_rows=st.integers(1, 20),
    most_rows=st.none() | st.integers(1, 12),
)
@settings(max_examples=tries(200), deadline=None)
def test_no_row_is_lost_and_no_time_of_a_group_is_parted(
    rows: list[tuple[int, int]], chunk: int, least_rows: int, most_rows: int | None
) -> None:
    rows = sorted(rows)
    table = pa.table({"g": [g for g, _ in rows], "t": [t for _, t in rows], "n": range(len(rows))}, schema=SCHEMA)
    most_bytes = None if most_rows is None else 24 * most_rows
    parts = list(
        parts_of(
            table.to_batches(max_chunksize=chunk), group="g", time="t", least_rows=least_rows, most_bytes=most_bytes
        )
    )
    assert [n for part, _ in parts for n in part["n"].to_pylist()] == list(range(len(rows)))
    for (before, until), (after, _) in pairwise(parts):
        ends, begins = before.slice(before.num_rows - 1).to_pylist()[0], after.slice(0, 1).to_pylist()[0]
        if until is None:
            assert ends["g"] < begins["g"]
        else:
            assert ends["g"] == begins["g"]
            assert ends["t"] < until == begins["t"]
            assert most_bytes is not None
    if parts:
        assert parts[-1][1] is None
    if most_bytes is not None:
        longest = max((rows.count(row) for row in set(rows)), default=0)
        assert max((part.num_rows for part, _ in parts), default=0) <= max(most_rows or 0, least_rows) + chunk + longest


SCHEMA = pa.schema({"g": pa.int32(), "t": pa.int64(), "n": pa.int64()})


def test_a_group_that_may_not_be_parted_comes_whole() -> None:
    table = pa.table({"g": [1] * 50 + [2], "t": range(51), "n": range(51)}, schema=SCHEMA)
    batches = table.to_batches(max_chunksize=4)
    whole = list(parts_of(batches, group="g", time="t", least_rows=8, most_bytes=None))
    assert [(part.num_rows, until) for part, until in whole] == [(50, None), (1, None)]
    parted = list(parts_of(batches, group="g", time="t", least_rows=8, most_bytes=200))
    times = [until for _, until in parted]
    ends = [until for until in times if until is not None]
    assert times[:-1] == sorted(set(ends))
    assert len(times) > 4
    assert all(part.num_rows <= 16 for part, _ in parted)


@pytest.mark.parametrize("most_bytes", [None, 1])
def test_nothing_gives_nothing(most_bytes: int | None) -> None:
    assert list(parts_of([], group="g", time="t", least_rows=1, most_bytes=most_bytes)) == []
