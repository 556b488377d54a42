"""Chains in segments answer every (event time, visible time) as a replay of the rows does, however they came about."""

from __future__ import annotations

from dataclasses import fields
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import (
    LATEST,
    Adaptive,
    CompactionPolicy,
    Delta,
    DeltaColumns,
    DuplicateDeltaError,
    Frontiers,
    FullMerge,
    Meaning,
    Op,
    Refusal,
    RestatedChains,
    Segments,
    States,
    Strategy,
    TieredMerge,
    TimeBoundary,
    ages_from,
    asking,
    changes_of,
    pack,
    restate_chains,
    states_for,
    unpack,
)
from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.pooling import RetractionOfNothingError
from spark_jobs.engine.twins.deltas import NaiveEntity
from tests.effort import tries

ENTITIES = pa.array(["a", "b"])
STRATEGIES: list[Strategy] = [
    FullMerge(),
    TieredMerge(1),
    TieredMerge(3),
    TieredMerge(10),
    TimeBoundary(2),
    Adaptive(np.array([1, 3]), np.array([2, 2]), keep_recent=2),
]
COLUMNS = DeltaColumns("entity", "event_time", "row_id", "op", "indices", "values", "scalar", None, "id", "parent")
MEANINGS = {
    "add": Meaning("add", "int64", {"x": "x", "n": 1}),
    "diff": Meaning("diff", "float64", {"x": "x", "y": "y"}),
    "upsert": Meaning("upsert", "float32", {"x": "x", "y": "y"}),
    "operations": Meaning("operations", "float64", None, 2, COLUMNS),
    "sequenced": Meaning("upsert", "float64", {"x": "x", "y": "y"}, sequence="sequence"),
}
SCHEMA = pa.schema(
    {
        "entity": pa.string(), "event_time": pa.int64(), "time": pa.int64(), "row_id": pa.int64(), "diff": pa.int64(),
        "x": pa.int64(), "y": pa.float64(), "gone": pa.bool_(), "op": pa.string(), "indices": pa.list_(pa.int64()),
        "values": pa.list_(pa.float64()), "scalar": pa.float64(), "id": pa.string(), "parent": pa.string(),
        "sequence": pa.string(),
    }
)  # fmt: skip
Row = dict[str, Any]


@st.composite
def updates(draw: st.DrawFn) -> list[Row]:
    """Rows that come, some late, and of which some are taken back, restated under their own id, or followed by another
    row that carries their delta id, before or after them."""
    cell = st.one_of(st.none(), st.integers(-3, 3))
    made: list[Row] = []
    for row_id in draw(st.permutations(range(draw(st.integers(1, 16))))):
        event_time = draw(st.integers(-2, 8))
        time = event_time + draw(st.sampled_from([0, 0, 0, 3, 7]))
        x = draw(cell)
        row: Row = {
            "entity": draw(st.sampled_from("ab")), "event_time": event_time, "row_id": row_id, "x": x,
            "y": draw(st.sampled_from([None, 0.0, -0.0, 0.1])), "gone": draw(st.integers(0, 5)) == 0,
            "op": draw(st.sampled_from([op.name.lower() for op in Op if op is not Op.TRANSFORM])),
            "indices": draw(st.lists(st.integers(0, 1), max_size=2)), "scalar": draw(st.sampled_from([0.5, 0.5, None])),
            "id": f"d{row_id}",
            "parent": draw(st.sampled_from([None, None, None, "d1", "d4", "unheard"])),
            "sequence": draw(st.sampled_from("0123")),
        }  # fmt: skip
        length = 2 if row["op"] in ("create", "dense") else len(row["indices"])
        row["values"] = [1.0 + row_id] * (length + (draw(st.integers(0, 6)) == 0))
        made.append({**row, "time": time, "diff": 1})
        if draw(st.integers(0, 4)) == 0:
            back = max(time, time + draw(st.integers(0, 4)))
            made.append({**row, "time": back, "diff": -1})
            after = draw(st.sampled_from(["nothing", "restated", "another row"]))
            if after == "restated":
                again = {"x": draw(cell), "sequence": draw(st.sampled_from("0123"))}
                made.append({**row, **again, "time": back, "diff": 1})
            elif after == "another row":
                place = {
                    "row_id": draw(st.sampled_from([row_id - 50, row_id + 50])),
                    "event_time": draw(st.integers(-2, 8)),
                }
                made.append({**row, **place, "time": back + draw(st.integers(0, 2)), "diff": 1})
    return made


