"""The chains' public API: states and history by name."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine import in_memory
from spark_jobs.engine.deltas import (
    BelowHorizon,
    Delta,
    DuplicateDeltaError,
    FullMerge,
    Op,
    Status,
    Strategy,
    TieredMerge,
    TimeBoundary,
)
from spark_jobs.engine.in_memory import Chains, UnknownEntityError, compact, compose, history, state_at
from spark_jobs.engine.twins.deltas import NaiveEntity
from spark_jobs.errors import ParameterError
from spark_jobs.model import Frontier
from tests.effort import tries
from tests.engine.delta_strategies import TRANSFORMS, delta_lists

STRATEGIES: list[Strategy] = [FullMerge(), TieredMerge(1), TimeBoundary(2)]

DELTAS = [
    Delta("b", 3, 3, Op.SPARSE, values=[5.0], indices=[0]),
    Delta("a", 2, 2, Op.SCALE, scalar=10.0),
    Delta("a", 1, 1, Op.CREATE, values=[1.0, None]),
    Delta("a", 3, 4, Op.CREATE, values=[0.0, 0.0]),
    Delta("a", 4, 5, Op.SPARSE, values=[7.0], indices=[1]),
]


def test_state_at_a_time_holds_what_happened_up_to_it() -> None:
    chains = Chains.of(DELTAS)
    assert state_at(chains, 0)["a"].vector == ()
    assert state_at(chains, 1)["a"].vector == (1.0, None)
    assert state_at(chains, 3)["a"].vector == (10.0, None)
    assert state_at(chains)["a"].vector == (10.0, 7.0)
    assert chains.state_at(2, entities=["a"]).keys() == {"a"}


def test_state_as_known_leaves_out_what_was_not_visible_yet() -> None:
    chains = Chains.of(DELTAS, known_from=[9, 9, 1, 9, 4])
    assert state_at(chains, 4, as_known_at=4)["a"].vector == (1.0, 7.0)
    assert state_at(chains, 4, as_known_at=9)["a"].vector == (10.0, 7.0)


def test_compose_is_the_state_after_all_deltas() -> None:
    states = compose(DELTAS, dims=2)
    assert states["a"].vector == (10.0, 7.0)
    assert states["b"].vector == (5.0, None)
    assert states["b"].seen == (True, False)


def test_history_lists_every_delta_with_its_state_and_its_refusal() -> None:
    versions = history(Chains.of(DELTAS), "a")
    assert [(v.row_id, v.refusal) for v in versions] == [(1, None), (2, None), (4, "create_on_live"), (5, None)]
    assert [v.state.vector for v in versions] == [(1.0, None), (10.0, None), (10.0, None), (10.0, 7.0)]


def test_history_begins_at_the_checkpoint() -> None:
    compacted, _ = compact(Chains.of(DELTAS), FullMerge(), since=Frontier.at(9), horizon=Frontier.at(3))
    assert [v.row_id for v in history(compacted, "a")] == [4, 5]
    with pytest.raises(BelowHorizon):
        state_at(compacted, 2)


@pytest.mark.parametrize("to", range(5))
def test_rollback_brings_a_state_back_as_new_deltas(to: int) -> None:
    chains = Chains.of(DELTAS)
    back = chains.rollback("a", to, event_time=9, row_id=9)
    after = Chains.of([*DELTAS, *back])
    before = state_at(chains, to)["a"]
    assert state_at(after)["a"].vector == before.vector
    assert (state_at(after)["a"].status is Status.LIVE) == (before.status is Status.LIVE)
    assert state_at(after, 8) == state_at(chains, 8)
    assert (back == []) == (to == 4)


def test_rollback_across_a_change_of_length_deletes_first() -> None:
    chain = [
        Delta("a", 1, 1, Op.CREATE, values=[1.0]),
        Delta("a", 2, 2, Op.DELETE),
        Delta("a", 3, 3, Op.CREATE, values=[1.0, 2.0]),
    ]
    back = Chains.of(chain).rollback("a", 1, event_time=4, row_id=10)
    assert [(delta.op, delta.row_id) for delta in back] == [(Op.DELETE, 10), (Op.DENSE, 11)]
    assert state_at(Chains.of([*chain, *back]))["a"].vector == (1.0,)
    with pytest.raises(ParameterError):
        Chains.of(chain).rollback("a", 1, event_time=3, row_id=3)


@st.composite
def ids_that_come_twice(draw: st.DrawFn) -> list[Delta]:
    """Chains in which deltas of several times carry one row id, and many declare a parent."""
    deltas = draw(delta_lists("int64", draw(st.sampled_from([None, 2]))))
    parents = [draw(st.none() | st.integers(0, 3)) for _ in deltas]
    again = [replace(d, row_id=d.row_id % 4, parent=p) for d, p in zip(deltas, parents, strict=True)]
    return list({(d.entity, d.event_time, d.row_id): d for d in again}.values())


@given(deltas=ids_that_come_twice(), strategy=st.sampled_from(STRATEGIES), horizon=st.integers(-4, 7), data=st.data())
@settings(max_examples=tries(60), deadline=None)
def test_no_order_of_rows_and_no_compaction_changes_which_parents_are_found(
    deltas: list[Delta], strategy: Strategy, horizon: int, data: st.DataObject
) -> None:
    dims = 2
    chains = Chains.of(data.draw(st.permutations(deltas)), dtype="int64", dims=dims, transforms=TRANSFORMS)
    compacted, _ = compact(chains, strategy, since=Frontier.at(99), horizon=Frontier.at(horizon))
    for entity in chains.entities:
        for time in (horizon, 7):
            naive = NaiveEntity(np.dtype("int64"), dims, TRANSFORMS)
            naive.replay([d for d in deltas if d.entity == entity and d.event_time <= time])
            assert chains.state_at(time)[entity] == naive.state()
            assert compacted.state_at(time)[entity] == naive.state()
        told = [(v.event_time, v.row_id, v.refusal, v.state) for v in history(chains, entity)]
        again = Chains.of(deltas, dtype="int64", dims=dims, transforms=TRANSFORMS)
        assert [(v.event_time, v.row_id, v.refusal, v.state) for v in history(again, entity)] == told
        assert told[-1][-1] == naive.state()


def test_a_parent_whose_id_comes_twice_is_any_that_was_applied_before() -> None:
    first, other = Delta("a", 1, 7, Op.CREATE, values=[1.0]), Delta("a", 9, 7, Op.OFFSET, scalar=5.0)
    child = Delta("a", 4, 8, Op.OFFSET, scalar=1.0, parent=7)
    for deltas in ([first, other, child], [other, child, first]):
        assert state_at(Chains.of(deltas), 5)["a"].vector == (2.0,)
        assert compose(deltas)["a"].vector == (7.0,)
        compacted, _ = compact(Chains.of(deltas), FullMerge(), since=Frontier.at(99), horizon=Frontier.at(3))
        assert state_at(compacted)["a"].vector == (7.0,)


@pytest.mark.parametrize(
    "ask",
    [
        compose,
        lambda d: state_at(Chains.of(d)),
        lambda d: history(Chains.of(d), "a"),
        lambda d: compact(Chains.of(d), FullMerge(), since=Frontier.at(9), horizon=Frontier.at(9)),
    ],
)
def test_two_deltas_at_one_place_are_refused_at_every_door(ask: Callable[[list[Delta]], object]) -> None:
    twice = [Delta("a", 1, 1, Op.CREATE, values=[1.0]), Delta("a", 1, 1, Op.CREATE, values=[2.0])]
    with pytest.raises(DuplicateDeltaError):
        ask(twice)


def test_an_unknown_entity_is_refused_by_name() -> None:
    with pytest.raises(UnknownEntityError) as refused:
        history(Chains.of(DELTAS), "c")
    assert refused.value.facts == {"entity": "c"}


def test_the_example_in_the_package_runs() -> None:
    result = doctest.testmod(in_memory)
    assert result.attempted == 8
    assert result.failed == 0
