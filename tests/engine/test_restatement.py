"""Corrections against recomputation: published + corrections = the windows of all rows that stand, after any
history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine import windows as kernels
from spark_jobs.engine.restatement import CLOSING, LIVE, key_codes
from spark_jobs.engine.restatement.comparison import PublishedStream, RepeatedWindowError
from spark_jobs.engine.restatement.window_corrections import current_rows, restate
from spark_jobs.engine.windows import Windowing, WindowRows
from spark_jobs.engine.windows.streams import PortionLimits
from tests.effort import tries

AGGREGATES = {"n": kernels.count(), "total": kernels.sum_("value"), "mean": kernels.avg("ratio")}
ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("time", pa.int64()),
        ("placed", pa.int64()),
        ("row_id", pa.int64()),
        ("diff", pa.int64()),
        ("touched", pa.bool_()),
        ("min_end", pa.int64()),
        ("value", pa.int64()),
        ("ratio", pa.float64()),
    ]
)
SIZE = 5
_SHARED: dict[str, Any] = {
    "key": ["key"], "time": "time", "aggregates": AGGREGATES, "min_end": "min_end", "arrival": "row_id",
}  # fmt: skip


INPUTS = kernels.WindowInputs(**_SHARED)
CUTS = kernels.Cuts(
    target=2, shortest=1, longest=7, reset=12, memory_bytes=99, rate_unit=1,
    triggers=(kernels.Trigger("time"), kernels.Trigger("count", 3), kernels.Trigger("rate_change", 0.5)),
)  # fmt: skip

KINDS = {
    "sliding": Windowing.of(kernels.Sliding(SIZE, clip_at_zero=False), INPUTS),
    "session": Windowing.of(kernels.Sessions(SIZE), INPUTS),
    "hopping": Windowing.of(kernels.Hopping(SIZE, 2), INPUTS),
    "adaptive": Windowing.of(kernels.AdaptiveKind(CUTS, kernels.Deltas("row_id", "value", unique=True)), INPUTS),
    "adaptive, ids come again": Windowing.of(kernels.AdaptiveKind(CUTS, kernels.Deltas("value")), INPUTS),
}
chunks = st.integers(1, 7)


def windows_of(windowing: Windowing, rows: list[dict[str, Any]]) -> pa.Table:
    """All windows of rows that stand."""
    found = windowing.find(_table(rows).drop_columns(["diff", "touched"]))
    return found.table(0, found.windows.start.size, None)


def corrected(
    rows: list[dict[str, Any]], published: pa.Table, windowing: Windowing, size: int = 1, **how: Any
) -> pa.Table:
    """`restate` of whole tables, as streams of chunks of this size that are worked on one by one."""
    updates = _table(rows).sort_by([("key", "ascending"), ("placed", "ascending")])
    shown = published.append_column("era", pa.array([LIVE] * published.num_rows, pa.string()))
    kind = windowing.kind
    shown = kind.in_place(shown)
    shown = shown.sort_by([(name, "ascending") for name in ("key", *kind.order_columns, kind.position)])
    stream = PublishedStream(_chunks(shown, size), shown.schema)
    made = list(restate(_chunks(updates, size), stream, windowing, PortionLimits(size, most_bytes=size), **how))
    return pa.concat_tables(made) if made else shown.slice(0, 0).append_column("known_to", pa.array([], pa.int64()))


def _chunks(table: pa.Table, size: int) -> Iterator[pa.Table]:
    return (table.slice(begin, size) for begin in range(0, table.num_rows, size))


row = st.tuples(
    st.sampled_from(["a", "b", ""]), st.integers(-20, 20), st.integers(-30, 25), st.integers(-9, 9), st.integers(1, 7)
)
crowd = st.tuples(
    st.lists(
        st.tuples(st.sampled_from("aab"), st.integers(0, 14), st.just(-99) | st.integers(0, 14), st.integers(1, 9),
        st.just(1)),
        max_size=14,
    ),
    st.lists(st.integers(0, 10**6), max_size=9),
)  # fmt: skip
"""Rows of few keys and two cells, of which many are taken back."""
step = st.tuples(st.lists(row, max_size=6), st.lists(st.integers(0, 10**6), max_size=3))


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{**row, "placed": row["time"]} for row in rows], schema=ROWS)


def _apply(published: pa.Table, made: pa.Table) -> pa.Table:
    same = ["key", "window_id" if "window_id" in published.column_names else "window_start", "known_from"]
    closed = made.filter(pc.equal(made["era"], CLOSING)).select(same).to_pylist()
    kept = [w for w in published.to_pylist() if {name: w[name] for name in same} not in closed]
    assert len(kept) == published.num_rows - len(closed), "a closing names a published window"
    opened = made.filter(pc.equal(made["era"], LIVE)).select(published.column_names)
    return pa.concat_tables([pa.Table.from_pylist(kept, schema=published.schema), opened.cast(published.schema)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=tries(60), deadline=None)
@given(steps=st.lists(step, min_size=1, max_size=5), size=chunks)
def test_corrections_lead_to_what_a_recomputation_gives(kind: str, steps: list[Any], size: int) -> None:
    _check_corrections(KINDS[kind], steps, size)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("adaptive")])
@settings(max_examples=tries(150), deadline=None)
@given(steps=st.lists(crowd, min_size=2, max_size=4), size=chunks)
def test_corrections_of_crowded_cells_lead_there_whatever_is_read_at_once(
    kind: str, steps: list[Any], size: int
) -> None:
    _check_corrections(KINDS[kind], steps, size)


def test_a_key_of_which_all_rows_went_takes_nothing_from_the_key_before_it() -> None:
    base = {"diff": 1, "min_end": -99, "ratio": 1.0, "touched": True}
    rows = [{**base, "key": "a", "time": at, "row_id": n, "value": 1} for n, at in enumerate((0, 0, 1))]
    gone = {**base, "key": "b", "time": 2, "row_id": 7, "value": 1}
    rows += [gone, {**gone, "diff": -1}, *({**gone, "time": at, "row_id": at + 10} for at in (3, 9, 11))]
    windowing = KINDS["adaptive"]
    expected = windows_of(windowing, [row for row in rows if row["row_id"] != 7])
    for size in range(1, 10):
        made = corrected(rows, _empty(windowing), windowing, size, known_from=1)
        assert _sorted(made.select(expected.column_names)) == _sorted(expected)


def _check_corrections(windowing: Windowing, steps: list[Any], size: int) -> None:
    published = _empty(windowing)
    updates: list[dict[str, Any]] = []
    alive: list[dict[str, Any]] = []
    for known_from, (came, went) in enumerate(steps):
        fresh: list[dict[str, Any]] = []
        for key, time, min_end, value, ratio in came:
            new = {"key": key, "time": time, "min_end": min_end, "value": value, "ratio": 1 / ratio}
            fresh.append({**new, "row_id": len(updates) + len(fresh), "diff": 1, "touched": True})
        for pick in went:
            if alive:
                fresh.append({**alive.pop(pick % len(alive)), "diff": -1, "touched": True})
        made = corrected(updates + fresh, published, windowing, size, known_from=known_from)
        published = _apply(published, made)
        updates += [{**u, "touched": False} for u in fresh]
        alive += [u for u in fresh if u["diff"] == 1]
        values = [name for name in published.column_names if name not in ("known_from", "revision")]
        expected = windows_of(windowing, alive).select(values)
        assert _sorted(published.select(values)) == _sorted(expected)


def _empty(windowing: Windowing) -> pa.Table:
    return (
        windows_of(windowing, [])
        .append_column("known_from", pa.array([], pa.int64()))
        .append_column("revision", pa.array([], pa.int32()))
    )


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


def test_an_update_that_changes_no_result_makes_no_correction() -> None:
    at_most_one = replace(INPUTS, aggregates={"n": _AtMostOne()})
    windowing = Windowing.of(kernels.Sliding(SIZE, clip_at_zero=False), at_most_one)
    rows = [{"key": "a", "time": 3, "row_id": i, "diff": 1, "touched": False, "min_end": -99, "value": 1, "ratio": 1.0}
            for i in (1, 2)]  # fmt: skip
    first = corrected(rows[:1], _capped(), windowing, known_from=0, everything=True)
    published = first.select(_capped().column_names)
    rows[1]["touched"] = True
    assert corrected(rows, published, windowing, known_from=1).num_rows == 0


class _AtMostOne(kernels.Aggregate):
    """1 in every window."""

    column = None

    def output_type(self, values: pa.DataType) -> pa.DataType:
        return pa.int64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        return pa.array([1] * rows.spans.n_windows, pa.int64())


def _capped() -> pa.Table:
    types = {"key": pa.string(), "window_start": pa.int64(), "window_end": pa.int64(), "n": pa.int64()}
    fields = {**types, "known_from": pa.int64(), "revision": pa.int32()}
    return pa.table({name: pa.array([], of) for name, of in fields.items()})


def test_only_affected_windows_are_compared() -> None:
    # rows beyond reach are missing here: a window that no touched row affects must not be taken back for it
    published = pa.table(
        {"key": ["a", "a"], "window_start": [0, 100], "window_end": [5, 105], "n": [7, 7], "total": [1, 1],
         "mean": [1.0, 1.0], "known_from": [0, 0], "revision": pa.array([0, 0], pa.int32())}
    )  # fmt: skip
    touched = {"key": "a", "time": 3, "row_id": 1, "diff": 1, "touched": True, "min_end": -99, "value": 1, "ratio": 1.0}
    made = corrected([touched], published, KINDS["sliding"], known_from=9)
    assert made.filter(pc.equal(made["era"], CLOSING))["window_start"].to_pylist() == [0]


def test_a_window_of_which_half_was_read_is_not_summed() -> None:
    # what lies beyond what was read makes the windows over the rows at 90 fit; no touched row is near them
    base = {"key": "a", "diff": 1, "min_end": -99, "ratio": 1.0, "touched": False, "value": 2**62}
    rows = [{**base, "time": 3, "row_id": 1, "touched": True, "value": 1}]
    rows += [{**base, "time": 90, "row_id": at} for at in (2, 3)]
    made = corrected(rows, _empty(KINDS["sliding"]), KINDS["sliding"], known_from=9)
    assert made.select(["window_start", "n", "total"]).to_pylist() == [{"window_start": -2, "n": 1, "total": 1}]
    with pytest.raises(kernels.IntegerOverflow):
        corrected(rows, _empty(KINDS["sliding"]), KINDS["sliding"], known_from=9, everything=True)


def test_a_restated_window_counts_its_revisions() -> None:
    base = {"key": "a", "time": 1, "diff": 1, "min_end": -99, "ratio": 1.0}
    rows = [{**base, "row_id": i, "value": i} for i in range(3)]
    published = _empty(KINDS["session"])
    for seen in (1, 2, 3):
        current = [{**r, "touched": r["row_id"] == seen - 1} for r in rows[:seen]]
        published = _apply(published, corrected(current, published, KINDS["session"], known_from=seen))
    assert published.select(["n", "revision", "known_from"]).to_pylist() == [{"n": 3, "revision": 2, "known_from": 3}]


def test_a_window_that_is_published_twice_is_refused_by_its_name() -> None:
    base = {"key": "a", "diff": 1, "min_end": -99, "ratio": 1.0}
    rows = [{**base, "row_id": i, "time": 100 * i, "value": i, "touched": True} for i in range(3)]
    published = _apply(
        _empty(KINDS["session"]), corrected(rows, _empty(KINDS["session"]), KINDS["session"], known_from=1)
    )
    for window in range(3):
        twice = pa.concat_tables([published, published.slice(window, 1)])
        with pytest.raises(RepeatedWindowError) as refusal:
            corrected(rows, twice, KINDS["session"], size=9, known_from=2)
        assert refusal.value.facts["window"] == {"key": "a", "window_start": 100 * window}


def test_a_row_that_came_and_went_does_not_stand() -> None:
    base = {"key": "a", "time": 1, "min_end": 0, "value": 1, "ratio": 1.0, "touched": False}
    gone = {**base, "row_id": 1, "diff": -1, "touched": True}
    rows = [{**base, "row_id": 1, "diff": 1}, gone, {**base, "row_id": 2, "diff": 1}]
    assert current_rows(_table(rows))["row_id"].to_pylist() == [2]


def test_equal_keys_have_equal_codes_across_tables_and_null_is_a_key() -> None:
    left, right = pa.table({"k": ["x", None, "y"]}), pa.table({"k": [None, "y", "z"]})
    ours, theirs = key_codes([left, right], ("k",))
    assert ours[1] == theirs[0]
    assert ours[2] == theirs[1]
    assert len({*ours, *theirs}) == 4


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=tries(20), deadline=None)
@given(steps=st.lists(step, min_size=1, max_size=4), keep=st.integers(0, 30), size=chunks)
def test_windows_that_are_kept_no_longer_go_and_no_late_row_brings_them_back(
    kind: str, steps: list[Any], keep: int, size: int
) -> None:
    windowing = KINDS[kind]
    published = _empty(windowing)
    rows: list[dict[str, Any]] = []
    for now, (came, _) in enumerate(steps):
        fresh = [
            {"key": key, "time": time, "min_end": min_end, "value": value, "ratio": 1 / ratio, "row_id": len(rows) + i}
            for i, (key, time, min_end, value, ratio) in enumerate(came)
        ]
        rows += [{**row, "diff": 1, "touched": True} for row in fresh]
        expired = 10 * now - keep
        made = corrected(rows, published, windowing, size, known_from=now, expired=expired)
        published = _apply(published, made)
        rows = [{**row, "touched": False} for row in rows]
        values = [name for name in published.column_names if name not in ("known_from", "revision")]
        everything = windows_of(windowing, rows).select(values)
        expected = everything.filter(pc.greater(everything["window_end"], expired))
        assert _sorted(published.select(values)) == _sorted(expected)