def deltas_of(rows: list[Row], mode: str) -> list[Delta]:
    """What the rows mean, one by one."""
    found = []
    carrying = {row["id"]: row["row_id"] for row in rows}
    for row in rows:
        place = {name: row[name] for name in ("entity", "event_time", "row_id")}
        if MEANINGS[mode].sequence:
            place["sequence"] = row["sequence"]
        vector = [row["x"], 1 if mode == "add" else row["y"]]
        given = [i for i, value in enumerate(vector) if value is not None]
        if mode == "operations":
            parent = None if row["parent"] is None else carrying.get(row["parent"], -99)
            indexed = row["op"] in ("sparse", "add", "upsert")
            payload = row["values"] if indexed or row["op"] in ("create", "dense") else []
            op = Op[row["op"].upper()]
            if op in (Op.SCALE, Op.OFFSET) and row["scalar"] is None:
                continue  # refused, as if it were not there
            scalar = row["scalar"] if op in (Op.SCALE, Op.OFFSET) else 0
            indices = row["indices"] if indexed else []
            found.append(Delta(**place, op=op, values=payload, indices=indices, scalar=scalar, parent=parent))
        elif row["gone"]:
            found.append(Delta(**place, op=Op.DELETE))
        elif mode == "add":
            found.append(Delta(**place, op=Op.ADD, values=[value or 0 for value in vector], indices=[0, 1]))
        elif mode == "diff":
            found.append(Delta(**place, op=Op.DENSE, values=vector))
        else:
            found.append(Delta(**place, op=Op.UPSERT, values=[vector[i] for i in given], indices=given))
    return found


def replayed(rows: list[Row], mode: str, entity: str, event_time: int, known_at: int) -> NaiveEntity:
    """The slow obvious twin: sum the diffs known at that time, replay what stands."""
    visible = [r for r in rows if r["entity"] == entity and r["time"] <= known_at and r["event_time"] <= event_time]
    standing: list[Row] = []
    for row in sorted(visible, key=lambda r: r["time"]):
        if row["diff"] > 0:
            standing.append(row)
        else:
            standing.remove(next(r for r in standing if r["row_id"] == row["row_id"]))
    meaning = MEANINGS[mode]
    naive = NaiveEntity(np.dtype(meaning.dtype), meaning.dims, {})
    naive.replay(deltas_of(standing, mode))
    return naive


def empty(mode: str) -> Segments:
    meaning = MEANINGS[mode]
    return Segments.empty(meaning.dtype, meaning.dims, ids=meaning.with_parents)


def stored(segments: Segments, mode: str) -> Segments:
    """Written and read back."""
    meaning = MEANINGS[mode]
    table = pack(segments, ENTITIES, names=meaning.names, full_rows=meaning.full_rows)
    return unpack(table, ENTITIES, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)


def restated(
    published: Segments, rows: list[Row], mode: str, policy: CompactionPolicy, frontiers: Frontiers
) -> RestatedChains:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    changes = changes_of(table, ENTITIES, MEANINGS[mode])
    return restate_chains(published, changes, policy, as_of=9, frontiers=frontiers)


