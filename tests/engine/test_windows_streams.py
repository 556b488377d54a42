"""Streams of rows within a budget of memory: the windows of one table, whatever is flushed or carried over."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from spark_jobs.engine.twins.windows import GREATEST, LEAST
from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    Hopping,
    MemoryBudget,
    RowSorter,
    Sessions,
    Sliding,
    Trigger,
    Windowing,
    WindowInputs,
    WindowKind,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from spark_jobs.engine.windows.kinds.kind import Found, SpanKind
from spark_jobs.engine.windows.memory import pressure_level
from spark_jobs.engine.windows.runs import merge_runs
from spark_jobs.engine.windows.streams import PortionLimits, stream_windows
from tests.effort import tries
from tests.engine.whole_tables import adaptive_table, window_table

AGGREGATES = {"n": count(), "s": sum_("v"), "m": avg("v"), "lo": min_("v"), "hi": max_("v")}
INPUTS = WindowInputs(["k", "j"], "t", AGGREGATES | {"a": first("v"), "z": last("v")}, min_end="least", arrival="at")
DAY = 86_400_000_000


class HeldRuns:
    """Runs kept in lists, cut up as a file would hand them back."""

    def __init__(self) -> None:
        self.saved: list[list[pa.Table]] = []

    def save(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        self.saved.append(list(chunks))
        return iter(self.saved[-1])


def rows_of(times: SearchStrategy[int], *, keys: str = "xy") -> SearchStrategy[pa.Table]:
    value = st.none() | st.sampled_from([1e16, 0.1, -3.5, math.nan, -0.0]) | st.floats(-9, 9)
    row = st.tuples(
        st.none() | st.sampled_from(keys),
        st.integers(0, 1),
        st.none() | times,
        st.none() | st.integers(0, 25),
        value,
        st.integers(0, 3),
    )

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        k, j, t, late, v, at = zip(*rows, strict=True) if rows else ((),) * 6
        least = [
            LEAST if lag is None or time is None else min(time + lag, GREATEST)
            for time, lag in zip(t, late, strict=True)
        ]
        columns = {"k": pa.array(k, pa.string()), "j": pa.array(j, pa.int32()), "t": pa.array(t, pa.int64())}
        columns |= {
            "least": pa.array(least, pa.int64()),
            "v": pa.array(v, pa.float64()),
            "at": pa.array(at, pa.int64()),
        }
        return pa.table(columns)

    return st.lists(row, max_size=24).map(table)


def streamed(
    table: pa.Table,
    kind: WindowKind,
    inputs: WindowInputs,
    *,
    budget: MemoryBudget,
    batch: int,
    most_rows: int,
    required: Sequence[str] = (),
    drop_negative: bool = False,
) -> tuple[list[pa.Table], HeldRuns]:
    """Through the sorter and the stream, as a worker does it."""
    store = HeldRuns()
    sorter = RowSorter(
        key=inputs.key, time=inputs.time, budget=budget, store=store, required=required, drop_negative=drop_negative
    )
    for begin in range(0, table.num_rows, batch):
        sorter.add(table.slice(begin, batch))
    return list(stream_windows(sorter.chunks(most_rows), Windowing.of(kind, inputs), PortionLimits(most_rows))), store


def text(tables: list[pa.Table], schema: pa.Schema) -> list[str]:
    """Rows as text: NaN equals itself, and every digit counts."""
    return [repr(row) for row in pa.concat_tables([*tables, schema.empty_table()]).to_pylist()]


SHAPES = st.sampled_from(
    [
        *(Sliding(0, False), Sliding(7, True), Sliding(7, False), Sliding(40, True)),
        *(Sessions(1), Sessions(4), Sessions(30), Hopping(4, 4, 1), Hopping(10, 3), Hopping(20, 1, 5)),
    ]
)
CHUNKS = {"batch": st.sampled_from([1, 3, 100]), "most_rows": st.sampled_from([1, 2, 5, 100])}


EXAMPLES = {1: 8, 1500: 30, 2**30: 30}


@pytest.mark.parametrize("max_bytes", [1, 1500, 2**30], ids=["each row flushed", "some runs", "nothing flushed"])
def test_windows_of_a_stream_are_those_of_the_table(max_bytes: int) -> None:
    @settings(max_examples=EXAMPLES[max_bytes], deadline=None)
    @given(rows_of(st.integers(-3, 45)), SHAPES, CHUNKS["batch"], CHUNKS["most_rows"])
    def check(table: pa.Table, shape: SpanKind, batch: int, most_rows: int) -> None:
        wanted, _ = window_table(table, shape, INPUTS)
        made, _ = streamed(
            table,
            shape,
            INPUTS,
            budget=MemoryBudget(max_bytes),
            batch=batch,
            most_rows=most_rows,
            required=shape.required_columns(INPUTS.aggregates),
            drop_negative=shape.drop_negative,
        )
        assert text(made, wanted.schema) == text([wanted], wanted.schema)

    check()


EDGES = st.sampled_from([LEAST, LEAST + 1, LEAST + 7, -1, 0, 1, GREATEST - 7, GREATEST - 1, GREATEST])
WIDE = st.sampled_from(
    [Sliding(7, False), Sliding(GREATEST, False), Sessions(GREATEST), Hopping(7, 3), Hopping(GREATEST, 2**62)]
)


@settings(max_examples=tries(20), deadline=None)
@given(rows_of(EDGES), WIDE, CHUNKS["most_rows"])
def test_a_stream_holds_at_the_ends_of_int64(
    table: pa.Table, shape: Hopping | Sliding | Sessions, most_rows: int
) -> None:
    wanted, _ = window_table(table, shape, INPUTS)
    made, _ = streamed(
        table,
        shape,
        INPUTS,
        budget=MemoryBudget(1),
        batch=2,
        most_rows=most_rows,
        required=shape.required_columns(INPUTS.aggregates),
    )
    assert text(made, wanted.schema) == text([wanted], wanted.schema)


@settings(max_examples=tries(15), deadline=None)
@given(rows_of(st.integers(-60, 60).map(lambda place: place * DAY // 3)), CHUNKS["most_rows"])
def test_calendar_periods_of_a_stream_are_those_of_the_table(table: pa.Table, most_rows: int) -> None:
    for shape in (Calendar(1, "month", "America/New_York"), Calendar(2, "day", "Pacific/Apia")):
        wanted, _ = window_table(table, shape, INPUTS)
        made, _ = streamed(table, shape, INPUTS, budget=MemoryBudget(1500), batch=3, most_rows=most_rows)
        assert text(made, wanted.schema) == text([wanted], wanted.schema)


@settings(max_examples=tries(15), deadline=None)
@given(rows_of(st.integers(-30, 90)), CHUNKS["most_rows"])
def test_adaptive_windows_of_a_stream_are_those_of_the_table(table: pa.Table, most_rows: int) -> None:
    table = table.append_column("id", pa.array(range(table.num_rows), pa.int64()))
    cuts = Cuts(3, 2, 9, 20, (Trigger("time"), Trigger("count", 4)), 100, 1)
    deltas = Deltas("id", vector="at")
    wanted, _ = adaptive_table(table, cuts, deltas, INPUTS)
    made, _ = streamed(
        table,
        AdaptiveKind(cuts, deltas),
        INPUTS,
        budget=MemoryBudget(1500),
        batch=4,
        most_rows=most_rows,
        required=deltas.columns(),
    )
    assert text(made, wanted.schema) == text([wanted], wanted.schema)


def sorted_rows(n: int, *, start: int = 0, step: int = 1, key: int = 0) -> pa.Table:
    times = range(start, start + n * step, step)
    return pa.table({"k": pa.array([key] * n, pa.int64()), "t": pa.array(times, pa.int64())})


@pytest.mark.parametrize("disjoint", [True, False], ids=["one after the other", "interleaved"])
def test_merging_runs_holds_a_part_of_each(disjoint: bool) -> None:
    n, n_runs = 2000, 4
    asked = []

    def run(number: int) -> Iterator[pa.Table]:
        rows = sorted_rows(n, start=number * (n if disjoint else 1), step=1 if disjoint else n_runs)
        for begin in range(0, n, 50):
            asked.append(number)
            yield rows.slice(begin, 50)

    chunks = list(merge_runs([run(number) for number in range(n_runs)], key=["k"], time="t", rows_of_a_run=100))
    assert pa.concat_tables(chunks).column("t").to_pylist() == list(range(n * n_runs))
    assert max(chunk.num_rows for chunk in chunks) <= 100 * n_runs
    if disjoint:
        # while the first run is given out, the others are held at their beginnings
        assert asked.index(1, asked.index(1) + 2) > 30


def _note_first(noted: list[int], size: int, _: int) -> None:
    noted.append(size)


def test_what_a_stream_holds_does_not_grow_with_its_rows() -> None:
    inputs = WindowInputs(["k"], "t", {"n": count()})
    peaks = []
    for n in (20_000, 200_000):
        held: list[int] = []
        chunks = (sorted_rows(1000, start=begin) for begin in range(0, n, 1000))
        pace = PortionLimits(5000, note_rows=partial(_note_first, held))
        windows = stream_windows(chunks, Windowing.of(Sliding(100, False), inputs), pace)
        made = sum(part.num_rows for part in windows)
        assert made == n + 100
        peaks.append(max(held))
    assert peaks[0] == peaks[1]


def test_a_window_larger_than_what_is_taken_at_a_time_costs_a_bounded_number_of_passes() -> None:
    n, seen = 40_000, []

    class Counting(Sliding):
        def windows(self, table: pa.Table, inputs: WindowInputs) -> Found:
            seen.append(table.num_rows)
            return super().windows(table, inputs)

    windowing = Windowing.of(Counting(10 * n, False), WindowInputs(["k"], "t", {"n": count()}))
    chunks = (sorted_rows(100, start=begin) for begin in range(0, n, 100))
    assert sum(windows.num_rows for windows in stream_windows(chunks, windowing, PortionLimits(100))) == 2 * n - 1
    assert sum(seen) <= 4 * n


def test_a_budget_is_kept_to_by_flushing_and_what_was_flushed_is_told() -> None:
    n, batch = 100_000, 2_000
    table = sorted_rows(n)
    whole, small = MemoryBudget(2**30), MemoryBudget(2**20)
    inputs = WindowInputs(["k"], "t", {"n": count()})
    for budget in (whole, small):
        made, store = streamed(table, Sessions(1), inputs, budget=budget, batch=batch, most_rows=5000)
        assert [windows.num_rows for windows in made if windows.num_rows] == [1]
        assert budget.use.rows == n
        assert len(store.saved) == budget.use.flushed_runs
    assert (whole.use.flushed_runs, whole.use.flushed_bytes) == (0, 0)
    assert small.use.flushed_bytes == table.nbytes
    assert small.use.peak_bytes <= 2**20 < whole.use.peak_bytes


def test_the_share_that_rows_ask_for_has_a_level() -> None:
    shares = {
        "low": [0, 0.5], "normal": [0.51, 0.8], "high": [0.81, 0.87], "critical": [0.88, 0.95], "emergency": [0.96, 7]
    }  # fmt: skip
    assert {level: [pressure_level(share) for share in of] for level, of in shares.items()} == {
        level: [level, level] for level in shares
    }


def test_earlier_shares_flush_more_and_keep_the_order() -> None:
    table = sorted_rows(20_000)
    flushed, order = [], []
    for high_water, emergency in ((0.8, 0.95), (0.2, 0.3)):
        budget = MemoryBudget(2**20, high_water=high_water, emergency=emergency)
        sorter = RowSorter(key=["k"], time="t", budget=budget, store=HeldRuns())
        for begin in range(0, table.num_rows, 500):
            sorter.add(table.slice(begin, 500))
        flushed.append(budget.use.flushed_runs)
        assert pressure_level(budget.use.peak_percent / 100, high_water, emergency) in ("high", "critical", "emergency")
        order.append(pa.concat_tables(sorter.chunks(1000)))
    assert flushed[0] < flushed[1]
    assert order[0].equals(order[1])


def test_a_batch_larger_than_the_budget_is_taken_in_parts() -> None:
    budget = MemoryBudget(50_000)
    sorter = RowSorter(key=["k"], time="t", budget=budget, store=HeldRuns())
    sorter.add(sorted_rows(10_000))
    assert budget.use.peak_bytes <= 50_000
    assert sum(chunk.num_rows for chunk in sorter.chunks(1000)) == 10_000
