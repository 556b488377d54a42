"""An arrangement against a perfect model, the list of everything ever accepted: for any plane and journal.

Whatever order of writes, seals, drains, evictions, trims, merges, held work and restarts: reads are the model's,
every read that was definite once stays the same until since passes it, the invariants hold, and a refusal leaves
everything as it was.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spark_jobs.engine.arrangement import ArrangementState, CompactionResponse, FinishedDrain, check_trace_batch
from spark_jobs.engine.arrangement.errors import (
    InvalidBatchBounds,
    ReadBelowSince,
    ReadNotSealed,
    SealRegression,
    SeqnoMismatch,
    SnapshotUpperBelowLower,
    TimeBelowSeal,
)
from spark_jobs.engine.twins import consolidation as naive
from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.model import Frontier
from spark_jobs.trace import StateConflict, SteppedArrangement

ticks = st.integers(-1, 6)
"""Times relative to the seal or to since, so that frontiers keep moving however long a run is."""
leaps = ticks | st.integers(6, 20)
updates = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), ticks, st.sampled_from([-1, 1, 1, 2])), max_size=6
)

Row = tuple[Any, ...]


class ArrangementBesideHistory(RuleBasedStateMachine):
    """`history` is every accepted update; seal and since are the model's own. A subclass says where the data is.

    All read the whole of what they look at in Python: for small collections alone.
    """

    arrangement: SteppedArrangement[Any]

    def opened(self) -> SteppedArrangement[Any]:
        """The collection, as another process would open it."""
        raise NotImplementedError

    def as_updates(self, rows: list[Row]) -> Any:
        """Updates in the plane's own form."""
        raise NotImplementedError

    def rows(self, updates: Any) -> list[Row]:
        """What the plane returned, in its order."""
        raise NotImplementedError

    def batch(self, handle: str) -> pa.Table:
        """A batch as it is stored, times as int64."""
        raise NotImplementedError

    def written(self) -> Any:
        """A value that differs once anything was written."""
        raise NotImplementedError

    def looked_at(self, handle: str) -> bool:
        """Whether a batch that was looked at before is to be left alone."""
        return False

    def probes(self) -> set[int]:
        """Times to read at, beside `definite`."""
        return {self.since, (self.since + self.seal) // 2, self.seal - 1, *self.definite}

    @initialize(days=st.lists(st.tuples(updates, st.integers(1, 3)), min_size=1, max_size=6), tick=leaps)
    def start(self, days: list[tuple[list[Row], int]], tick: int) -> None:
        self.begin()
        for batch, length in days:
            self.day(batch, length)
        self.allow_compaction(tick, 0)

    def begin(self) -> None:
        self.arrangement = self.opened()
        self.history: list[Row] = []
        self.seal, self.since, self.now = 0, 0, 0
        self.leases: dict[str, tuple[int, int]] = {}
        self.definite: dict[int, list[Row]] = {}
        self.stored: dict[str, pa.Table] = {}
        self.held_drain: FinishedDrain | None = None
        self.held_merge: CompactionResponse | None = None
        self.seqno = 0
        self.checked: ArrangementState | None = None
        # an advance leaves what cancels out of the batches that wait, too
        self.has_advanced = False

    def refused(self, error: type[Exception], operation: Any, *args: Any) -> None:
        before, written = self.arrangement.state, self.written()
        with pytest.raises(error):
            operation(*args)
        assert self.arrangement.state is before
        assert self.written() == written

    def at_the_seal(self, batch: list[Row], least: int) -> list[Row]:
        return [(key, value, max(0, self.seal + max(least, tick)), diff) for key, value, tick, diff in batch]

    @rule(batch=updates, least=st.integers(-1, 0))
    def write(self, batch: list[Row], least: int) -> None:
        batch = self.at_the_seal(batch, least)
        if any(time < self.seal for _, _, time, _ in batch):
            self.refused(TimeBelowSeal, self.arrangement.write, self.as_updates(batch))
            return
        self.arrangement.write(self.as_updates(batch))
        self.history += batch
        self.seqno += bool(batch)

    @rule(batch=updates, length=st.integers(1, 3))
    def day(self, batch: list[Row], length: int) -> None:
        self.write(batch, 0)
        self.seal_at(length)
        self.drain()
        self.unsealed_step()

    @rule(width=st.integers(1, 3), late=st.integers(0, 3))
    def append(self, width: int, late: int) -> None:
        batch = [("c", "z", self.seal + late, 1)]
        self.refused(SeqnoMismatch, self.arrangement.append, self.as_updates(batch), (self.seqno + 1, self.seqno + 2))
        self.arrangement.append(self.as_updates(batch), (self.seqno, self.seqno + width))
        self.history += batch
        self.seqno += width

    @rule(tick=ticks)
    def seal_at(self, tick: int) -> None:
        if self.seal + tick < self.seal:
            self.refused(SealRegression, self.arrangement.seal, self.seal + tick)
            return
        self.arrangement.seal(self.seal + tick)
        self.seal += tick

    @rule(tick=ticks, later=st.integers(0, 3))
    def allow_compaction(self, tick: int, later: int) -> None:
        asked, self.now = self.since + tick, self.now + later
        now = self.now
        if asked < self.since:
            self.refused(SinceRegression, self.arrangement.allow_compaction, Frontier.at(asked), now)
            return
        self.leases = {name: lease for name, lease in self.leases.items() if now < lease[1]}
        self.since = min([asked, *(at for at, _ in self.leases.values())])
        assert self.arrangement.allow_compaction(Frontier.at(asked), now) == Frontier.at(self.since)

    @rule(name=st.sampled_from("pq"), tick=ticks, lives=st.integers(0, 6))
    def hold(self, name: str, tick: int, lives: int) -> None:
        at, expires_at = self.since + tick, self.now + lives
        if at < self.since:
            with pytest.raises(ReadBelowSince):
                self.arrangement.hold(name, at, expires_at=expires_at)
            return
        self.arrangement.hold(name, at, expires_at=expires_at)
        self.leases[name] = (at, expires_at)

    @rule(name=st.sampled_from("pq"))
    def release(self, name: str) -> None:
        self.arrangement.release(name)
        self.leases.pop(name, None)

    @rule()
    def drain(self) -> None:
        lower = self.arrangement.state.trace_upper.time
        assert lower is not None
        moved = [update for update in self.history if lower <= update[2] < self.seal]
        batch = self.arrangement.drain()
        if self.has_advanced:
            assert batch is not None or not naive.consolidate(moved)
        else:
            assert (batch is None) == (not moved)
        if batch is not None:
            assert (batch.lower, batch.upper, batch.level) == (Frontier.at(lower), Frontier.at(self.seal), 0)
            assert self.of_batch(batch.handle) == naive.consolidate(moved)

    @rule(batch=updates, least=st.sampled_from([-1, 0, 0]), tick=ticks)
    def advance(self, batch: list[Row], least: int, tick: int) -> None:
        batch, seal = self.at_the_seal(batch, least), self.seal + tick
        if seal < self.seal:
            self.refused(SealRegression, self.arrangement.advance, self.as_updates(batch), seal)
            return
        before, stored = self.arrangement.state, self.arrangement.plane.stored()
        if any(time < self.seal for _, _, time, _ in batch):
            with pytest.raises(TimeBelowSeal):
                self.arrangement.advance(self.as_updates(batch), seal)
            assert (self.arrangement.state, self.arrangement.plane.stored()) == (before, stored)
            return
        done = self.arrangement.advance(self.as_updates(batch) if batch else None, seal)
        self.history += batch
        self.seal, self.has_advanced = seal, True
        after = self.arrangement.state
        assert done.appended == len(batch)
        assert all(waiting.least >= seal for waiting in after.unsealed)
        assert (after.trace_upper > before.trace_upper) == (done.drained > 0)
        if done.drained:
            lower = before.trace_upper.time or 0
            due = [update for update in self.history if lower <= update[2] < seal]
            assert self.of_batch(after.trace[-1].handle) == naive.consolidate(due)
        assert after.seqno_upper >= self.seqno
        self.seqno = after.seqno_upper

    @rule()
    def sweep(self) -> None:
        stored, named = self.arrangement.plane.stored(), self.arrangement.state.handles()
        swept = self.arrangement.sweep()
        assert {batch.handle for batch in swept} == stored.keys() - named
        assert self.arrangement.plane.stored().keys() <= named
        # held work had stored what it would install: it is to be done anew
        self.held_drain = self.held_merge = None
        self.seqno += bool(swept)

    @rule()
    def begin_drain(self) -> None:
        self.held_drain = self.arrangement.begin_drain()

    @precondition(lambda self: self.held_drain is not None)
    @rule()
    def apply_drain(self) -> None:
        assert self.held_drain is not None
        in_time = self.held_drain.request.lower == self.arrangement.state.trace_upper
        assert (self.arrangement.apply_drain(self.held_drain) is not None) == in_time

    @rule(batch=updates, meanwhile=st.booleans())
    def drain_overtaken(self, batch: list[Row], meanwhile: bool) -> None:
        self.write(batch, 0)
        self.seal_at(3)
        self.begin_drain()
        if meanwhile:
            self.drain()
        if self.held_drain is not None:
            self.apply_drain()

    @rule()
    def evict(self) -> None:
        gone = self.arrangement.evict()
        upper = self.arrangement.state.trace_upper
        assert all(not upper.admits(batch.greatest) for batch in gone)
        assert all(upper.admits(batch.greatest) for batch in self.arrangement.state.unsealed)

    @rule()
    def unsealed_step(self) -> None:
        straddling = sum(self.straddles(batch) for batch in self.arrangement.state.unsealed)
        step = self.arrangement.unsealed_step()
        assert (step.trimmed is not None) == (straddling > 0)
        assert sum(self.straddles(batch) for batch in self.arrangement.state.unsealed) == max(0, straddling - 1)

    def straddles(self, batch: Any) -> bool:
        upper = self.arrangement.state.trace_upper
        return not upper.admits(batch.least) and upper.admits(batch.greatest)

    def every_merge_was_due(self) -> None:
        trace, since = self.arrangement.state.trace, self.arrangement.state.since
        # a merged batch has a since of its own; nothing that since has not passed may be merged
        assert all(batch.upper <= since for batch in trace if batch.since != Frontier.at(0))
        assert all(a.level > b.level for a, b in pairwise(trace) if b.upper <= since)

    @rule(tick=leaps)
    def begin_merge(self, tick: int) -> None:
        self.allow_compaction(tick, 1)
        request = self.arrangement.compaction_request()
        self.held_merge = None if request is None else self.arrangement.merge(request)
        if request is None or self.held_merge is None:
            return
        earlier, later = (self.of_batch(b.handle) for b in (request.earlier, request.later))
        wanted = naive.consolidate(naive.forward(earlier + later, self.since))
        merged = self.held_merge.merged
        assert self.of_batch(merged.handle) == wanted
        larger = merged.size > max(request.earlier.size, request.later.size)
        assert merged.level - request.earlier.level == larger

    @rule(tick=leaps, meanwhile=st.booleans())
    def merge_overtaken(self, tick: int, meanwhile: bool) -> None:
        self.begin_merge(tick)
        if meanwhile:
            self.compact(0)
        if self.held_merge is not None:
            self.install_merge()

    @precondition(lambda self: self.held_merge is not None)
    @rule()
    def install_merge(self) -> None:
        assert self.held_merge is not None
        request, trace = self.held_merge.request, self.arrangement.state.trace
        in_time = request.earlier in trace and request.later in trace
        replaced = self.arrangement.install(self.held_merge)
        assert replaced == ((request.later, request.earlier) if in_time else ())

    @rule(tick=leaps)
    def compact(self, tick: int) -> None:
        self.allow_compaction(tick, 1)
        waiting = len(self.arrangement.state.trace)
        merges = self.arrangement.compact().merges
        assert len(self.arrangement.state.trace) == waiting - merges
        assert self.arrangement.compaction_request() is None
        self.every_merge_was_due()
        assert self.arrangement.compact().merges == 0

    @rule()
    def restart(self) -> None:
        state = self.arrangement.state
        assert ArrangementState.from_json(json.loads(json.dumps(state.to_json()))) == state
        self.arrangement = self.opened()
        assert self.arrangement.state == state

    @rule()
    def another_writer_comes_first(self) -> None:
        other = self.opened()
        batch = [("d", "w", self.seal, 1)]
        other.write(self.as_updates(batch))
        self.history += batch
        self.seqno += 1
        with pytest.raises(StateConflict):
            self.arrangement.write(self.as_updates(batch))
        self.arrangement.refresh()

    @rule()
    def roll_a_seal_back(self) -> None:
        drained = self.arrangement.state.trace_upper
        self.arrangement.force_seal(max(0, self.seal - 1))
        if self.arrangement.state.seal < drained:
            self.refused(InvalidBatchBounds, self.arrangement.drain)
        self.arrangement.force_seal(self.seal)

    @rule(lo_tick=ticks, hi_tick=ticks)
    def read_unsealed(self, lo_tick: int, hi_tick: int) -> None:
        lo, hi = self.seal + lo_tick, self.seal + hi_tick
        bounds = (Frontier.at(lo), Frontier.at(hi))
        if hi < lo:
            self.refused(SnapshotUpperBelowLower, self.arrangement.unsealed_snapshot, *bounds)
            return
        drained = self.arrangement.state.trace_upper
        read = [
            update for update in self.rows(self.arrangement.unsealed_snapshot(*bounds)) if drained.admits(update[2])
        ]
        wanted = [update for update in self.history if lo <= update[2] < hi and drained.admits(update[2])]
        assert naive.consolidate(read) == naive.consolidate(wanted)
        assert self.has_advanced or Counter(read) == Counter(wanted)

    @invariant()
    def everything_holds(self) -> None:
        if self.arrangement.state is not self.checked:
            self.reads_are_the_models()
            self.definite_reads_stay_until_since_passes_them()
            self.metadata_and_batches_are_valid()
            self.checked = self.arrangement.state

    def reads_are_the_models(self) -> None:
        state = self.arrangement.state
        assert (state.seal, state.since) == (Frontier.at(self.seal), Frontier.at(self.since))
        assert state.seqno_upper == self.seqno
        everything = naive.consolidate(naive.forward(self.history, self.since))
        assert naive.consolidate(self.rows(self.arrangement.updates())) == everything

    def definite_reads_stay_until_since_passes_them(self) -> None:
        for at in self.probes():
            if at < self.since:
                self.refused(ReadBelowSince, self.arrangement.snapshot, at)
                self.definite.pop(at, None)
            elif at < self.seal:
                read = self.rows(self.arrangement.snapshot(at))
                assert read == self.definite.setdefault(at, read)
                assert read == naive.accumulate([update for update in self.history if update[2] <= at])
        if self.since <= self.seal:
            self.refused(ReadNotSealed, self.arrangement.snapshot, self.seal)

    def metadata_and_batches_are_valid(self) -> None:
        state = self.arrangement.state
        self.arrangement.check()
        for batch in state.trace:
            if self.looked_at(batch.handle):
                continue
            stored = self.batch(batch.handle)
            check_trace_batch(batch.description, stored)
            assert batch.n_updates == stored.num_rows
            assert self.stored.setdefault(batch.handle, stored).equals(stored)
        for unsealed in state.unsealed:
            if self.looked_at(unsealed.handle):
                continue
            held = self.batch(unsealed.handle)
            times = held.column("time").to_pylist()
            assert (min(times), max(times), len(times)) == (unsealed.least, unsealed.greatest, unsealed.n_updates)
            assert self.stored.setdefault(unsealed.handle, held).equals(held)

    def of_batch(self, handle: str) -> list[Row]:
        stored = self.batch(handle)
        return list(zip(*(column.to_pylist() for column in stored.columns), strict=True))
