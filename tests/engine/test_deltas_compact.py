"""Compaction: the same answers at every time that may be asked, less to fold for them, and nothing left for a second
pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import (
    Adaptive,
    BelowHorizon,
    BelowSince,
    CompactionPolicy,
    Delta,
    EntityState,
    FullMerge,
    Need,
    Op,
    Strategy,
    TieredMerge,
    TimeBoundary,
)
from spark_jobs.engine.deltas.frontiers import FrontierRegressionError
from spark_jobs.engine.in_memory import Chains, needs_compaction
from spark_jobs.engine.twins.deltas import NaiveEntity
from spark_jobs.errors import ParameterError
from spark_jobs.model import Frontier
from tests.effort import tries
from tests.engine.delta_strategies import TRANSFORMS, delta_lists

STRATEGIES: list[Strategy] = [
    FullMerge(),
    TieredMerge(0),
    TieredMerge(2),
    TimeBoundary(1),
    TimeBoundary(4),
    Adaptive(reads=np.array([9, 0, 1]), writes=np.array([1, 5, 2]), keep_recent=1),
]
ALL: dict[str, Any] = {"since": Frontier.empty(), "horizon": Frontier.empty()}


@st.composite
def visible_deltas(draw: st.DrawFn) -> tuple[list[Delta], list[int], str, int | None]:
    """Deltas, the times from which they are known, their type and length."""
    dtype, dims = draw(st.sampled_from(["int64", "float32"])), draw(st.one_of(st.none(), st.integers(1, 3)))
    deltas = draw(delta_lists(dtype, dims))
    return deltas, [draw(st.integers(0, 8)) for _ in deltas], dtype, dims


def chains_of(drawn: tuple[list[Delta], list[int], str, int | None]) -> Chains:
    deltas, known_from, dtype, dims = drawn
    return Chains.of(deltas, dtype=dtype, dims=dims, transforms=TRANSFORMS, known_from=known_from)


def replayed(drawn: tuple[list[Delta], list[int], str, int | None], time: int, known_at: int) -> dict[str, EntityState]:
    deltas, known_from, dtype, dims = drawn
    states = {}
    for entity in {delta.entity for delta in deltas}:
        naive = NaiveEntity(np.dtype(dtype), dims, TRANSFORMS)
        pairs = zip(deltas, known_from, strict=True)
        naive.replay([d for d, known in pairs if d.entity == entity and d.event_time <= time and known <= known_at])
        states[entity] = naive.state()
    return states


def same_bits(left: dict[str, EntityState], right: dict[str, EntityState]) -> bool:
    return repr(sorted(left.items())) == repr(sorted(right.items()))


@pytest.mark.turns
@given(
    drawn=visible_deltas(),
    strategy=st.sampled_from(STRATEGIES),
    since=st.integers(0, 9),
    horizon=st.integers(-4, 8),
    asked=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=4),
)
@settings(max_examples=tries(60), deadline=None)
def test_every_answer_at_or_beyond_the_frontiers_stays_and_a_second_pass_changes_nothing(
    drawn: tuple[list[Delta], list[int], str, int | None],
    strategy: Strategy,
    since: int,
    horizon: int,
    asked: list[tuple[int, int]],
) -> None:
    frontiers: dict[str, Any] = {"since": Frontier.at(since), "horizon": Frontier.at(horizon)}
    chains = chains_of(drawn)
    once, _ = chains.compact(strategy, **frontiers)
    for time, known in ((horizon + ahead, since + later) for ahead, later in asked):
        expected = replayed(drawn, time, known)
        assert same_bits(chains.state_at(time, as_known_at=known), expected)
        assert same_bits(once.state_at(time, as_known_at=known), expected), (time, known)
    assert len(once.segments.deltas) <= len(chains.segments.deltas)
    twice, done = once.compact(strategy, **frontiers)
    assert (done.deltas_merged, done.deltas_dropped, done.bytes_after) == (0, 0, done.bytes_before)
    assert twice.segments.base.same_bits(once.segments.base).all()
    for name in ("entity", "start_time", "start_row", "settled", "bounds", "known_from", "known_to", "refusal"):
        assert np.array_equal(getattr(twice.segments, name), getattr(once.segments, name)), name


@given(drawn=visible_deltas(), strategy=st.sampled_from(STRATEGIES), steps=st.lists(st.integers(-4, 9), max_size=4))
@settings(max_examples=tries(30), deadline=None)
def test_compacting_in_steps_gives_the_answers_of_the_raw_chains(
    drawn: tuple[list[Delta], list[int], str, int | None], strategy: Strategy, steps: list[int]
) -> None:
    compacted = chains_of(drawn)
    for step in sorted(steps):
        compacted, _ = compacted.compact(strategy, since=Frontier.at(max(step, 0)), horizon=Frontier.at(step))
        assert same_bits(compacted.state_at(step, as_known_at=max(step, 0)), replayed(drawn, step, max(step, 0)))
    assert same_bits(compacted.state_at(), replayed(drawn, 99, 99))


@given(
    drawn=visible_deltas(),
    strategy=st.sampled_from([*STRATEGIES, TieredMerge(9), Adaptive(0, 1, keep_recent=9)]),
    most=st.integers(1, 6),
    since=st.integers(0, 9),
    horizon=st.integers(-4, 8),
)
@settings(max_examples=tries(60), deadline=None)
def test_no_strategy_leaves_a_chain_that_must_be_compacted(
    drawn: tuple[list[Delta], list[int], str, int | None], strategy: Strategy, most: int, since: int, horizon: int
) -> None:
    frontiers = {"since": Frontier.at(since), "horizon": Frontier.at(horizon)}
    done, _ = chains_of(drawn).compact(strategy, **frontiers, max_chain_length=most)
    assert done.segments.lengths[done.segments.last_of_entity].max(initial=0) < most
    assert done.segments.lengths.max(initial=0) <= most
    need = needs_compaction(done, CompactionPolicy(strategy, max_chain_length=most), as_of=0)
    assert Need.FORCED not in need.values()
    for time, known in ((horizon, since), (horizon + 3, since + 2), (99, 99)):
        assert same_bits(done.state_at(time, as_known_at=known), replayed(drawn, time, known))


@pytest.mark.parametrize(
    "strategy", [TieredMerge(10), Adaptive(reads=0, writes=1), TimeBoundary(1), FullMerge()], ids=str
)
def test_a_chain_keeps_fewer_deltas_than_force_its_compaction(strategy: Strategy) -> None:
    chains, _ = sparse_chain(40).compact(strategy, **ALL, max_chain_length=5)
    pending = {FullMerge(): 0, TimeBoundary(1): 1}.get(strategy, 4) if not isinstance(strategy, Adaptive) else 4
    assert chains.segments.lengths[chains.segments.last_of_entity].tolist() == [pending]
    assert chains.state_at()["a"] == sparse_chain(40).state_at()["a"]


def sparse_chain(count: int) -> Chains:
    deltas = [Delta("a", 10 * i, i, Op.SPARSE, values=[i], indices=[i % 3]) for i in range(count)]
    return Chains.of(deltas, dtype="int64", dims=3)


@pytest.mark.parametrize(
    ("strategy", "left", "merged"),
    [(FullMerge(), 0, 40), (TieredMerge(), 10, 30), (TieredMerge(50), 40, 0), (TimeBoundary(100), 10, 30)],
)
def test_each_strategy_leaves_the_deltas_it_promises(strategy: Strategy, left: int, merged: int) -> None:
    chains, done = sparse_chain(40).compact(strategy, **ALL)
    assert (len(chains.segments.deltas), done.deltas_merged, done.deltas_dropped) == (left, merged, merged)
    assert (done.bytes_after < done.bytes_before) == (merged > 0)
    assert chains.state_at()["a"].vector == (39, 37, 38)


@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        (FullMerge(), [99, 199, 249]),
        (TieredMerge(60), [59, 119, 179, 189]),
        (TimeBoundary(1000), [99, 199]),
        (Adaptive(reads=1, writes=1), [99, 199, 249]),
    ],
    ids=str,
)
def test_checkpoints_stand_where_the_pipeline_places_them(strategy: Strategy, ends: list[int]) -> None:
    """`left` of 250 deltas, none of which a frontier has passed, stay as they are; reads begin at a checkpoint."""
    chains, done = sparse_chain(250).compact(strategy, since=Frontier.at(0), horizon=Frontier.at(0))
    assert chains.segments.base.row_id[1:].tolist() == ends
    assert (len(chains.segments.deltas), done.checkpoints, done.deltas_dropped) == (250, len(ends), 0)
    assert [version.row_id for version in chains.history("a")] == list(range(250))


def test_the_states_at_boundaries_are_kept_when_their_deltas_go() -> None:
    chains, _ = sparse_chain(40).compact(TimeBoundary(100), **ALL)
    assert chains.segments.base.delta_count.tolist() == [0, 10, 20, 30]
    assert chains.segments.lengths.tolist() == [0, 0, 0, 10]


def test_a_checkpoint_names_its_last_delta_and_counts_all() -> None:
    chains, _ = sparse_chain(40).compact(TieredMerge(10), **ALL)
    state = chains.segments.base.entity(0)
    assert (state.event_time, state.at_delta, state.delta_count) == (290, 29, 30)
    assert chains.state_at()["a"].delta_count == 40


def test_a_delta_above_either_frontier_holds_the_deltas_after_it() -> None:
    below, done = sparse_chain(10).compact(FullMerge(), since=Frontier.empty(), horizon=Frontier.at(30))
    assert below.segments.deltas.event_time.min() == 30
    assert (done.deltas_merged, done.deltas_dropped) == (10, 3)
    unseen, _ = sparse_chain(10).compact(FullMerge(), since=Frontier.at(30), horizon=Frontier.empty())
    assert unseen.segments.deltas.event_time.min() == 40


def test_a_chain_of_only_tombstones_is_kept() -> None:
    chains = Chains.of([Delta("a", 0, 0, Op.CREATE, values=[1]), Delta("a", 1, 1, Op.DELETE)], dtype="int64")
    done, _ = chains.compact(FullMerge(), **ALL)
    assert [state.status.name for state in done.state_at().values()] == ["DELETED"]
    assert done.segments.base.entity(0).at_delta == 1


def test_chains_of_nothing_stay_nothing() -> None:
    chains, done = Chains.of([]).compact(FullMerge(), **ALL)
    assert (chains.state_at(), done.checkpoints, done.bytes_after) == ({}, 0, done.bytes_before)
    assert needs_compaction(chains, as_of=0) == {}


def test_refused_deltas_leave_the_chain_uncounted() -> None:
    chains = Chains.of([Delta("a", 0, 0, Op.SCALE, scalar=2), Delta("a", 1, 1, Op.CREATE, values=[1])], dtype="int64")
    assert [version.refusal for version in chains.history("a")] == ["missing_base", None]
    done, told = chains.compact(FullMerge(), **ALL)
    assert (done.history("a"), told.deltas_merged, told.deltas_dropped) == ([], 1, 2)


@pytest.mark.parametrize("refused", [False, True])
def test_a_parent_that_both_frontiers_passed_is_still_found_by_its_children(refused: bool) -> None:
    first = Delta("a", 0, 0, Op.CREATE, values=[1, 2]) if refused else Delta("a", 0, 0, Op.OFFSET, scalar=1)
    chains = Chains.of([first, Delta("a", 9, 1, Op.OFFSET, scalar=2, parent=0)], dtype="int64", dims=1)
    expected = chains.state_at(9)
    for _ in range(2):
        chains, _ = chains.compact(FullMerge(), since=Frontier.empty(), horizon=Frontier.at(5))
        assert len(chains.segments.deltas) == 1
        assert chains.state_at(9) == expected
        assert [version.refusal for version in chains.history("a")] == ["missing_parent" if refused else None]


def test_times_below_the_frontiers_are_refused_by_name() -> None:
    chains, _ = sparse_chain(10).compact(FullMerge(), since=Frontier.at(30), horizon=Frontier.at(50))
    with pytest.raises(BelowHorizon) as early:
        chains.state_at(49)
    assert early.value.facts == {"event_time": 49, "horizon": 50}
    with pytest.raises(BelowSince) as unknown:
        chains.state_at(50, as_known_at=29)
    assert unknown.value.facts == {"known_at": 29, "since": 30}
    with pytest.raises(FrontierRegressionError):
        chains.compact(FullMerge(), since=Frontier.at(29), horizon=Frontier.at(50))


def test_chains_need_compaction_by_count_by_age_and_at_last_by_force() -> None:
    deltas = [Delta("a", 100, i, Op.OFFSET) for i in range(3)]
    deltas += [Delta("b", 40, 10, Op.OFFSET)]
    deltas += [Delta("c", 100, i, Op.OFFSET) for i in range(20, 25)]
    chains = Chains.of(deltas, dtype="int64", dims=1)
    policy = CompactionPolicy(delta_threshold=3, age_threshold=59, max_chain_length=5)
    need = needs_compaction(chains, policy, as_of=100)
    assert need == {"a": Need.SCHEDULED, "b": Need.SCHEDULED, "c": Need.FORCED}
    later = CompactionPolicy(delta_threshold=3, age_threshold=60, max_chain_length=5)
    assert needs_compaction(chains, later, as_of=100)["b"] is Need.NONE
    compacted, _ = chains.compact(FullMerge(), **ALL)
    assert set(needs_compaction(compacted, policy, as_of=999).values()) == {Need.NONE}


@pytest.mark.parametrize("make", [lambda: TimeBoundary(0), lambda: TieredMerge(-1)])
def test_a_strategy_without_meaning_is_refused(make: object) -> None:
    with pytest.raises(ParameterError):
        make()  # type: ignore[operator]


def test_a_chain_of_no_length_is_refused() -> None:
    with pytest.raises(ParameterError, match="max_chain_length of at least 1"):
        sparse_chain(3).compact(FullMerge(), **ALL, max_chain_length=0)
