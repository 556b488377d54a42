"""A source's modes give what folding row by row gives, in one call or in several."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import DuplicateDeltaError, RowsNeededError, fold_add, fold_diff
from spark_jobs.engine.deltas.ops import Int64OverflowError, MalformedDeltasError
from spark_jobs.engine.deltas.rows import NonFiniteError
from tests.effort import tries

COLUMNS: dict[str, Any] = {"entity": "plane", "time": "at", "row_id": "row_id"}
Row = dict[str, Any]


def table(rows: list[Row], value: pa.DataType = pa.int64()) -> pa.Table:  # noqa: B008 - a type has no state
    schema = pa.schema(
        {
            "plane": pa.string(),
            "at": pa.timestamp("us", "UTC"),
            "row_id": pa.int64(),
            "x": value,
            "y": value,
            "diff": pa.int64(),
        }
    )
    return pa.Table.from_pylist([{"diff": 1, "x": None, "y": None, **row} for row in rows], schema=schema)


def by_entity(states: pa.Table) -> dict[str, Row]:
    rows = states.cast(pa.schema([f.with_type(pa.int64()) if f.name == "timestamp" else f for f in states.schema]))
    return {row["entity"]: row for row in rows.to_pylist()}


def row_lists(low: int = -5, high: int = 5) -> st.SearchStrategy[list[Row]]:
    cell = st.one_of(st.none(), st.integers(low, high))
    row = st.fixed_dictionaries(
        {
            "plane": st.sampled_from("abc"),
            "at": st.integers(0, 4),
            "x": cell,
            "y": cell,
        }
    )
    return st.lists(row, max_size=14).map(lambda rows: [{**row, "row_id": i} for i, row in enumerate(rows)])


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["at"], row["row_id"]))


def chains(rows: list[Row]) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in in_order(rows):
        found[row["plane"]].append(row)
    return found


def naive_last(rows: list[Row]) -> dict[str, Row]:
    return {
        plane: {
            "entity": plane, "timestamp": chain[-1]["at"], "at_delta": chain[-1]["row_id"], "delta_count": len(chain),
            "names": ["x", "y"], "vector": [chain[-1]["x"], chain[-1]["y"]], "seen": [True, True], "deleted": False,
        }
        for plane, chain in chains(rows).items()
    }  # fmt: skip


@given(rows=row_lists(), seed=st.integers(0, 9))
@settings(max_examples=tries(25), deadline=None)
def test_integer_sums_take_rows_and_retractions_in_any_order_and_any_slicing(rows: list[Row], seed: int) -> None:
    components: dict[str, str | int | float] = {"x": "x", "flights": 1}
    shuffled = [dict(row) for row in rows]
    random.Random(seed).shuffle(shuffled)
    cut = len(rows) // 2
    first = fold_add(table(shuffled[:cut]), **COLUMNS, components=components)
    both = fold_add(table(shuffled[cut:]), **COLUMNS, components=components, prior=first, diff="diff")
    assert by_entity(both) == by_entity(fold_add(table(rows), **COLUMNS, components=components))
    for plane, state in by_entity(both).items():
        mine = chains(rows)[plane]
        assert state["vector"] == [sum(row["x"] or 0 for row in mine), len(mine)]
        assert (state["timestamp"], state["at_delta"]) == (mine[-1]["at"], mine[-1]["row_id"])
        assert state["delta_count"] == len(mine)


def folded_in_parts(parts: list[list[Row]], value: pa.DataType, components: dict[str, Any]) -> dict[str, Row]:
    """What folding the parts one onto the other gives, each with the entities that need all their rows folded anew."""
    states, rows = None, []
    fold: Callable[..., pa.Table] = partial(
        fold_add, **COLUMNS, components=components, diff="diff", overflow_is_null=True
    )
    for part in parts:
        rows += part
        anew: set[str] = set()
        try:
            onto = fold(table(part, value), prior=states)
        except RowsNeededError as refused:
            anew = set(refused.facts["entities"])
            prior: pa.Table | None = (
                None
                if states is None
                else states.filter(pa.array([e not in anew for e in states["entity"].to_pylist()]))
            )
            onto = fold(table([row for row in part if row["plane"] not in anew], value), prior=prior)
        again = fold(table([row for row in rows if row["plane"] in anew], value))
        states = pa.concat_tables([onto, again])
    return by_entity(states)


@given(rows=row_lists(-(2**62), 2**62), cuts=st.lists(st.integers(0, 14), max_size=3), back=st.sets(st.integers(0, 13)))
@settings(max_examples=tries(50), deadline=None)
def test_a_sum_that_does_not_fit_is_null_until_it_fits_again(rows: list[Row], cuts: list[int], back: set[int]) -> None:
    ends = [0, *sorted(cuts), len(rows)]
    taken = [{**row, "diff": -1} for row in rows if row["row_id"] in back]
    parts = [[{**row, "diff": 1} for row in rows[low:high]] for low, high in pairwise(ends)]
    states = folded_in_parts([*parts, taken], pa.int64(), {"x": "x", "n": 1})
    left = chains([row for row in rows if row["row_id"] not in back])
    assert set(states) == set(left)
    for plane, state in states.items():
        total = sum(row["x"] or 0 for row in left[plane])
        assert state["vector"] == [total if -(2**63) <= total < 2**63 else None, len(left[plane])]
        last = left[plane][-1]
        assert (state["timestamp"], state["at_delta"], state["delta_count"]) == (
            last["at"],
            last["row_id"],
            len(left[plane]),
        )


@given(rows=row_lists(-2, 2), cut=st.integers(0, 14))
@settings(max_examples=tries(50), deadline=None)
def test_sums_of_doubles_that_overflow_on_the_way_are_null_in_any_slicing(rows: list[Row], cut: int) -> None:
    rows = [{**row, "diff": 1, "x": None if row["x"] is None else row["x"] * 6e307} for row in rows]
    states = folded_in_parts([rows[:cut], rows[cut:]], pa.float64(), {"x": "x", "y": "y"})
    for plane, chain in chains(rows).items():
        # one row after the other, as a chain is folded; 0.0 is what an absent value adds
        sums = [*accumulate(row["x"] or 0.0 for row in chain)]
        other = float(sum(row["y"] or 0 for row in chain))
        wanted = [sums[-1], other] if all(map(math.isfinite, sums)) else [None, None]
        state = states[plane]
        assert state["vector"] == wanted
        last = chain[-1]
        assert (state["at_delta"], state["delta_count"]) == (last["row_id"], len(chain))


@given(rows=row_lists(), taken=st.sets(st.integers(0, 13)))
@settings(max_examples=tries(25), deadline=None)
def test_a_retraction_leaves_what_the_other_rows_give(rows: list[Row], taken: set[int]) -> None:
    prior = fold_add(table(rows), **COLUMNS, components={"x": "x", "n": 1})
    back = [{**row, "diff": -1} for row in rows if row["row_id"] in taken]
    left = [row for row in rows if row["row_id"] not in taken]
    expected = by_entity(fold_add(table(left), **COLUMNS, components={"x": "x", "n": 1}))
    try:
        actual = by_entity(fold_add(table(back), **COLUMNS, components={"x": "x", "n": 1}, prior=prior, diff="diff"))
    except RowsNeededError as refused:
        lasts = {plane for plane, chain in chains(rows).items() if chain[-1]["row_id"] in taken}
        assert set(refused.facts["entities"]) == {plane for plane in lasts if plane in expected}
    else:
        assert actual == expected


@given(
    rows=row_lists(),
    changed=st.dictionaries(st.integers(0, 13), st.one_of(st.none(), st.integers(-9, 9))),
    seed=st.integers(0, 9),
)
@settings(max_examples=tries(40), deadline=None)
def test_a_row_restated_under_its_own_id_replaces_what_it_said(
    rows: list[Row], changed: dict[int, int | None], seed: int
) -> None:
    updates = [{**row, "diff": -1} for row in rows if row["row_id"] in changed]
    updates += [{**row, "x": changed[row["row_id"]]} for row in rows if row["row_id"] in changed]
    final = [{**row, "x": changed.get(row["row_id"], row["x"])} for row in rows]
    random.Random(seed).shuffle(updates)
    for mode in (fold_add, fold_diff):
        expected = by_entity(mode(table(final), **COLUMNS, components={"x": "x"}))
        together = table([*updates[::2], *rows, *updates[1::2]])
        assert by_entity(mode(together, **COLUMNS, components={"x": "x"}, diff="diff")) == expected
    prior = fold_add(table(rows), **COLUMNS, components={"x": "x"})
    restated = fold_add(table(updates), **COLUMNS, components={"x": "x"}, prior=prior, diff="diff")
    assert by_entity(restated) == by_entity(fold_add(table(final), **COLUMNS, components={"x": "x"}))


@given(rows=row_lists(), cut=st.integers(0, 14))
@settings(max_examples=tries(25), deadline=None)
def test_the_last_full_row_is_the_state_and_null_is_a_value(rows: list[Row], cut: int) -> None:
    call: dict[str, Any] = {**COLUMNS, "components": {"x": "x", "y": "y"}}
    expected = naive_last(rows)
    assert by_entity(fold_diff(table(rows[::-1]), **call)) == expected
    first = fold_diff(table(rows[:cut]), **call)
    assert by_entity(fold_diff(table(rows[cut:]), **call, prior=first)) == expected


def test_float_sums_follow_the_chain_order_not_the_row_order() -> None:
    rows = [
        {"plane": "a", "at": 3, "row_id": 0, "x": -1e16},
        {"plane": "a", "at": 1, "row_id": 1, "x": 1e16},
        {"plane": "a", "at": 2, "row_id": 2, "x": 1.0},
    ]
    state = by_entity(fold_add(table(rows, pa.float64()), **COLUMNS, components={"x": "x"}))["a"]
    assert state["vector"] == [(1e16 + 1.0) - 1e16]
    late = table([{"plane": "a", "at": 0, "row_id": 9, "x": 1.0}], pa.float64())
    prior = fold_add(table(rows, pa.float64()), **COLUMNS, components={"x": "x"})
    with pytest.raises(RowsNeededError) as refused:
        fold_add(late, **COLUMNS, components={"x": "x"}, prior=prior)
    assert refused.value.facts["entities"] == ["a"]


def test_a_sum_beyond_int64_is_an_error_but_a_detour_is_not() -> None:
    top = 2**63 - 1
    rows = [{"plane": "a", "at": i, "row_id": i, "x": x} for i, x in enumerate([top, 5, -5])]
    assert by_entity(fold_add(table(rows), **COLUMNS, components={"x": "x"}))["a"]["vector"] == [top]
    with pytest.raises(Int64OverflowError) as refused:
        fold_add(table(rows[:2]), **COLUMNS, components={"x": "x"})
    assert refused.value.facts == {"entity": "a"}


@pytest.mark.parametrize("fold", [fold_add, fold_diff])
def test_a_whole_number_beyond_the_digits_of_a_double_is_rounded_in_a_vector_of_doubles(fold: Any) -> None:
    rows = pa.table({"plane": ["a"], "at": [1], "row_id": [1], "x": [2**53 + 1], "y": [0.5]})
    (state,) = fold(rows, **COLUMNS, components={"x": "x", "y": "y"}).to_pylist()
    assert state["vector"] == [float(2**53), 0.5]


def test_a_constant_may_be_a_fraction() -> None:
    rows = table([{"plane": "a", "at": 1, "row_id": i, "x": 2} for i in range(3)])
    (state,) = fold_add(rows, **COLUMNS, components={"x": "x", "share": 0.5}, diff="diff").to_pylist()
    assert state["vector"] == [6.0, 1.5]


def test_a_zero_that_changes_its_sign_is_a_change() -> None:
    rows = [{"plane": "a", "at": i, "row_id": i, "x": x} for i, x in enumerate([0.0, -0.0])]
    state = by_entity(fold_diff(table(rows, pa.float64()), **COLUMNS, components={"x": "x"}))["a"]
    assert str(state["vector"][0]) == "-0.0"


def test_nan_is_refused_with_its_component_and_row() -> None:
    rows = table([{"plane": "a", "at": 0, "row_id": 7, "x": float("nan")}], pa.float64())
    for mode in (fold_add, fold_diff):
        with pytest.raises(NonFiniteError) as refused:
            mode(rows, **COLUMNS, components={"wind": "x"})
        assert refused.value.facts == {"component": "wind", "row_id": 7}


def test_a_row_stated_twice_is_an_error() -> None:
    rows = table([{"plane": "a", "at": 0, "row_id": 7, "x": 1}] * 2)
    with pytest.raises(DuplicateDeltaError):
        fold_add(rows, **COLUMNS, components={"x": "x"})


def test_prior_states_of_other_components_are_refused() -> None:
    rows = table([{"plane": "a", "at": 0, "row_id": 7, "x": 1}])
    prior = fold_add(rows, **COLUMNS, components={"x": "x"})
    with pytest.raises(MalformedDeltasError):
        fold_add(rows, **COLUMNS, components={"y": "x"}, prior=prior)


def test_an_empty_partition_gives_an_empty_table_with_the_full_schema() -> None:
    states = fold_diff(table([]), **COLUMNS, components={"x": "x"})
    assert len(states) == 0
    assert states.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert states.column_names[-1] == "deleted"
