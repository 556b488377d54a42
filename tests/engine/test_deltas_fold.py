"""The compiled fold gives what a replay one delta at a time gives, bit for bit, wherever the chain is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import REGISTERED, Delta, DuplicateDeltaError, Op, Refusal, States, Status
from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.fold import FoldResult, fold
from spark_jobs.engine.deltas.ops import DeltaBeforeCheckpointError, MalformedDeltasError, TransformResultError
from spark_jobs.engine.twins.deltas import NaiveEntity
from tests.effort import tries
from tests.engine.delta_strategies import ENTITIES, TRANSFORMS, delta_lists


def folded(
    deltas: list[Delta], dtype: str, dims: int | None, base: States | None = None, before: list[Delta] | None = None
) -> FoldResult:
    batch = DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype=dtype, dims=dims)
    batch = batch.with_applied_parents(batch.entity, [(ENTITIES[d.entity], d.row_id) for d in before or []])
    return fold(batch, base, transforms=TRANSFORMS)


def replayed(deltas: list[Delta], dtype: str, dims: int | None) -> tuple[dict[str, NaiveEntity], list[Refusal]]:
    entities = {name: NaiveEntity(np.dtype(dtype), dims, TRANSFORMS) for name in ENTITIES}
    reasons = [Refusal.NONE] * len(deltas)
    for name, entity in entities.items():
        mine = [i for i, delta in enumerate(deltas) if delta.entity == name]
        for i, reason in zip(mine, entity.replay([deltas[i] for i in mine]), strict=True):
            reasons[i] = reason
    return entities, reasons


def bits(vector: tuple[float | int | None, ...]) -> tuple[object, ...]:
    return tuple(v.hex() if isinstance(v, float) else v for v in vector)


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
@given(data=st.data())
@settings(max_examples=tries(40), deadline=None)
def test_fold_equals_replay_one_delta_at_a_time(dtype: str, data: st.DataObject) -> None:
    dims = data.draw(st.one_of(st.none(), st.integers(1, 4)))
    deltas = data.draw(delta_lists(dtype, dims))
    entities, reasons = replayed(deltas, dtype, dims)
    result = folded(deltas, dtype, dims)
    assert [Refusal(int(code)) for code in result.refusal] == reasons
    for name, code in ENTITIES.items():
        expected, actual = entities[name].state(), result.states.entity(code)
        assert bits(actual.vector) == bits(expected.vector)
        assert actual == expected


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@given(data=st.data())
@settings(max_examples=tries(20), deadline=None)
def test_a_chain_cut_anywhere_folds_to_the_same_state(dtype: str, data: st.DataObject) -> None:
    dims = data.draw(st.one_of(st.none(), st.integers(1, 4)))
    deltas = sorted(data.draw(delta_lists(dtype, dims)), key=lambda d: (d.event_time, d.row_id))
    whole = folded(deltas, dtype, dims)
    cut = data.draw(st.integers(0, len(deltas)))
    first = folded(deltas[:cut], dtype, dims)
    accepted = [d for d, applied in zip(deltas[:cut], first.applied, strict=True) if applied]
    second = folded(deltas[cut:], dtype, dims, first.states, accepted)
    assert second.states.same_bits(whole.states).all()
    assert [*first.refusal, *second.refusal] == list(whole.refusal)


@pytest.mark.parametrize("dims", [1, 128, 4096])
def test_wide_vectors_fold_like_the_replay(dims: int) -> None:
    rng = np.random.default_rng(dims)
    deltas = [Delta("a", 0, 0, Op.CREATE, values=rng.normal(size=dims).tolist())]
    for row_id in range(1, 12):
        indices = rng.integers(0, dims, 8).tolist()
        deltas.append(Delta("a", row_id, row_id, Op.SPARSE, values=rng.normal(size=8).tolist(), indices=indices))
        deltas.append(Delta("a", row_id, 100 + row_id, Op.SCALE, scalar=float(rng.normal())))
        deltas.append(Delta("a", row_id, 200 + row_id, Op.OFFSET, scalar=float(rng.normal())))
    entities, _ = replayed(deltas, "float64", None)
    state = folded(deltas[::-1], "float64", None).states.entity(0)
    assert len(state.vector) == dims
    assert bits(state.vector) == bits(entities["a"].state().vector)


def test_an_empty_batch_leaves_every_entity_absent() -> None:
    result = folded([], "float64", 3)
    assert [result.states.entity(code).status for code in range(3)] == [Status.ABSENT] * 3
    assert result.states.entity(0).delta_count == 0
    assert result.states.entity(0).at_delta is None


def test_scale_then_offset_differs_from_offset_then_scale() -> None:
    create = Delta("a", 0, 0, Op.CREATE, values=[1.0])
    scale, offset = Delta("a", 1, 1, Op.SCALE, scalar=3.0), Delta("a", 1, 2, Op.OFFSET, scalar=5.0)
    swapped = [Delta("a", 1, 1, Op.OFFSET, scalar=5.0), Delta("a", 1, 2, Op.SCALE, scalar=3.0)]
    assert folded([create, scale, offset], "float64", None).states.entity(0).vector == (8.0,)
    assert folded([create, *swapped], "float64", None).states.entity(0).vector == (18.0,)


def test_floats_are_folded_onto_the_value_and_never_fused() -> None:
    deltas = [Delta("a", 0, 0, Op.CREATE, values=[1e16])]
    deltas += [Delta("a", i, i, Op.OFFSET, scalar=1.0) for i in (1, 2)]
    assert folded(deltas, "float64", None).states.entity(0).vector == (1e16,)
    assert 1e16 + (1.0 + 1.0) != 1e16


def test_null_is_a_value_and_never_seen_is_not() -> None:
    deltas = [Delta("a", 0, 0, Op.SPARSE, values=[None, 7.0], indices=[0, 1])]
    state = folded(deltas, "float64", 3).states.entity(0)
    assert state.vector == (None, 7.0, None)
    assert state.seen == (True, True, False)


def test_a_repeated_index_takes_its_last_value_and_adds_every_term() -> None:
    deltas = [
        Delta("a", 0, 0, Op.SPARSE, values=[1, 2], indices=[0, 0]),
        Delta("a", 1, 1, Op.ADD, values=[10, 20], indices=[0, 0]),
    ]
    assert folded(deltas, "int64", 1).states.entity(0).vector == (32,)


def test_a_refused_add_leaves_no_trace_of_its_first_terms() -> None:
    big = 1e308
    deltas = [
        Delta("a", 0, 0, Op.CREATE, values=[1.0, big]),
        Delta("a", 1, 1, Op.ADD, values=[5.0, 6.0, big], indices=[0, 0, 1]),
    ]
    result = folded(deltas, "float64", 2)
    assert result.states.entity(0).vector == (1.0, big)
    assert [Refusal(int(c)).code for c in result.refusal] == ["none", "non_finite"]


@pytest.mark.parametrize(
    ("delta", "start"),
    [
        (Delta("a", 1, 1, Op.SCALE, scalar=2), 2**62),
        (Delta("a", 1, 1, Op.SCALE, scalar=-1), -(2**63)),
        (Delta("a", 1, 1, Op.OFFSET, scalar=1), 2**63 - 1),
        (Delta("a", 1, 1, Op.ADD, values=[-1], indices=[0]), -(2**63)),
    ],
)
def test_a_delta_whose_result_is_no_int64_is_refused_alone(delta: Delta, start: int) -> None:
    step = -1 if start > 0 else 1
    after = Delta("a", 2, 2, Op.ADD, values=[step], indices=[0])
    result = folded([Delta("a", 0, 0, Op.CREATE, values=[start]), after, delta], "int64", 1)
    assert [Refusal(int(code)).code for code in result.refusal] == ["none", "none", "int64_overflow"]
    assert result.states.entity(0).vector == (start + step,)


def test_an_add_that_leaves_int64_on_the_way_leaves_no_trace_and_a_null_is_left_alone() -> None:
    top = 2**63 - 1
    deltas = [
        Delta("a", 0, 0, Op.CREATE, values=[3, top, None]),
        Delta("a", 1, 1, Op.ADD, values=[5, 6, 7, 1], indices=[0, 0, 2, 1]),
        Delta("a", 2, 2, Op.ADD, values=[1, -1, 1], indices=[0, 1, 2]),
    ]
    result = folded(deltas, "int64", 3)
    assert [Refusal(int(code)).code for code in result.refusal] == ["none", "int64_overflow", "none"]
    assert result.states.entity(0).vector == (4, top - 1, None)


def test_a_transform_that_leaves_int64_refuses_the_delta_of_that_entity_alone() -> None:
    least = -(2**63)
    rows = [Delta(e, 0, i, Op.CREATE, values=[v]) for i, (e, v) in enumerate((("a", least), ("b", 5), ("c", 7)))]
    turned = [Delta(e, 1, 9 + i, Op.TRANSFORM, transform="negate") for i, e in enumerate("abc")]
    batch = DeltaBatch.from_deltas([*rows, *turned], entities=ENTITIES, dtype="int64", dims=1)
    result = fold(batch, transforms=REGISTERED)
    assert [Refusal(int(code)).code for code in result.refusal[3:]] == ["int64_overflow", "none", "none"]
    assert [result.states.entity(i).vector for i in range(3)] == [(least,), (-5,), (-7,)]


def test_int64_arithmetic_reaches_both_ends_of_the_range() -> None:
    deltas = [
        Delta("a", 0, 0, Op.CREATE, values=[2**62, -(2**62)]),
        Delta("a", 1, 1, Op.ADD, values=[-1], indices=[0]),
        Delta("a", 2, 2, Op.SCALE, scalar=2),
        Delta("a", 3, 3, Op.ADD, values=[1], indices=[0]),
    ]
    assert folded(deltas, "int64", 2).states.entity(0).vector == (2**63 - 1, -(2**63))


def test_two_deltas_at_one_position_are_an_error() -> None:
    with pytest.raises(DuplicateDeltaError):
        folded([Delta("a", 1, 1, Op.DELETE), Delta("a", 1, 1, Op.DELETE)], "int64", 1)


def test_a_delta_before_its_checkpoint_is_an_error() -> None:
    base = folded([Delta("a", 5, 5, Op.OFFSET, scalar=1)], "int64", 1).states
    with pytest.raises(DeltaBeforeCheckpointError) as caught:
        folded([Delta("a", 5, 4, Op.OFFSET, scalar=1)], "int64", 1, base)
    assert caught.value.facts["event_time"] == 5


def test_columns_that_disagree_are_all_reported_at_once() -> None:
    with pytest.raises(MalformedDeltasError) as caught:
        DeltaBatch.from_columns(
            entity_count=1, entity=[1], event_time=[0, 1], row_id=[0], op=[0], offsets=[0, 2], values=[1.0], dtype="f8"
        )
    assert "event_time has 2 of 1" in str(caught.value)
    assert "entity codes outside" in str(caught.value)
    assert "offsets" in str(caught.value)


def test_a_transform_that_changes_the_shape_is_an_error() -> None:
    batch = DeltaBatch.from_deltas(
        [Delta("a", 0, 0, Op.TRANSFORM, transform="cut")], entities=ENTITIES, dtype="f8", dims=2
    )
    with pytest.raises(TransformResultError):
        fold(batch, transforms={"cut": lambda v: v[:, :1]})


def test_a_transform_with_an_infinite_result_leaves_an_absent_entity_absent() -> None:
    rows = [Delta("a", 0, 0, Op.TRANSFORM, transform="burst"), Delta("b", 0, 1, Op.OFFSET, scalar=1.0)]
    batch = DeltaBatch.from_deltas(rows, entities=ENTITIES, dtype="f8", dims=2)
    result = fold(batch, transforms={"burst": lambda v: v + np.inf})
    assert [Refusal(int(code)) for code in result.refusal] == [Refusal.NON_FINITE, Refusal.NONE]
    assert result.states.dims.tolist() == [0, 2, 0]
    assert result.states.entity(0).status is Status.ABSENT


def test_a_transform_leaves_null_null_and_unseen_unseen() -> None:
    rows = [
        Delta("a", 0, 0, Op.SPARSE, values=[1.0, None], indices=[0, 1]),
        Delta("a", 1, 1, Op.TRANSFORM, transform="shift"),
        Delta("a", 2, 2, Op.ADD, values=[5.0], indices=[2]),
    ]
    assert folded(rows, "f8", 3).states.entity(0).vector == (2.0, None, 5.0)


def test_take_keeps_the_payload_of_the_rows_it_keeps() -> None:
    deltas = [Delta("a", i, i, Op.SPARSE, values=[i] * i, indices=[0] * i) for i in range(4)]
    batch = DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64", dims=1)
    taken = batch.take(np.array([3, 1]))
    assert taken.values.tolist() == [3, 3, 3, 1]
    assert taken.offsets.tolist() == [0, 3, 4]
    assert batch.take(batch.row_id > 1).row_id.tolist() == [2, 3]
