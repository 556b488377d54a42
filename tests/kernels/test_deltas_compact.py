"""Compaction: fewer deltas, the same answers at every time that may be asked, and nothing left for a second pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.errors import ParameterError
from spark_jobs.kernels.deltas.batch import Delta, DeltaBatch
from spark_jobs.kernels.deltas.compact import (
    STILL_KNOWN,
    BelowHorizonError,
    BelowSinceError,
    ChainSet,
    FrontierRegressionError,
    Need,
    compact,
    needs_compaction,
    states_at,
)
from spark_jobs.kernels.deltas.ops import Op
from spark_jobs.kernels.deltas.strategies import Adaptive, FullMerge, Strategy, TieredMerge, TimeBoundary
from spark_jobs.model import Frontier
from tests.effort import tries
from tests.kernels.delta_strategies import ENTITIES, TRANSFORMS, delta_lists

STRATEGIES: list[Strategy] = [
    FullMerge(),
    TieredMerge(0),
    TieredMerge(2),
    TimeBoundary(1),
    TimeBoundary(4),
    Adaptive(reads=np.array([9, 0, 1]), writes=np.array([1, 5, 2]), keep_recent=1),
]


@st.composite
def chain_sets(draw: st.DrawFn) -> ChainSet:
    dtype, dims = draw(st.sampled_from(["int64", "float32"])), draw(st.one_of(st.none(), st.integers(1, 3)))
    deltas = draw(delta_lists(dtype, dims))
    known_from = [draw(st.integers(0, 8)) for _ in deltas]
    known_to = [draw(st.one_of(st.just(STILL_KNOWN), st.just(STILL_KNOWN), st.integers(t + 1, 9))) for t in known_from]
    batch = DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype=dtype, dims=dims)
    return ChainSet.of(batch, np.array(known_from, dtype=np.int64), np.array(known_to, dtype=np.int64))


def same_chains(left: ChainSet, right: ChainSet) -> bool:
    names = ("entity", "event_time", "row_id", "op", "weight", "offsets", "indices")
    return (
        bool(left.checkpoints.same_bits(right.checkpoints).all())
        and all(np.array_equal(getattr(left.pending, n), getattr(right.pending, n)) for n in names)
        and left.pending.values.tobytes() == right.pending.values.tobytes()
        and np.array_equal(left.known_from, right.known_from)
        and left.nbytes == right.nbytes
    )


@given(
    chains=chain_sets(),
    strategy=st.sampled_from(STRATEGIES),
    since=st.integers(0, 9),
    horizon=st.integers(-4, 8),
    asked=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=4),
)
@settings(max_examples=tries(40), deadline=None)
def test_every_answer_at_or_beyond_the_frontiers_stays_and_a_second_pass_changes_nothing(
    chains: ChainSet, strategy: Strategy, since: int, horizon: int, asked: list[tuple[int, int]]
) -> None:
    frontiers = {"since": Frontier.at(since), "horizon": Frontier.at(horizon)}
    before = {
        (time, known): states_at(chains, time, known_at=known, transforms=TRANSFORMS)
        for time, known in ((horizon + ahead, since + later) for ahead, later in asked)
    }
    once = compact(chains, strategy, **frontiers, transforms=TRANSFORMS)
    for (time, known), expected in before.items():
        actual = states_at(once.chains, time, known_at=known, transforms=TRANSFORMS)
        assert actual.same_bits(expected).all(), (time, known)
    assert len(once.chains.pending) <= len(chains.pending)
    twice = compact(once.chains, strategy, **frontiers, transforms=TRANSFORMS)
    assert same_chains(twice.chains, once.chains)
    assert (twice.deltas_merged, len(twice.refused)) == (0, 0)


@given(chains=chain_sets(), strategy=st.sampled_from(STRATEGIES), steps=st.lists(st.integers(-4, 9), max_size=4))
@settings(max_examples=tries(20), deadline=None)
def test_compacting_in_steps_gives_the_answers_of_the_raw_chains(
    chains: ChainSet, strategy: Strategy, steps: list[int]
) -> None:
    expected = states_at(chains, transforms=TRANSFORMS)
    compacted = chains
    for step in sorted(steps):
        frontiers = {"since": Frontier.at(max(step, 0)), "horizon": Frontier.at(step)}
        compacted = compact(compacted, strategy, **frontiers, transforms=TRANSFORMS).chains
    assert states_at(compacted, transforms=TRANSFORMS).same_bits(expected).all()


@given(
    chains=chain_sets(),
    strategy=st.sampled_from([*STRATEGIES, TieredMerge(9), Adaptive(0, 1, keep_recent=9)]),
    most=st.integers(1, 6),
    since=st.integers(0, 9),
    horizon=st.integers(-4, 8),
)
@settings(max_examples=tries(60), deadline=None)
def test_no_strategy_leaves_a_chain_that_must_be_compacted_unless_the_frontiers_hold_it(
    chains: ChainSet, strategy: Strategy, most: int, since: int, horizon: int
) -> None:
    frontiers = {"since": Frontier.at(since), "horizon": Frontier.at(horizon)}
    done = compact(chains, strategy, **frontiers, transforms=TRANSFORMS, max_chain_length=most)
    lengths = done.chains.lengths()
    assert np.array_equal(done.held_back, lengths >= most)
    least = compact(chains, FullMerge(), **frontiers, transforms=TRANSFORMS).chains.lengths()
    assert np.array_equal(lengths[done.held_back], least[done.held_back])
    need = needs_compaction(done.chains, as_of=0, age_threshold=99, max_chain_length=most)
    assert np.array_equal(need == Need.FORCED, done.held_back)
    again = compact(done.chains, strategy, **frontiers, transforms=TRANSFORMS, max_chain_length=most)
    assert same_chains(again.chains, done.chains)
    for event_time, known in ((horizon, since), (horizon + 3, since + 2), (99, 99)):
        expected = states_at(chains, event_time, known_at=known, transforms=TRANSFORMS)
        actual = states_at(done.chains, event_time, known_at=known, transforms=TRANSFORMS)
        assert actual.same_bits(expected).all()


@pytest.mark.parametrize(
    "strategy", [TieredMerge(10), Adaptive(reads=0, writes=1), TimeBoundary(1), FullMerge()], ids=str
)
def test_a_chain_keeps_fewer_deltas_than_force_its_compaction(strategy: Strategy) -> None:
    done = compact(sparse_chain(40), strategy, **ALL, max_chain_length=5)
    assert done.chains.lengths().max() == (0 if strategy == FullMerge() else 4)
    assert not done.held_back.any()
    assert states_at(done.chains).entity(0) == states_at(sparse_chain(40)).entity(0)


def sparse_chain(count: int) -> ChainSet:
    deltas = [Delta("a", 10 * i, i, Op.SPARSE, values=[i], indices=[i % 3]) for i in range(count)]
    return ChainSet.of(DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64", dims=3))


ALL = {"since": Frontier.empty(), "horizon": Frontier.empty()}


@pytest.mark.parametrize(
    ("strategy", "left", "merged"),
    [(FullMerge(), 0, 40), (TieredMerge(), 10, 30), (TieredMerge(50), 40, 0), (TimeBoundary(100), 4, 36)],
)
def test_each_strategy_leaves_the_deltas_it_promises(strategy: Strategy, left: int, merged: int) -> None:
    done = compact(sparse_chain(40), strategy, **ALL)
    assert (len(done.chains.pending), done.deltas_merged) == (left, merged)
    assert (done.bytes_after < done.bytes_before) == (merged > 0)
    assert states_at(done.chains).entity(0).vector == (39, 37, 38)


def test_a_checkpoint_names_its_last_delta_and_counts_all() -> None:
    done = compact(sparse_chain(40), TieredMerge(10), **ALL)
    state = done.chains.checkpoints.entity(0)
    assert (state.event_time, state.at_delta, state.delta_count) == (290, 29, 30)
    assert states_at(done.chains).entity(0).delta_count == 40


def test_a_delta_above_either_frontier_holds_the_rest_of_its_chain() -> None:
    chains = sparse_chain(10)
    below = compact(chains, FullMerge(), since=Frontier.empty(), horizon=Frontier.at(30))
    assert below.chains.pending.event_time.min() == 30
    unseen = compact(chains, FullMerge(), since=Frontier.at(30), horizon=Frontier.empty(), max_chain_length=6)
    assert unseen.chains.pending.event_time.min() == 40
    assert unseen.held_back.tolist() == [True, False, False]


def test_a_chain_of_only_tombstones_and_an_empty_chain_are_kept() -> None:
    deltas = [Delta("a", 0, 0, Op.CREATE, values=[1]), Delta("a", 1, 1, Op.DELETE)]
    chains = ChainSet.of(DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64"))
    done = compact(chains, FullMerge(), **ALL)
    assert [done.chains.checkpoints.entity(code).status.name for code in range(3)] == ["DELETED", "ABSENT", "ABSENT"]
    assert done.chains.checkpoints.entity(1).at_delta is None


def test_refused_deltas_leave_the_chain_with_their_reason() -> None:
    deltas = [Delta("a", 0, 0, Op.SCALE, scalar=2), Delta("a", 1, 1, Op.CREATE, values=[1])]
    chains = ChainSet.of(DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64"))
    done = compact(chains, FullMerge(), **ALL)
    assert done.refused.row_id.tolist() == [0]
    assert len(done.reasons) == 1
    assert (len(done.chains.pending), done.deltas_merged) == (0, 1)


def test_a_folded_parent_is_still_found_by_its_children() -> None:
    deltas = [Delta("a", 0, 0, Op.OFFSET, scalar=1), Delta("a", 9, 1, Op.OFFSET, scalar=2, parent=0)]
    chains = ChainSet.of(DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64", dims=1))
    done = compact(chains, FullMerge(), since=Frontier.empty(), horizon=Frontier.at(5))
    assert len(done.chains.pending) == 1
    assert states_at(done.chains, 9).entity(0).vector == (3,)


def test_times_below_the_frontiers_are_refused_by_name() -> None:
    chains = compact(sparse_chain(10), FullMerge(), since=Frontier.at(30), horizon=Frontier.at(50)).chains
    with pytest.raises(BelowHorizonError) as early:
        states_at(chains, 49)
    assert early.value.facts == {"event_time": 49, "horizon": [50]}
    with pytest.raises(BelowSinceError) as unknown:
        states_at(chains, 50, known_at=29)
    assert unknown.value.facts == {"known_at": 29, "since": [30]}
    with pytest.raises(FrontierRegressionError):
        compact(chains, FullMerge(), since=Frontier.at(29), horizon=Frontier.at(50))


def test_chains_need_compaction_by_count_by_age_and_at_last_by_force() -> None:
    deltas = [Delta("a", 100, i, Op.OFFSET) for i in range(3)]
    deltas += [Delta("b", 40, 10, Op.OFFSET)]
    deltas += [Delta("c", 100, i, Op.OFFSET) for i in range(20, 25)]
    chains = ChainSet.of(DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype="int64", dims=1))
    limits = {"delta_threshold": 3, "max_chain_length": 5}
    need = needs_compaction(chains, as_of=100, age_threshold=59, **limits)
    assert need.tolist() == [Need.SCHEDULED, Need.SCHEDULED, Need.FORCED]
    assert needs_compaction(chains, as_of=100, age_threshold=60, **limits).tolist()[1] == Need.NONE


@pytest.mark.parametrize("make", [lambda: TimeBoundary(0), lambda: TieredMerge(-1)])
def test_a_strategy_without_meaning_is_refused(make: object) -> None:
    with pytest.raises(ParameterError):
        make()  # type: ignore[operator]


def test_a_chain_of_no_length_is_refused() -> None:
    with pytest.raises(ParameterError, match="max_chain_length of at least 1"):
        compact(sparse_chain(3), FullMerge(), **ALL, max_chain_length=0)
