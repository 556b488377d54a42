"""Rows that say their operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.deltas import (
    CompactionPolicy,
    DeltaColumns,
    Frontiers,
    Keys,
    Meaning,
    Op,
    Refusal,
    RestatedChains,
    Segments,
    TimeBoundary,
    changes_of,
    pack,
    restate_chains,
    states_for,
    states_table,
    unpack,
    versions,
)
from spark_jobs.engine.deltas.ops import MalformedDeltasError

COLUMNS = DeltaColumns(
    entity="entity", time="event_time", row_id="row_id", op="op", indices="indices", values="values", scalar="by",
    transform="how", delta_id="id", parent="after",
)  # fmt: skip
SCHEMA = pa.schema(
    {
        "entity": pa.string(),
        "event_time": pa.int64(),
        "row_id": pa.int64(),
        "op": pa.string(),
        "indices": pa.list_(pa.int32()),
        "values": pa.list_(pa.float64()),
        "by": pa.float64(),
        "how": pa.string(),
        "id": pa.string(),
        "after": pa.string(),
    }
)


def deltas(*rows: dict[str, Any]) -> pa.Table:
    full = [{"entity": "a", "event_time": i, "row_id": i, "id": f"d{i}", **row} for i, row in enumerate(rows)]
    return pa.Table.from_pylist(full, schema=SCHEMA)


ENTITIES = pa.array(["a", "b"])


def chained(
    table: pa.Table, dtype: str = "float64", published: Segments | None = None, **options: Any
) -> RestatedChains:
    meaning = Meaning("operations", dtype, operations=COLUMNS, **options.pop("meaning", {}))
    table = table.append_column("time", table["event_time"]).append_column("diff", pa.array([1] * len(table)))
    before = Segments.empty(dtype, meaning.dims, ids=True) if published is None else published
    return restate_chains(before, changes_of(table, ENTITIES, meaning), CompactionPolicy(), as_of=99, **options)


def folded(table: pa.Table, names: list[str] | None = None, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    step = chained(table, meaning={"components": dict.fromkeys(names, 0) if names else None}, **options)
    places = np.zeros(0, np.int64)
    states = states_table(step.states, Keys(ENTITIES.take(pa.array(step.entities)), places, places), names, pa.int64())
    refused = np.flatnonzero(step.segments.refusal)
    reasons = [Refusal(int(step.segments.refusal[i])).code for i in refused]
    rows = step.segments.deltas.row_id[refused].tolist()
    return {row["entity"]: row for row in states.to_pylist()}, sorted(zip(rows, reasons, strict=True))


def test_every_operation_is_read_from_its_columns() -> None:
    states, refused = folded(
        deltas(
            {"op": "create", "values": [1.0, 2.0, 3.0]},
            {"op": "sparse", "indices": [2, 0], "values": [None, 10.0]},
            {"op": "scale", "by": 2.0},
            {"op": "offset", "by": 1.0},
            {"op": "add", "indices": [1], "values": [0.5]},
            {"op": "transform", "how": "negate"},
        ),
        transforms={"negate": np.negative},
    )
    assert refused == []
    assert states["a"]["vector"] == [-21.0, -5.5, None]
    assert (states["a"]["timestamp"], states["a"]["at_delta"], states["a"]["delta_count"]) == (5, 5, 6)
    assert states["a"]["names"] is None


def test_refused_deltas_are_listed_with_their_reason_and_skipped() -> None:
    states, refused = folded(
        deltas(
            {"op": "scale", "by": 2.0},
            {"op": "create", "values": [1.0, 2.0]},
            {"op": "create", "values": [5.0, 5.0]},
            {"op": "dense", "values": [5.0]},
            {"op": "sparse", "indices": [0, 1], "values": [5.0]},
            {"op": "sparse", "indices": [2], "values": [5.0]},
            {"op": "sparse", "indices": [None], "values": [5.0]},
            {"op": "offset", "by": float("nan")},
            {"op": "add", "indices": [0], "values": [None]},
            {"op": "explode"},
            {"op": "transform", "how": "unheard"},
            {"op": "delete"},
            {"op": "scale", "by": 2.0},
        )
    )
    reasons = "missing_base create_on_live dimension_mismatch unequal_lists index_out_of_bounds index_out_of_bounds"
    reasons += " non_finite null_operand unknown_operation unknown_transform deleted"
    assert refused == list(zip([0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12], reasons.split(), strict=True))
    assert states["a"]["deleted"]
    assert states["a"]["delta_count"] == 2


def test_a_parent_must_be_applied_before_its_child_in_the_chain() -> None:
    table = deltas(
        {"op": "create", "values": [1.0]},
        {"op": "offset", "by": 1.0, "after": "d0"},
        {"op": "offset", "by": 2.0, "after": "d3"},
        {"op": "offset", "by": 4.0, "after": "nowhere"},
        {"op": "offset", "by": 8.0, "after": "d3"},
        {"entity": "b", "op": "create", "values": [9.0], "after": "d0"},
    )
    states, refused = folded(table)
    assert refused == [(i, "missing_parent") for i in (2, 3, 4, 5)]
    assert states["a"]["vector"] == [2.0]
    assert "b" not in states


def test_a_parent_may_be_in_an_earlier_run() -> None:
    table = deltas({"op": "create", "values": [1.0]}, {"op": "offset", "by": 1.0, "after": "d0"})
    first = chained(table.slice(0, 1))
    together = chained(table.slice(1), published=first.segments)
    assert together.segments.refusal.tolist() == [0, 0]
    assert together.states.values.tolist() == [2.0]


def test_lists_that_could_not_be_read_refuse_their_row_also_once_stored() -> None:
    table = deltas({"op": "create", "values": [1.0, 2.0]}, {"op": "sparse"}, {"op": "create"})
    table = table.append_column("broken", pa.array([False, True, None]))
    table = table.append_column("time", table["event_time"]).append_column("diff", pa.array([1] * len(table)))
    meaning = Meaning("operations", "float64", operations=replace(COLUMNS, unreadable="broken"))
    nothing = Segments.empty("float64", None, ids=True)
    step = restate_chains(nothing, changes_of(table, ENTITIES, meaning), CompactionPolicy(), as_of=99)
    assert step.segments.refusal.tolist() == [0, Refusal.UNREADABLE_LIST, Refusal.DIMENSION_MISMATCH]
    packed = pack(step.segments, ENTITIES, names=None, full_rows=False)
    stored = unpack(packed, ENTITIES, dtype="float64", dims=None, ids=True)
    later = deltas({"entity": "b", "op": "create", "values": [1.0]}).append_column("time", pa.array([9]))
    later = later.append_column("diff", pa.array([1])).append_column("broken", pa.array([False]))
    again = restate_chains(stored, changes_of(later, ENTITIES, meaning), CompactionPolicy(), as_of=99)
    assert again.segments.refusal.tolist() == [0, Refusal.UNREADABLE_LIST, Refusal.DIMENSION_MISMATCH, 0]


@pytest.mark.parametrize("op", ["scale", "offset"])
@pytest.mark.parametrize("declared", [True, False])
def test_arithmetic_without_its_scalar_is_refused_also_once_stored(op: str, declared: bool) -> None:
    rows = deltas({"op": "create", "values": [1.0, 2.0]}, {"op": op}, {"entity": "b", "op": "create", "values": [1.0]})
    rows = rows.append_column("time", rows["event_time"]).append_column("diff", pa.array([1] * len(rows)))
    meaning = Meaning("operations", "float64", operations=COLUMNS if declared else replace(COLUMNS, scalar=None))
    nothing = Segments.empty("float64", None, ids=True)
    first = restate_chains(nothing, changes_of(rows.slice(0, 2), ENTITIES, meaning), CompactionPolicy(), as_of=99)
    packed = pack(first.segments, ENTITIES, names=None, full_rows=False)
    stored = unpack(packed, ENTITIES, dtype="float64", dims=None, ids=True)
    again = restate_chains(stored, changes_of(rows.slice(2), ENTITIES, meaning), CompactionPolicy(), as_of=99)
    for step in (first, again):
        assert step.segments.refusal.tolist()[:2] == [0, Refusal.NULL_OPERAND]
        assert step.states.entity(0).vector == (1.0, 2.0)


@pytest.mark.parametrize(
    "refused", [{"op": "sparse", "indices": [0, 1], "values": [5.0]}, {"op": "scale"}, {"op": "offset", "after": "d0"}]
)
def test_a_refused_row_that_is_taken_back_changes_no_answer_of_before(refused: dict[str, Any]) -> None:
    rows = deltas({"op": "create", "values": [1.0, 2.0]}, refused)
    rows = rows.append_column("time", rows["event_time"])
    meaning = Meaning("operations", "float64", operations=COLUMNS)
    came = rows.append_column("diff", pa.array([1, 1]))
    went = rows.slice(1).set_column(rows.column_names.index("time"), "time", pa.array([5]))
    held = Segments.empty("float64", None, ids=True)
    answers = []
    for step in (came, went.append_column("diff", pa.array([-1]))):
        segments = restate_chains(held, changes_of(step, ENTITIES, meaning), CompactionPolicy(), as_of=99).segments
        packed = pack(segments, ENTITIES, names=None, full_rows=False)
        held = unpack(packed, ENTITIES, dtype="float64", dims=None, ids=True)
        answers.append(states_for(held, *(np.array([asked]) for asked in (0, 99, 4))).entity(0))
    assert answers[0].vector == (1.0, 2.0)
    assert (answers[0].at_delta, answers[0].delta_count) == (0, 1)
    assert answers[1] == answers[0]


def test_history_stands_on_what_retention_let_go() -> None:
    rows = deltas({"op": "create", "values": [1.0]}, *({"op": "offset", "by": 1.0, "after": "d0"} for _ in range(8)))
    rows = rows.append_column("time", rows["event_time"]).append_column("diff", pa.array([1] * len(rows)))
    meaning, policy = (
        Meaning("operations", "float64", operations=COLUMNS),
        CompactionPolicy(TimeBoundary(2), delta_threshold=1),
    )
    held = Segments.empty("float64", None, ids=True)
    for part, frontiers in ((rows.slice(0, 8), Frontiers()), (rows.slice(8), Frontiers(since=5, horizon=5))):
        changes = changes_of(part, ENTITIES, meaning)
        segments = restate_chains(held, changes, policy, as_of=99, frontiers=frontiers).segments
        packed = pack(segments, ENTITIES, names=None, full_rows=False)
        held = unpack(packed, ENTITIES, dtype="float64", dims=None, ids=True)
    told = [(version.event_time, version.refusal, version.state.vector) for version in versions(held)]
    assert told == [(time, None, (1.0 + time,)) for time in range(4, 9)]


def test_history_tells_a_row_that_names_no_operation() -> None:
    segments = chained(deltas({"op": "create", "values": [1.0]}, {"op": "explode"}, {})).segments
    told = [(version.op, version.refusal, version.state.vector) for version in versions(segments)]
    assert told == [(Op.CREATE, None, (1.0,)), *[(None, "unknown_operation", (1.0,))] * 2]


def test_named_components_declare_the_length() -> None:
    states, refused = folded(
        deltas({"op": "add", "indices": [1], "values": [5.0]}, {"op": "create", "values": [1.0]}), names=["x", "y"]
    )
    assert refused == [(1, "dimension_mismatch")]
    assert states["a"]["vector"] == [None, 5.0]
    assert states["a"]["seen"] == [False, True]
    assert states["a"]["names"] == ["x", "y"]


def test_a_fraction_does_not_fit_an_integer_vector() -> None:
    with pytest.raises(MalformedDeltasError):
        chained(deltas({"op": "create", "values": [1.5]}), "int64")