def same_bits(states: States, code: int, naive: NaiveEntity) -> bool:
    def bits(vector: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(v.hex() if isinstance(v, float) else v for v in vector)

    actual, expected = states.entity(code), naive.state()
    return (bits(actual.vector), actual) == (bits(expected.vector), expected)


@pytest.mark.turns
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), strategy=st.sampled_from(STRATEGIES), threshold=st.integers(1, 6), data=st.data())
@settings(max_examples=tries(25), deadline=None)
def test_every_time_axis_answers_as_a_replay_in_any_number_of_steps(
    mode: str, rows: list[Row], strategy: Strategy, threshold: int, data: st.DataObject
) -> None:
    most = data.draw(st.integers(1, 5) | st.just(1000))
    age = data.draw(st.sampled_from([None, 4]))
    policy = CompactionPolicy(strategy, delta_threshold=threshold, age_threshold=age, max_chain_length=most)
    rows = sorted(rows, key=lambda r: r["time"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    segments, frontiers = empty(mode), Frontiers()
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        step = restated(segments, data.draw(st.permutations(rows[start:end])), mode, policy, frontiers)
        segments = stored(step.segments, mode)
        refuse_longer(segments, most)
        again = restated(segments, [], mode, policy, frontiers)
        assert not again.written.any()
        assert not again.closed.any()
    asked = [(e, t, k) for e in (0, 1) for t in range(-3, 10, 2) for k in (-3, 0, 2, 5, 8, 12, LATEST)]
    entity, event_time, known_at = (np.array(column) for column in zip(*asked, strict=True))
    states = states_for(segments, entity, event_time, known_at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "FOLDED_AT_ONCE", 3)
        assert states_for(segments, entity, event_time, known_at).same_bits(states).all()
    for question, (code, time, known) in enumerate(asked):
        naive = replayed(rows, mode, ENTITIES[code].as_py(), time, known)
        assert same_bits(states, question, naive), (code, time, known)
    for code, number in enumerate(step.entities):
        assert same_bits(step.states, code, replayed(rows, mode, ENTITIES[int(number)].as_py(), 99, 99))


def refuse_longer(segments: Segments, most: int) -> None:
    """Fewer than `most` deltas behind the last checkpoint, at most as many before; what is never parted aside."""
    for segment in range(len(segments)):
        owned = slice(segments.bounds[segment], segments.bounds[segment + 1])
        rows = np.unique([segments.deltas.event_time[owned], segments.deltas.unparted[owned]], axis=1)
        length = int(segments.lengths[segment])
        is_last = bool(segments.last_of_entity[segment])
        assert length < most if is_last else length <= most or rows.shape[1] == 1, (segment, length)


@pytest.mark.turns
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(
    rows=updates(),
    strategy=st.sampled_from(STRATEGIES),
    since=st.integers(0, 9),
    horizon=st.integers(-1, 9),
    most=st.integers(1, 5) | st.just(1000),
)
@settings(max_examples=tries(20), deadline=None)
def test_what_both_frontiers_have_passed_goes_and_no_answer_beyond_them_changes(
    mode: str, rows: list[Row], strategy: Strategy, since: int, horizon: int, most: int
) -> None:
    policy, frontiers = CompactionPolicy(strategy, delta_threshold=2, max_chain_length=most), Frontiers(since, horizon)
    step = restated(empty(mode), rows, mode, policy, frontiers)
    gone = ~step.written
    segments = stored(step.segments.take(np.flatnonzero(step.written)), mode)
    assert len(segments) == len(step.segments) - gone.sum()
    refuse_longer(segments, most)
    again = restated(segments, [], mode, policy, frontiers)
    assert not again.written.any() and not again.closed.any()
    asked = [(e, t, k) for e in (0, 1) for t in range(horizon, 10) for k in (since, since + 2, LATEST)]
    entity, event_time, known_at = (np.array(column) for column in zip(*asked, strict=True))
    states = states_for(segments, entity, event_time, known_at)
    for question, (code, time, known) in enumerate(asked):
        assert same_bits(states, question, replayed(rows, mode, ENTITIES[code].as_py(), time, known))


@given(rows=updates(), strategy=st.sampled_from(STRATEGIES), threshold=st.integers(1, 6))
@settings(max_examples=tries(50), deadline=None)
def test_chains_that_age_would_compact_are_told_without_their_deltas(
    rows: list[Row], strategy: Strategy, threshold: int
) -> None:
    policy = CompactionPolicy(strategy, delta_threshold=threshold, age_threshold=4)
    segments = restated(empty("add"), rows, "add", policy, Frontiers()).segments
    deltas, last = segments.deltas, segments.last_of_entity
    told = ages_from(deltas.entity, deltas.event_time, deltas.row_id, last, segments.entity, policy)
    nothing = changes_of(pa.Table.from_pylist([], schema=SCHEMA), ENTITIES, MEANINGS["add"])
    for as_of in range(-3, 16):
        step = restate_chains(segments, nothing, policy, as_of=as_of)
        assert step.closed.tolist() == (as_of - 4 > told).tolist()


@pytest.mark.parametrize("strategy", [TieredMerge(10), Adaptive(0, 1, keep_recent=10), TimeBoundary(100), FullMerge()])
def test_no_strategy_leaves_a_chain_that_must_be_compacted(strategy: Strategy) -> None:
    policy = CompactionPolicy(strategy, delta_threshold=100, max_chain_length=5)
    segments = restated(empty("add"), [row(i, x=1) for i in range(43)], "add", policy, Frontiers()).segments
    assert (segments.lengths.max(), segments.lengths.sum()) == (
        5 if strategy in (FullMerge(), TimeBoundary(100)) else 4,
        43,
    )
    refuse_longer(segments, 5)


def test_two_chains_that_meet_at_one_time_and_row_id_are_cut_apart() -> None:
    rows = [row(i, x=1) for i in range(1, 5)] + [row(i, x=1, entity="b") for i in range(4, 8)]
    segments = restated(
        empty("add"), rows, "add", CompactionPolicy(FullMerge(), delta_threshold=4), Frontiers()
    ).segments
    assert segments.lengths.tolist() == [4, 0, 4, 0]


def test_deltas_behind_both_frontiers_leave_the_chain() -> None:
    rows = [row(i, x=1) for i in range(40)]
    policy = CompactionPolicy(TieredMerge(4), delta_threshold=10)
    kept = restated(empty("add"), rows, "add", policy, Frontiers())
    assert kept.segments.lengths.sum() == 40
    dropped = restated(empty("add"), rows, "add", policy, Frontiers(since=99, horizon=99))
    live = dropped.segments.take(np.flatnonzero(dropped.written))
    assert (len(live), live.lengths.sum()) == (1, 4)
    assert live.base.values.tolist() == [36, 36]
    below = restated(empty("add"), rows, "add", policy, Frontiers(since=20, horizon=99))
    assert below.segments.take(np.flatnonzero(below.written)).lengths.sum() == 40 - 21


def row(i: int, **values: Any) -> Row:
    made = {"entity": "a", "event_time": i, "time": i, "row_id": i, "diff": 1, "gone": False, "x": None, "y": None}
    return {**made, "op": None, "indices": None, "values": None, "scalar": None, "id": None, "parent": None, **values}


def test_a_late_row_restates_the_checkpoints_behind_it_and_no_other_entity() -> None:
    rows = [row(i, x=1) for i in range(1, 9)] + [row(i, x=1, entity="b") for i in range(11, 19)]
    policy = CompactionPolicy(TieredMerge(2), delta_threshold=4)
    first = restated(empty("add"), rows, "add", policy, Frontiers())
    late = [row(5, row_id=90, x=10, time=50)]
    step = restated(first.segments, late, "add", policy, Frontiers())
    assert set(step.segments.entity[step.written]) == {0}
    assert step.segments.start_time[step.written].min() == 4
    closed = first.segments.take(np.flatnonzero(step.closed))
    assert closed.start_time.min() == 4
    before = states_for(step.segments, *(np.array([v]) for v in (0, 8, 49)))
    after = states_for(step.segments, *(np.array([v]) for v in (0, 8, 50)))
    assert (before.values.tolist(), after.values.tolist()) == ([8, 8], [18, 9])


def test_what_a_chain_refuses_is_decided_anew_when_a_late_row_changes_it() -> None:
    def operation(i: int, op: str, **values: Any) -> Row:
        return row(i, **{"op": op, "id": f"d{i}", **values})

    rows = [operation(1, "create", values=[1.0, 2.0]), operation(5, "create", values=[3.0, 4.0])]
    step = restated(empty("operations"), rows, "operations", CompactionPolicy(), Frontiers())
    assert step.segments.refusal.tolist() == [Refusal.NONE, Refusal.CREATE_ON_LIVE]
    late = restated(
        stored(step.segments, "operations"),
        [operation(3, "delete", time=9)],
        "operations",
        CompactionPolicy(),
        Frontiers(),
    )
    assert late.segments.refusal.tolist() == [Refusal.NONE, Refusal.NONE, Refusal.NONE]
    assert late.states.values.tolist() == [3.0, 4.0]


def told_of_each(table: pa.Table) -> pa.Table:
    """The packed segments with `known`, `ops` and `sizes` delta by delta, as tables of older versions hold them."""
    for name in ("known", "ops", "sizes"):
        field = table.schema.field(name)
        both = zip(table[name].to_pylist(), table["event_times"].to_pylist(), strict=True)
        lists = [of if len(of) == len(times) else of * len(times) or times for of, times in both]
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(lists, field.type))
    return table


def test_what_holds_of_all_deltas_is_told_once() -> None:
    rows = [row(i, x=1.0) for i in range(3)] + [row(i, x=1.0, time=9, entity="b") for i in range(3)]
    rows += [row(7, entity="b", time=9, gone=True), row(8, entity="b", time=9, x=2.0, y=1.0)]
    step = restated(empty("upsert"), rows, "upsert", CompactionPolicy(), Frontiers())
    table = pack(step.segments, ENTITIES, names=["x", "y"], full_rows=False)
    assert table["known"].to_pylist() == [[], [9]]
    assert table["ops"].to_pylist() == [[Op.UPSERT], [Op.UPSERT] * 3 + [Op.DELETE, Op.UPSERT]]
    assert table["encoding"].to_pylist() == ["sparse", "dense"]
    assert table["sizes"].to_pylist() == [[1], [2, 2, 2, 0, 2]]


@pytest.mark.turns
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), strategy=st.sampled_from(STRATEGIES))
@settings(max_examples=tries(15), deadline=None)
def test_lists_of_older_tables_say_the_same(mode: str, rows: list[Row], strategy: Strategy) -> None:
    step = restated(empty(mode), rows, mode, CompactionPolicy(strategy, delta_threshold=3), Frontiers())
    meaning = MEANINGS[mode]
    table = pack(step.segments, ENTITIES, names=meaning.names, full_rows=meaning.full_rows)
    new, old = (
        unpack(t, ENTITIES, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)
        for t in (table, told_of_each(table))
    )
    assert np.array_equal(new.known_from, old.known_from)
    for column in fields(DeltaBatch):
        assert np.array_equal(getattr(new.deltas, column.name), getattr(old.deltas, column.name)), column.name


