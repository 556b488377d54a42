"""Placing updates: consolidation, order and the horizon against plain Python."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.calendar import Drops
from spark_jobs.engine.updates import Horizon, consolidate_rows, sort_numbers, visible_times

SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("entity", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("heat", pa.float64()),
        ("extra", pa.map_(pa.string(), pa.string())),
        ("diff", pa.int64()),
    ]
)
extras = st.none() | st.permutations([("a", "1"), ("b", "2")]) | st.just([("a", "2")])
update = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["a", "b", "é", ""]),
    st.integers(-2, 2),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan]),
    extras,
    st.sampled_from([-1, 1]),
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def data(row: dict[str, Any]) -> tuple[Any, ...]:
    heat = None if row["heat"] is None else "nan" if math.isnan(row["heat"]) else struct.pack("<d", row["heat"])
    extra = None if row["extra"] is None else tuple(sorted(row["extra"]))
    return row["row_id"], row["entity"], row["event_time"], heat, extra


@given(st.lists(update, max_size=12))
def test_what_is_left_is_the_sum_of_equal_updates(rows: list[tuple[Any, ...]]) -> None:
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in table(rows).to_pylist():
        sums[data(row)] += row["diff"]
    left = consolidate_rows(table(rows)).to_pylist()
    assert {data(row): row["diff"] for row in left} == {key: n for key, n in sums.items() if n}
    assert len(left) == sum(n != 0 for n in sums.values())


@given(st.lists(update, max_size=12), st.integers(1, 3))
def test_a_batch_is_in_the_order_of_its_columns(rows: list[tuple[Any, ...]], every: int) -> None:
    names = ["entity", "event_time", "row_id", "diff"]
    updates, of_batch = table(rows), np.arange(0, len(rows), every)
    batch = updates.take(pa.array(sort_numbers(updates, of_batch, names)))
    found = [tuple(row[name] for name in names) for row in batch.to_pylist()]
    expected = sorted(tuple(row[name] for name in names) for row in updates.to_pylist()[::every])
    assert found == expected  # code points and UTF-8 bytes of these texts order alike


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=9),
    st.none() | st.integers(0, 30),
    st.integers(-5, 40),
    st.integers(0, 5),
)
def test_a_row_lies_below_the_horizon_of_its_own_drop(
    rows: list[tuple[int, int]], kept: int | None, standing: int, first_drop: int
) -> None:
    horizon = Horizon(standing, kept, Drops(0, 10), 10 * first_drop)
    events, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    expected = []
    for event, time in rows:
        opens = time // 10 * 10
        moved = opens - kept if kept is not None and opens > 10 * first_drop else standing
        expected.append(event < max(standing, moved))
    assert horizon.rows_below(events, times).tolist() == expected


def test_a_row_is_visible_once_it_happened_came_and_the_seal_allows() -> None:
    events, starts = np.array([5, 50, 5, 5]), np.array([10, 10, 10, 10])
    assert visible_times(events, starts, 3).tolist() == [10, 50, 10, 10]
    assert visible_times(events, starts, 20).tolist() == [20, 50, 20, 20]
    arrivals = pa.chunked_array([pa.array([30, None, 7, 1])])
    assert visible_times(events, starts, 3, arrivals).tolist() == [30, 50, 7, 5]
