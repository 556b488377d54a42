"""What the case files can't say of the arrangement: numbering, leases, several collections, JSON, conflicts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.engine.arrangement import (
    ArrangementState,
    CompactionRequest,
    Description,
    ReadLease,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
    merged_batch,
)
from spark_jobs.engine.arrangement.errors import (
    LevelMismatch,
    ReadBelowSince,
    ReadNotSealed,
    SealRegression,
    SeqnoMismatch,
    TimeAtOrBeyondUpper,
    TimeBelowLower,
    TimeBelowTraceUpper,
    TimeBeyondSince,
)
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.trace import (
    ArrowPlane,
    MemoryJournal,
    Merged,
    StateChange,
    StateConflict,
    SteppedArrangement,
    seal_all,
    updates_table,
)

ONE = updates_table([("k", "v", 1, 1)])


def arrangement(journal: MemoryJournal | None = None, collection: str = "main") -> SteppedArrangement[Any]:
    return SteppedArrangement(ArrowPlane(), journal, collection=collection)


def drained() -> SteppedArrangement[Any]:
    """Everything that was appended, as numbers 0 to 2, is in the trace and evicted."""
    drained_ = arrangement()
    drained_.append(ONE, (0, 3))
    drained_.seal(5)
    drained_.drain()
    drained_.evict()
    return drained_


def test_a_number_is_used_once_also_after_its_batch_has_gone() -> None:
    kept = drained()
    assert (kept.state.unsealed, kept.state.seqno_upper) == ((), 3)
    with pytest.raises(SeqnoMismatch) as refusal:
        kept.append(updates_table([("k", "v", 6, 1)]), (0, 1))
    assert refusal.value.as_json() == {"code": "seqno_mismatch", "expected": 3, "got": 0}
    batch = kept.write(updates_table([("k", "v", 6, 1)]))
    assert batch is not None
    assert batch.seqno == (3, 4)


def test_a_number_stays_used_when_the_last_batch_goes_before_an_earlier_one() -> None:
    kept = arrangement()
    kept.append(updates_table([("a", "x", 1, 1), ("a", "x", 9, 1)]), (0, 1))
    kept.append(updates_table([("b", "x", 2, 1)]), (1, 5))
    kept.seal(5)
    kept.drain()
    assert [batch.seqno for batch in kept.evict()] == [(1, 5)]
    assert kept.state.seqno_upper == 5


def test_a_definite_read_is_the_bag_up_to_and_with_its_time() -> None:
    read = arrangement()
    read.write(updates_table([("a", "x", 1, 1), ("a", "x", 3, -1), ("b", "y", 3, 2), ("c", "z", 9, 1)]))
    read.seal(5)
    assert read.snapshot(0).to_pylist() == []
    assert read.snapshot(2).to_pylist() == [{"key": "a", "value": "x", "diff": 1}]
    assert read.snapshot(4).to_pylist() == [{"key": "b", "value": "y", "diff": 2}]
    with pytest.raises(ReadNotSealed) as not_sealed:
        read.snapshot(5)
    assert not_sealed.value.as_json() == {"code": "read_not_sealed", "at": 5, "seal": [5]}
    read.allow_compaction(Frontier.at(3))
    with pytest.raises(ReadBelowSince) as below:
        read.snapshot(2)
    assert below.value.as_json() == {"code": "read_below_since", "at": 2, "since": [3]}
    read.allow_compaction(Frontier.empty())
    with pytest.raises(ReadBelowSince):
        read.snapshot(4)


def test_a_lease_holds_since_back_until_it_expires() -> None:
    held = arrangement()
    held.hold("report", 4, expires_at=100)
    held.hold("query", 2, expires_at=50)
    assert held.allow_compaction(Frontier.at(9), now=10) == Frontier.at(2)
    assert held.allow_compaction(Frontier.at(9), now=49) == Frontier.at(2)
    assert held.allow_compaction(Frontier.at(9), now=50) == Frontier.at(4)
    assert [lease.name for lease in held.state.leases] == ["report"]
    held.hold("report", 6, expires_at=100)
    assert held.allow_compaction(Frontier.empty()) == Frontier.at(6)
    held.release("report")
    held.release("report")
    assert held.allow_compaction(Frontier.at(9), now=60) == Frontier.at(9)
    with pytest.raises(ReadBelowSince):
        held.hold("too late", 8, expires_at=100)


def test_collections_seal_together() -> None:
    journal = MemoryJournal()
    flights, weather = arrangement(journal, "flights"), arrangement(journal, "weather")
    seal_all([flights, weather], 5)
    assert (flights.state.seal, weather.state.seal) == (Frontier.at(5), Frontier.at(5))
    assert journal.load("weather").seal == Frontier.at(5)


@pytest.mark.parametrize("first", ["flights", "weather"])
def test_collections_seal_together_or_not_at_all(first: str) -> None:
    journal = MemoryJournal()
    flights, weather = arrangement(journal, "flights"), arrangement(journal, "weather")
    (flights if first == "flights" else weather).seal(9)
    with pytest.raises(SealRegression):
        seal_all([flights, weather], 7)
    assert {journal.load(name).seal for name in ("flights", "weather")} == {Frontier.at(9), Frontier.at(0)}
    SteppedArrangement(weather.plane, journal, collection="weather").seal(10)
    with pytest.raises(StateConflict) as conflict:
        seal_all([flights, weather], 20)
    assert conflict.value.as_json() == {"code": "state_conflict", "collections": ["weather"]}
    assert journal.load("flights") == flights.state
    assert flights.state.seal < Frontier.at(20)


def test_collections_of_two_journals_can_not_seal_together() -> None:
    with pytest.raises(ParameterError):
        seal_all([arrangement(), arrangement()], 5)


def test_the_loser_of_two_writers_changes_nothing_and_can_go_on_after_a_refresh() -> None:
    journal = MemoryJournal()
    winner, loser = arrangement(journal), arrangement(journal)
    winner.write(ONE)
    for operation in (lambda: loser.write(ONE), lambda: loser.seal(4), lambda: loser.hold("r", 1, expires_at=2)):
        with pytest.raises(StateConflict):
            operation()
    assert journal.load("main") == winner.state
    loser.refresh()
    loser.seal(4)
    assert journal.load("main").seal == Frontier.at(4)


def test_what_moves_nothing_commits_nothing() -> None:
    class CountingJournal(MemoryJournal):
        commits = 0

        def commit(self, changes: Sequence[StateChange]) -> None:
            self.commits += 1
            super().commit(changes)

    journal = CountingJournal()
    quiet = arrangement(journal)
    quiet.seal(5)
    assert journal.commits == 1
    quiet.seal(5)
    quiet.force_seal(5)
    quiet.allow_compaction(Frontier.at(0))
    quiet.release("nobody")
    quiet.write(updates_table([]))
    quiet.drain()
    quiet.unsealed_step()
    quiet.compact()
    assert journal.commits == 1


def test_a_state_survives_json() -> None:
    state = ArrangementState(
        seal=Frontier.empty(),
        since=Frontier.at(2**64 - 1),
        unsealed=(UnsealedBatch("u", (3, 7), 1, 2**64 - 1, 5, 80),),
        trace=(TraceBatch("t", Description(Frontier.at(0), Frontier.empty(), Frontier.at(4)), 2, 9, 100),),
        leases=(ReadLease("report", 7, 12),),
        seqno_floor=3,
    )
    assert ArrangementState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert ArrangementState.from_json(ArrangementState().to_json()) == ArrangementState()


def test_the_state_alone_refuses_an_append_below_the_trace() -> None:
    state = drained().state
    batch = UnsealedBatch.of(StoredBatch("late", 2, 2, 4, 9), (3, 4))
    with pytest.raises(TimeBelowTraceUpper):
        state.append(batch)
    assert state.append(replace(batch, least=5)).seqno_upper == 4


@pytest.mark.parametrize(
    ("least", "greatest", "refusal"), [(4, 8, TimeBelowLower), (5, 9, TimeAtOrBeyondUpper), (5, 8, None)]
)
def test_a_drain_that_holds_a_time_outside_its_interval_is_not_installed(
    least: int, greatest: int, refusal: type[TidemarkError] | None
) -> None:
    first = ArrangementState().advance_seal(5)
    request = first.drain_request()
    assert request is not None
    state = first.install_drain(request, StoredBatch("t0", 1, 1, 4, 4))
    assert state is not None
    state = state.advance_seal(9)
    request = state.drain_request()
    assert request is not None
    stored = StoredBatch("t1", 2, 2, least, greatest)
    if refusal is not None:
        with pytest.raises(refusal):
            state.install_drain(request, stored)
        return
    installed = state.install_drain(request, stored)
    assert installed is not None
    assert (installed.trace[-1].least, installed.trace[-1].greatest) == (least, greatest)
    merge = installed.allow_compaction(Frontier.at(9)).compaction_request()
    assert merge is not None
    with pytest.raises(TimeBeyondSince):
        merged_batch(merge, StoredBatch("m", 3, 3, 4, 10))
    assert merged_batch(merge, StoredBatch("m", 3, 3, 9, 9)).greatest == 9


def test_a_merge_is_refused_before_its_data_is_read() -> None:
    earlier = TraceBatch("gone", Description(Frontier.at(0), Frontier.at(1), Frontier.at(0)), 1, 1, 1)
    later = TraceBatch("gone too", Description(Frontier.at(1), Frontier.at(2), Frontier.at(0)), 0, 1, 1)
    with pytest.raises(LevelMismatch):
        arrangement().merge(CompactionRequest(earlier, later, Frontier.at(2)))


def test_batches_beyond_since_merge_as_they_are_and_every_read_stays() -> None:
    merging, plain = arrangement(), arrangement()
    for day in range(8):
        for each in (merging, plain):
            each.write(updates_table([("k", str(day % 3), day, 1), ("k", "x", day, 1 if day % 2 else -1)]))
            each.seal(day + 1)
            each.drain()
            while each.unsealed_step().evicted:
                pass
        assert merging.compact().merges == 0
    # the newest batch is not settled: seven batches of level 0 become one each of the levels 2, 1 and 0, and the newest
    assert merging.compact(settled=Frontier.at(7)).merges == 4
    assert [(b.level, b.lower.time, b.upper.time) for b in merging.state.trace] == [
        *[(2, 0, 4), (1, 4, 6), (0, 6, 7), (0, 7, 8)]
    ]
    assert merging.state.since == Frontier.at(0)
    assert [merging.snapshot(at) for at in range(8)] == [plain.snapshot(at) for at in range(8)]
    assert merging.trace_snapshot().num_rows == plain.trace_snapshot().num_rows
    merging.check(data=True)


def test_compaction_stops_at_its_budget_of_steps() -> None:
    busy = arrangement()
    for day in range(8):
        busy.write(updates_table([(f"k{day}", "v", day, 1)]))
        busy.seal(day + 1)
        busy.drain()
    busy.allow_compaction(Frontier.at(8))
    assert busy.compact(max_merges=0) == Merged(0, 0)
    assert busy.compact(max_merges=3) == Merged(3, 8)
    assert len(busy.state.trace) == 5
    # the first merge is made whatever it reads
    assert busy.compact(max_updates=1).merges == 1
    assert busy.compact(max_updates=4) == Merged(1, 2)
    assert busy.compact().merges == 2


def test_replaced_data_is_deleted_after_the_commit_and_live_data_never() -> None:
    plane = ArrowPlane()
    kept = SteppedArrangement(plane)
    for day in range(4):
        kept.write(updates_table([("k", "v", day, 1), ("k", "v", day + 1, 1)]))
        kept.seal(day + 1)
        kept.drain()
        kept.unsealed_step()
        kept.allow_compaction(Frontier.at(day + 1))
        kept.compact()
        assert plane.stored().keys() == kept.state.handles()


def test_an_advance_reads_as_its_steps_one_by_one() -> None:
    at_once, step_by_step = arrangement(), arrangement()
    days = [
        ([("a", "x", 0, 1), ("b", "x", 2, 1), ("b", "x", 9, 1)], 2),
        ([], 3),
        ([("b", "x", 9, -1), ("c", "x", 5, 1)], 6),
        ([], 20),
    ]
    for rows, seal in days:
        done = at_once.advance(updates_table(rows) if rows else None, seal)
        assert done.appended == len(rows)
        step_by_step.write(updates_table(rows))
        step_by_step.seal(seal)
        step_by_step.drain()
        while step_by_step.unsealed_step().trimmed:
            pass
        at_once.check(data=True)
        for at in range(seal):
            assert at_once.snapshot(at).equals(step_by_step.snapshot(at))
    assert at_once.plane.stored().keys() == at_once.state.handles()
    # the cancelled update was never moved to the trace
    assert sum(batch.n_updates for batch in at_once.state.trace) == 3


def test_an_advance_that_is_refused_leaves_nothing() -> None:
    refusing = arrangement()
    refusing.advance(updates_table([("a", "x", 3, 2**62), ("a", "x", 8, 1)]), 4)
    before, stored = refusing.state, refusing.plane.stored()
    for rows, seal, code in (
        ([("a", "x", 3, 1)], 5, "time_below_seal"),
        ([("a", "x", 4, 2**62)], 5, "diff_overflow"),
        ([("a", "x", 9, 2**62)], 5, "diff_overflow"),
        ([("a", "x", 4, 1)], 3, "seal_regression"),
    ):
        with pytest.raises(TidemarkError, match=code):
            refusing.advance(updates_table(rows), seal)
        assert (refusing.state, refusing.plane.stored()) == (before, stored)


def test_a_sweep_beside_a_writer_takes_nothing_that_comes_to_count() -> None:
    class SweptInBetween(ArrowPlane):
        """Another process sweeps when a batch is stored and not committed yet."""

        sweeps = 0

        def put(self, updates: pa.Table) -> StoredBatch:
            batch = super().put(updates)
            if not self.sweeps:
                self.sweeps += 1
                assert [swept.handle for swept in other.sweep()] == [batch.handle]
            return batch

    for collection in ("main", "aside"):
        plane, journal = SweptInBetween(), MemoryJournal()
        seal_all([SteppedArrangement(plane, journal, collection=name) for name in ("main", "aside")], 1)
        writer, other = (
            SteppedArrangement(plane, journal, collection="main"),
            SteppedArrangement(plane, journal, collection=collection),
        )
        with pytest.raises(StateConflict):
            writer.write(ONE)
        writer.refresh()
        writer.write(ONE)
        assert writer.updates().equals(ONE)
        assert SteppedArrangement(plane, journal, collection=collection).sweep() == ()
        assert writer.updates().equals(ONE)


def test_every_refusal_says_what_to_do_and_has_a_code_of_its_class() -> None:
    def below(cls: type[TidemarkError]) -> list[type[TidemarkError]]:
        return [cls, *(found for sub in cls.__subclasses__() for found in below(sub))]

    with pytest.raises(SealRegression) as refusal:
        ArrangementState(seal=Frontier.at(5)).advance_seal(4)
    assert str(refusal.value) == (
        "seal_regression: expected a time at or beyond the seal [5], found 4; nothing was changed; "
        "seal at or beyond the present seal"
    )
    assert refusal.value.facts["seal"] == [5]
    from spark_jobs.engine.arrangement import ArrangementError

    public = [cls for cls in below(ArrangementError) if not cls.__name__.startswith("_")]
    assert len(public) > 20
    assert all(cls.code != TidemarkError.code and cls.__doc__ for cls in public)


@pytest.mark.slow
def test_importing_the_trace_starts_no_spark() -> None:
    loaded = "import sys, spark_jobs.trace; print('pyspark' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