def test_full_rows_are_stored_as_what_they_change_where_that_is_smaller() -> None:
    meaning = Meaning("diff", "float64", {f"c{i}": f"c{i}" for i in range(16)})
    rows = pa.table(
        {
            "entity": ["a"] * 30, "event_time": range(30), "time": range(30), "row_id": range(30), "diff": [1] * 30,
            **{f"c{i}": pa.array([float(n if i == 0 else i) for n in range(30)]) for i in range(16)},
        }
    )  # fmt: skip
    entities = pa.array(["a"])
    step = restate_chains(
        Segments.empty("float64", 16), changes_of(rows, entities, meaning), CompactionPolicy(), as_of=30
    )
    table = pack(step.segments, entities, names=meaning.names, full_rows=True)
    assert table["encoding"].to_pylist() == ["changes"]
    assert table["sizes"].to_pylist()[0] == [16] + [1] * 29
    assert table["saved_bytes"].to_pylist() == [30 * 16 * 8 - (16 * 8 + 29 * 12)]
    back = unpack(table, entities, dtype="float64", dims=16)
    assert back.deltas.values.tobytes() == step.segments.deltas.values.tobytes()
    assert not np.any(back.deltas.op != Op.DENSE)


def test_deltas_that_set_most_dimensions_are_stored_by_dimension() -> None:
    columns = DeltaColumns("entity", "event_time", "row_id", "op", "indices", "values")
    meaning = Meaning("operations", "float64", None, 10, columns)
    rows = pa.table(
        {
            "entity": ["a", "a", "a"], "event_time": [1, 2, 3], "time": [1, 2, 3], "row_id": [1, 2, 3],
            "diff": [1, 1, 1], "op": ["create", "sparse", "upsert"],
            "indices": [[], list(range(9)), [0, 2, *range(3, 10)]], "values": [[0.5] * 10, [None] * 9, [2.0] * 9],
        }
    )  # fmt: skip
    entities = pa.array(["a"])
    step = restate_chains(
        Segments.empty("float64", 10), changes_of(rows, entities, meaning), CompactionPolicy(), as_of=3
    )
    table = pack(step.segments, entities, names=None, full_rows=False)
    assert table["encoding"].to_pylist() == ["dense"]
    assert table["sizes"].to_pylist() == [[10]]
    back = unpack(table, entities, dtype="float64", dims=10).deltas
    for name in ("op", "offsets", "nulls"):
        assert np.array_equal(getattr(back, name), getattr(step.segments.deltas, name)), name
    assert back.indices[10:].tolist() == [*range(9), 0, 2, *range(3, 10)]


