"""Rows that say their operation, and the deltas behind full rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.kernels.deltas.history import diff_deltas
from spark_jobs.kernels.deltas.modes import fold_diff, upsert
from spark_jobs.kernels.deltas.operations import DeltaColumns, fold_operations
from spark_jobs.kernels.deltas.ops import MalformedDeltasError
from spark_jobs.kernels.deltas.rows import RowsNeededError

COLUMNS = DeltaColumns(
    entity="e", time="t", row_id="row_id", op="op", indices="indices", values="values", scalar="by",
    transform="how", delta_id="id", parent="after",
)  # fmt: skip
SCHEMA = pa.schema(
    {
        "e": pa.string(),
        "t": pa.int64(),
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
    full = [{"e": "a", "t": i, "row_id": i, "id": f"d{i}", **row} for i, row in enumerate(rows)]
    return pa.Table.from_pylist(full, schema=SCHEMA)


def folded(table: pa.Table, **options: Any) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    states, refused = fold_operations(table, COLUMNS, dtype="float64", **options)
    by_entity = {row["entity"]: row for row in states.to_pylist()}
    return by_entity, list(zip(refused["row_id"].to_pylist(), refused["reason"].to_pylist(), strict=True))


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
        {"e": "b", "op": "create", "values": [9.0], "after": "d0"},
    )
    states, refused = folded(table)
    assert refused == [(i, "missing_parent") for i in (2, 3, 4, 5)]
    assert states["a"]["vector"] == [2.0]
    assert "b" not in states


def test_a_parent_is_found_among_the_folded_deltas() -> None:
    table = deltas({"op": "create", "values": [1.0]}, {"op": "offset", "by": 1.0, "after": "d0"})
    prior, _ = fold_operations(table.slice(0, 1), COLUMNS, dtype="float64")
    alone, refused = folded(table.slice(1), prior=prior)
    assert refused == [(1, "missing_parent")]
    together, refused = folded(table.slice(1), prior=prior, folded=table.slice(0, 1))
    assert refused == []
    assert (alone["a"]["vector"], together["a"]["vector"]) == ([1.0], [2.0])


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
        fold_operations(deltas({"op": "create", "values": [1.5]}), COLUMNS, dtype="int64")


def full_rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    cell = st.sampled_from([None, 0.0, -0.0, 1.5])
    row = st.fixed_dictionaries(
        {
            "e": st.sampled_from("ab"),
            "t": st.integers(0, 3),
            "x": cell,
            "y": cell,
            "gone": st.sampled_from([False] * 4 + [True]),
        }
    )
    return st.lists(row, max_size=10).map(lambda rows: [{**row, "row_id": i} for i, row in enumerate(rows)])


def rows_table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"e": pa.string(), "t": pa.int64(), "row_id": pa.int64(), "x": pa.float64(), "y": pa.float64()}
    return pa.Table.from_pylist(rows, schema=pa.schema({**kinds, "gone": pa.bool_()}))


DIFF: dict[str, Any] = {
    "entity": "e",
    "time": "t",
    "row_id": "row_id",
    "components": {"x": "x", "y": "y"},
    "delete_when": "gone",
}
DERIVED = DeltaColumns(entity="entity", time="event_time", row_id="row_id", op="op", indices="indices", values="values")


@given(rows=full_rows(), cut=st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_folding_the_deltas_of_full_rows_gives_the_last_row(rows: list[dict[str, Any]], cut: int) -> None:
    rows.sort(key=lambda row: (row["t"], row["row_id"]))
    before = fold_diff(rows_table(rows[:cut]), **DIFF)
    derived = diff_deltas(rows_table(rows[cut:]), **DIFF, prior=before)
    states, refused = fold_operations(derived, DERIVED, dtype="float64", names=["x", "y"], prior=before)
    again = [i for i, reason in enumerate(refused["reason"].to_pylist()) if reason != "deleted"]
    assert again == []
    expected = fold_diff(rows_table(rows), **DIFF)
    columns = ["entity", "vector", "seen", "deleted"]
    assert states.select(columns).sort_by("entity").equals(expected.select(columns).sort_by("entity"))


def test_a_zero_where_nothing_was_seen_is_a_change() -> None:
    prior = upsert(rows_table([{"e": "a", "t": 0, "row_id": 0, "x": 1.0, "y": None, "gone": False}]), **DIFF)
    row = rows_table([{"e": "a", "t": 1, "row_id": 1, "x": 1.0, "y": 0.0, "gone": False}])
    assert diff_deltas(row, **DIFF, prior=prior)["indices"].to_pylist() == [[1]]


def test_only_what_changed_is_in_a_delta() -> None:
    rows = [
        {"e": "a", "t": 0, "row_id": 0, "x": 1.0, "y": None, "gone": False},
        {"e": "a", "t": 1, "row_id": 1, "x": 1.0, "y": None, "gone": False},
        {"e": "a", "t": 2, "row_id": 2, "x": None, "y": 0.0, "gone": False},
        {"e": "a", "t": 3, "row_id": 3, "x": None, "y": -0.0, "gone": False},
    ]
    derived = diff_deltas(rows_table(rows), **DIFF)
    assert derived["indices"].to_pylist() == [[0, 1], [], [0, 1], [1]]
    assert derived["values"].to_pylist() == [[1.0, None], [], [None, 0.0], [-0.0]]
    with pytest.raises(RowsNeededError):
        diff_deltas(rows_table(rows[:1]), **DIFF, prior=fold_diff(rows_table(rows), **DIFF))
