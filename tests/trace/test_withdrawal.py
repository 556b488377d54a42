"""What stays and what goes when frontiers that no publication shows are withdrawn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.arrangement import (
    ArrangementState,
    CompactionResponse,
    ReadLease,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
    check_state,
)
from spark_jobs.model import Frontier
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.withdrawal import withdraw

STEP = 10


def moved(frontiers: SourceFrontiers, token: int, late: int, merges: bool) -> SourceFrontiers:
    """One run's seal: some rows of before the new seal, some beyond it, and perhaps a merge and a later since."""
    state, seal = frontiers.arrangement, frontiers.seal_us + STEP
    sealed = state.advance_seal(seal)
    request = sealed.drain_request()
    assert request is not None
    drained = sealed.install_drain(request, StoredBatch(f"T{token}", 2, 8, seal - 1, seal - 1))
    assert drained is not None
    rests = [StoredBatch(f"U{token}", 1, 4, seal + late, seal + late)]
    after = drained.rewrite([b for b in drained.unsealed if b.least < seal + STEP], rests)
    if merges:
        after = after.allow_compaction(Frontier.at(seal))
        pair = after.compaction_request()
        if pair is not None:
            times = pair.earlier.lower.time or 0, seal
            batch = TraceBatch.of(StoredBatch(f"M{token}", 2, 4, *times), pair.description, level=0)
            merged = after.install_merge(CompactionResponse(pair, batch))
            assert merged is not None
            after = merged
    return replace(
        frontiers.replace_arrangement(after, token), reached_us=seal, horizon_us=seal - STEP, rows_from_us=token
    )


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=8), st.integers(0, 8))
def test_the_frontiers_of_the_publication_stand_again_and_nothing_that_followed_is_forgotten(
    runs: list[tuple[int, bool]], published_after: int
) -> None:
    states = [SourceFrontiers(ArrangementState(), 0)]
    for token, (late, merges) in enumerate(runs, 1):
        states.append(moved(states[-1], token, late, merges))
    published, unpublished = states[min(published_after, len(runs) - 1)], states[-1]
    lease = ReadLease("audit", unpublished.arrangement.since.time or 0, 99)
    unpublished = replace(unpublished, arrangement=unpublished.arrangement.hold(lease))
    restored = withdraw(unpublished, published, 100)
    check_state(restored.arrangement)
    assert restored.seal_us == published.seal_us
    assert restored.arrangement.handles() == published.arrangement.handles()
    assert (restored.landed, restored.landed_through) == (published.landed, published.landed_through)
    # every batch there ever was is named or obsolete, once
    obsolete = [handle for handle, _ in restored.obsolete]
    ever = {handle for state in states for handle in state.arrangement.handles()}
    assert sorted([*obsolete, *restored.arrangement.handles()]) == sorted(ever)
    # what readers hold and retention let go stays so, and no number is used again
    assert restored.arrangement.leases == (lease,)
    assert restored.arrangement.since == unpublished.arrangement.since
    assert (restored.horizon_us, restored.rows_from_us) == (unpublished.horizon_us, unpublished.rows_from_us)
    number = restored.arrangement.seqno_upper
    assert number >= unpublished.arrangement.seqno_upper
    fresh = UnsealedBatch("new", (number, number + 1), 10**6, 10**6, 1, 4)
    check_state(restored.arrangement.append(fresh))