@pytest.mark.slow
def test_a_delta_id_that_another_row_carries_now_is_the_parent_that_stands() -> None:
    create = row(1, op="create", values=[1.0, 2.0], id="base")
    old, new = (row(i, op="offset", scalar=1.0, id="step") for i in (4, 3))
    child = row(6, op="scale", scalar=10.0, id="child", parent="step")
    rows = [create, old, child, {**old, "time": 7, "diff": -1}, {**new, "time": 7}]
    for order in permutations(rows):
        for policy in (CompactionPolicy(), CompactionPolicy(FullMerge(), delta_threshold=1)):
            step = restated(empty("operations"), list(order), "operations", policy, Frontiers())
            assert step.states.values.tolist() == [20.0, 30.0]
            held = stored(step.segments, "operations")
            for known in (6, 7):
                assert states_for(held, *(np.array([v]) for v in (0, 9, known))).values.tolist() == [20.0, 30.0]


def test_a_delta_id_that_stands_twice_is_refused_where_parents_are_declared() -> None:
    rows = [row(1, op="create", values=[1.0, 2.0], id="d"), row(2, op="offset", scalar=1.0, id="d")]
    child = row(5, op="scale", scalar=2.0, id="child", parent="d")
    with pytest.raises(DuplicateDeltaError) as error:
        restated(empty("operations"), [child, *rows], "operations", CompactionPolicy(), Frontiers())
    assert error.value.facts == {"delta_id": "d", "row_ids": [1, 2]}
    assert restated(
        empty("operations"), rows, "operations", CompactionPolicy(), Frontiers()
    ).states.values.tolist() == [2.0, 3.0]


