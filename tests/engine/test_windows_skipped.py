"""What does not count is named: every row without a window, and every pair of a late row and a closed window."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.twins.windows import GREATEST, LEAST, Content, NaiveRow, Window
from spark_jobs.engine.windows import (
    AdaptiveKind,
    Cuts,
    Deltas,
    Hopping,
    Sessions,
    Sliding,
    Trigger,
    WindowInputs,
    collect,
    count,
    sum_,
)
from spark_jobs.engine.windows.skipped import AdaptiveSkips, late_stream, late_table, unable_rows
from tests.effort import tries
from tests.engine.whole_tables import adaptive_table, skipped_table, window_table

ROW = st.tuples(
    st.sampled_from(["x", "y", None]),
    st.none() | st.integers(-3, 40),
    st.none() | st.integers(0, 25),
    st.none() | st.integers(0, 9),
)
INPUTS = WindowInputs(["k"], "t", {"n": count(), "s": sum_("v")}, min_end="least")


def table_of(rows: list[tuple[str | None, int | None, int | None, int | None]]) -> pa.Table:
    keys, times, late, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    least = [LEAST if lag is None or time is None else time + lag for time, lag in zip(times, late, strict=True)]
    columns = {"k": pa.array(keys, pa.string()), "t": pa.array(times, pa.int64())}
    return pa.table(columns | {"least": pa.array(least, pa.int64()), "v": pa.array(values, pa.int64())})


def reason(row: dict[str, Any], shape: Sliding | Hopping) -> str | None:
    if row["k"] is None:
        return "null_key"
    if row["t"] is None:
        return "null_time"
    if row["v"] is None and shape.null_values == "skip_row":
        return "null_value"
    if row["t"] < 0 and shape.drop_negative:
        return "negative_time"
    return None


def pairs_of_the_definition(
    rows: list[NaiveRow], definition: Callable[[list[NaiveRow]], Content], last_instant: Callable[[Window], int]
) -> Counter[tuple[Any, int, int, int, int]]:
    """(key, time, min_end, start, end) of each late row and each window that had closed, from the twin."""
    punctual = [NaiveRow(row.key, row.time) for row in rows]
    return Counter(
        (rows[n].key, rows[n].time, rows[n].min_end, window.start, window.end)
        for window, numbers in definition(punctual).items()
        for n in numbers
        if last_instant(window) < rows[n].min_end
    )


SHAPES = st.sampled_from([Sliding(5, True), Sliding(5, False), Sliding(0, False), Hopping(10, 3), Hopping(4, 4, 1)])


@settings(max_examples=tries(80), deadline=None)
@given(st.lists(ROW, max_size=12).map(table_of), SHAPES)
def test_each_row_is_counted_or_named_and_each_closed_window_is_a_pair(
    table: pa.Table, shape: Sliding | Hopping
) -> None:
    skipped = skipped_table(table, shape, INPUTS).to_pylist()
    rows = table.to_pylist()
    wanted = Counter(reason(row, shape) for row in rows if reason(row, shape))
    assert Counter(row["reason"] for row in skipped if row["reason"] not in ("late", "late_row")) == wanted
    able = [NaiveRow(row["k"], row["t"], row["least"]) for row in rows if reason(row, shape) is None]
    if isinstance(shape, Sliding):

        def definition(held: list[NaiveRow]) -> Content:
            return naive.sliding_windows(held, size=shape.size, clip_at_zero=shape.clip_at_zero)

        pairs = pairs_of_the_definition(able, definition, lambda window: window.end)
    else:

        def definition(held: list[NaiveRow]) -> Content:
            return naive.hopping_windows(held, size=shape.size, advance=shape.advance, offset=shape.offset)

        pairs = pairs_of_the_definition(able, definition, lambda window: window.end - 1)
    late = [row for row in skipped if row["reason"] == "late"]
    assert Counter((r["k"], r["t"], r["least"], r["window_start"], r["window_end"]) for r in late) == pairs
    _, counts = window_table(table, shape, INPUTS)
    nowhere = [row for row in skipped if row["reason"] == "late_row"]
    assert len(nowhere) == counts.late_rows
    assert {(r["k"], r["t"], r["least"]) for r in nowhere} <= {(r["k"], r["t"], r["least"]) for r in late}
    assert all(row["window_start"] is None for row in nowhere)


@settings(max_examples=tries(60), deadline=None)
@given(st.lists(ROW, max_size=12).map(table_of), st.sampled_from([1, 6]))
def test_a_row_late_for_its_session_is_named_once(table: pa.Table, gap: int) -> None:
    skipped = skipped_table(table, Sessions(gap), INPUTS).to_pylist()
    late = Counter((row["k"], row["t"], row["least"]) for row in skipped if row["reason"] == "late")
    assert late == Counter(
        (row["k"], row["t"], row["least"])
        for row in table.to_pylist()
        if row["k"] is not None and row["t"] is not None and row["t"] + gap < row["least"]
    )
    assert late == Counter((row["k"], row["t"], row["least"]) for row in skipped if row["reason"] == "late_row")
    assert all(row["window_start"] is None for row in skipped)


EDGE = st.sampled_from([LEAST, LEAST + 1, LEAST + 6, -1, 0, 3, GREATEST - 6, GREATEST - 1, GREATEST])
EDGES = st.tuples(st.sampled_from("xy"), EDGE, st.none() | EDGE, st.integers(0, 1))
WIDE = st.sampled_from([Sliding(5, False), Hopping(10, 3), Sliding(GREATEST, False), Hopping(GREATEST, 2**62)])


def edges(rows: list[tuple[str, int, int | None, int]]) -> pa.Table:
    keys, times, least, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {"k": pa.array(keys, pa.string()), "t": pa.array(times, pa.int64())}
    least = pa.array([LEAST if at is None else at for at in least], pa.int64())
    return pa.table(columns | {"least": least, "v": pa.array(values, pa.int64())})


@settings(max_examples=tries(80), deadline=None)
@given(
    st.lists(ROW, max_size=16).map(table_of) | st.lists(EDGES, max_size=10).map(edges),
    SHAPES | WIDE,
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_a_stream_tells_what_the_table_does(
    table: pa.Table, shape: Hopping | Sliding, size: int, most_rows: int
) -> None:
    able, _ = unable_rows(table, shape, INPUTS)
    able = able.sort_by([("k", "ascending"), ("t", "ascending")])
    chunks = (able.slice(begin, size) for begin in range(0, able.num_rows, size))
    told = [row for part in late_stream(chunks, shape, INPUTS, most_rows=most_rows) for row in part.to_pylist()]
    expected = late_table(able, shape, INPUTS).to_pylist()
    assert Counter(map(repr, told)) == Counter(map(repr, expected))


GRIDS = st.sampled_from([(5, 2), (20, 20), (20, 3), (2**62, 2**61), (GREATEST, GREATEST), (GREATEST, 2**62)])


def over(time: int, size: int, advance: int, offset: int) -> list[int]:
    """The starts of all grid windows over a time."""
    last = (time - offset) // advance * advance + offset
    return [start for start in range(last - size // advance * advance, last + 1, advance) if start + size > time]


def within(bound: int) -> int:
    return min(max(bound, LEAST), GREATEST)


@settings(max_examples=tries(80), deadline=None)
@given(st.lists(EDGES, max_size=8).map(edges), GRIDS, st.sampled_from([0, 1, -3, GREATEST]), EDGE)
def test_lateness_holds_at_the_ends_of_int64(table: pa.Table, grid: tuple[int, int], offset: int, placed: int) -> None:
    size, advance = grid
    table = table.append_column("i", pa.array(range(table.num_rows), pa.int64()))
    late: Counter[tuple[Any, ...]] = Counter()
    windows: Counter[tuple[Any, ...]] = Counter()
    at = []
    for row in table.to_pylist():
        opened = over(row["t"], size, advance, offset)
        counted = [start for start in opened if start + size - 1 >= row["least"]]
        late.update((row["i"], within(s), within(s + size), "late") for s in opened if s not in counted)
        late.update([] if counted else [(row["i"], None, None, "late_row")])
        moved = [start for start in over(placed, size, advance, offset) if start + size - 1 >= row["least"]]
        windows.update((row["k"], within(s), within(s + size), row["i"]) for s in counted or moved)
        at.append(row["t"] if counted else placed)
    shape = Hopping(size, advance, offset)
    told = skipped_table(table, shape, INPUTS).to_pylist()
    assert Counter((r["i"], r["window_start"], r["window_end"], r["reason"]) for r in told) == late
    inputs = WindowInputs(["k"], "t", {"rows": collect("i", 99)}, min_end="least", placed="at")
    made = window_table(table.append_column("at", pa.array(at, pa.int64())), shape, inputs)[0].to_pylist()
    assert Counter((r["k"], r["window_start"], r["window_end"], i) for r in made for i in r["rows"]) == windows


DELTA_ROW = st.tuples(
    st.sampled_from(["x", "y", None]),
    st.none() | st.integers(-3, 40),
    st.none() | st.integers(0, 25),
    st.none() | st.sampled_from("abcd"),
    st.none() | st.integers(0, 5),
)
CUTS = Cuts(2, 1, 9, 10, (Trigger("time"), Trigger("count", 2)), 2**30, 1)
DELTAS = Deltas("id", None, "size")
DELTA_INPUTS = WindowInputs(["k"], "t", {}, min_end="least")


def deltas_of(rows: list[tuple[str | None, int | None, int | None, str | None, int | None]]) -> pa.Table:
    keys, times, late, ids, sizes = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    least = [LEAST if lag is None or time is None else time + lag for time, lag in zip(times, late, strict=True)]
    columns = {"k": pa.array(keys, pa.string()), "t": pa.array(times, pa.int64()), "id": pa.array(ids, pa.string())}
    columns |= {"size": pa.array(sizes, pa.int64()), "least": pa.array(least, pa.int64())}
    return pa.table(columns)


def adaptive_reasons(rows: list[dict[str, Any]]) -> tuple[Counter[str], dict[tuple[str, int, str], int]]:
    """Why each row counts in no adaptive window, by definition."""
    reasons: Counter[str] = Counter()
    first_of: dict[tuple[str, int, str], int] = {}
    for row in rows:
        if row["k"] is None or row["t"] is None:
            reasons["null_key" if row["k"] is None else "null_time"] += 1
        elif row["id"] is None or row["size"] is None:
            reasons["null_value"] += 1
        elif row["t"] // CUTS.reset * CUTS.reset + CUTS.reset - 1 < row["least"]:
            reasons["late"] += 1
            reasons["late_row"] += 1
        else:
            cell = row["k"], row["t"] // CUTS.reset, row["id"]
            if cell in first_of:
                reasons["repeated_id"] += 1
            first_of[cell] = min(first_of.get(cell, row["t"]), row["t"])
    return reasons, first_of


@settings(max_examples=tries(120), deadline=None)
@given(st.lists(DELTA_ROW, max_size=25).map(deltas_of), st.integers(1, 9), st.integers(1, 6))
def test_each_row_is_in_an_adaptive_window_or_named(table: pa.Table, most_rows: int, a_chunk: int) -> None:
    skips = AdaptiveSkips(AdaptiveKind(CUTS, DELTAS), DELTA_INPUTS)
    told, able = skips.told_at_once(table)
    assert able is not None
    ordered = able.sort_by([("k", "ascending"), ("t", "ascending")])
    chunks = [ordered.slice(start, a_chunk) for start in range(0, ordered.num_rows, a_chunk)]
    skipped = pa.concat_tables([*told, *skips.stream(iter(chunks), most_rows)]).to_pylist() if chunks or told else []
    wanted, counted = adaptive_reasons(table.to_pylist())
    assert Counter(row["reason"] for row in skipped) == wanted
    assert all(row["window_start"] is None and row["window_end"] is None for row in skipped)
    # of the rows with one id the first counts, so a later one is named
    for row in skipped:
        if row["reason"] == "repeated_id":
            assert row["t"] >= counted[row["k"], row["t"] // CUTS.reset, row["id"]]
    windows, _ = adaptive_table(table, CUTS, DELTAS, DELTA_INPUTS)
    assert sum(len(window["delta_ids"]) for window in windows.to_pylist()) == len(counted)
    named = sum(n for reason, n in wanted.items() if reason != "late")
    assert len(counted) + named == table.num_rows