def test_a_row_that_stands_twice_at_any_time_is_refused() -> None:
    one, other = row(1, x=1), row(1, x=2, time=5)
    for rows in ([one, other], [one, other, {**one, "time": 9, "diff": -1}]):
        for order in permutations(rows):
            with pytest.raises(DuplicateDeltaError) as error:
                restated(empty("add"), list(order), "add", CompactionPolicy(), Frontiers())
            assert error.value.facts == {"entity": 0, "event_time": 1, "row_id": 1}
    step = restated(empty("add"), [other, {**one, "time": 5, "diff": -1}, one], "add", CompactionPolicy(), Frontiers())
    assert step.states.values.tolist() == [2, 1]


def test_versions_that_came_at_one_time_are_told_apart_by_what_they_say() -> None:
    one, other = row(1, x=1), row(1, x=2)
    for order in permutations([one, other, {**one, "diff": -1}]):
        step = restated(empty("add"), list(order), "add", CompactionPolicy(), Frontiers())
        assert step.states.values.tolist() == [2, 1]


def test_a_retraction_of_what_no_chain_holds_is_an_error() -> None:
    with pytest.raises(RetractionOfNothingError) as error:
        restated(empty("add"), [row(3, x=1), row(4, x=1, diff=-1)], "add", CompactionPolicy(), Frontiers())
    assert (error.value.facts["event_time"], error.value.facts["row_id"]) == (4, 4)


def test_a_delta_that_leaves_int64_is_refused_until_a_late_row_makes_room_for_it() -> None:
    rows = [row(i, x=2**62) for i in range(3)]
    step = restated(empty("add"), rows, "add", CompactionPolicy(FullMerge(), delta_threshold=1), Frontiers())
    assert step.segments.refusal.tolist() == [0, Refusal.INT64_OVERFLOW, Refusal.INT64_OVERFLOW]
    assert step.states.values.tolist() == [2**62, 1]
    late = [row(0, row_id=9, x=-(2**62), time=5)]
    step = restated(
        stored(step.segments, "add"), late, "add", CompactionPolicy(FullMerge(), delta_threshold=1), Frontiers()
    )
    assert step.segments.refusal.tolist() == [0, 0, 0, Refusal.INT64_OVERFLOW]
    assert step.states.values.tolist() == [2**62, 3]
