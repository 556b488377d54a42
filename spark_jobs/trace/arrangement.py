"""An arrangement: a collection's history of updates, with frontiers that make every read definite.

An arrangement is a pure state machine (`spark_jobs.engine.arrangement`) over a data plane. Each operation has the same
steps: the state decides what to do or refuses, the plane stores new batches, and one commit to the journal makes them
visible. Only then is the data that they replace deleted. A refusal, a conflict or a crash before the commit changes
nothing that can be read.

`advance` does all the work of a run in one write and one commit. `spark_jobs.trace.stepped` takes the same steps one by
one, by the same functions of the state. `spark_jobs.trace.steps` names those that a commit has taken.

Guarantee: for `since <= t < seal`, `snapshot(t)` is the consolidated bag of the updates with time <= t. No append,
seal, drain, eviction or compaction changes it until since passes t.
Cost: a read reads the live batches, O(log N) trace batches after compaction; N appends rewrite O(N log N) in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Generic

import pyarrow as pa

from spark_jobs.engine.arrangement import (
    ArrangementError,
    ArrangementState,
    Buckets,
    CompactionRequest,
    CompactionResponse,
    ReadLease,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
    check_mergeable,
    check_state,
    merged_batch,
)
from spark_jobs.engine.updates import TimeOutOfRange
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.trace.journal import MemoryJournal, StateChange, StateJournal
from spark_jobs.trace.plane import DataPlane, Slice, U

SMALLEST_BUCKETS = Buckets(start=0, unit=1)
_START = Frontier.at(0)


@dataclass(frozen=True, slots=True)
class Advanced:
    """The result of one `advance`: the numbers of updates appended and moved to the trace; those that cancel count."""

    appended: int
    drained: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of `compact`: the number of merges, and the number of updates that they read."""

    merges: int
    updates: int


class Arrangement(Generic[U]):
    """One collection. `state` is its committed state as this object last read or wrote it.

    Args:
        plane: the place of the updates.
        journal: the place of the committed state; collections that seal together share one. In memory by default.
        collection: the collection's name in the journal.
        buckets: the buckets in which `advance` lets updates wait that are not due.
    """

    def __init__(
        self,
        plane: DataPlane[U],
        journal: StateJournal | None = None,
        *,
        collection: str = "updates",
        buckets: Buckets = SMALLEST_BUCKETS,
    ) -> None:
        self.plane = plane
        self.buckets = buckets
        self.journal = MemoryJournal() if journal is None else journal
        self.collection = collection
        self.state = self.journal.load(collection)

    def refresh(self) -> None:
        """Read the committed state again, after a StateConflict or to see another writer's work."""
        self.state = self.journal.load(self.collection)

    # -- all of a run in one step --------------------------------------------------------------------------------------

    def advance(self, updates: U | None, seal: int) -> Advanced:
        """Append updates at or beyond the present seal (None: none), seal at `seal`, and move the updates that are then
        sealed to the trace: one write and one commit.

        Each update is written once, straight into its final batch, see `engine.arrangement.future`. Of the waiting
        batches, only those with due updates are opened. Reads then return the same as after `write`, `seal`, `drain`
        and all of `unsealed_step` of a `SteppedArrangement`. Raises TimeOutOfRange, SealRegression, InvalidBatchBounds,
        MalformedUpdates, TimeBelowSeal or DiffOverflow: then nothing is committed, and the stored batches are deleted.
        """
        request = self.state.advance_request(self._time(seal), self.buckets)
        if updates is None and not request.moving:
            self._commit(self.state.advance(request, None, ()))
            return Advanced(0, 0)
        placed = self.plane.place(updates, request)
        try:
            self.state.check_front_door(placed.examined.first_below[0])
            if updates is not None:
                self.plane.check_sums(updates, placed.examined.magnitude, self._all_updates)
            after = self.state.advance(request, placed.drained, placed.waiting)
        except TidemarkError:
            self.plane.delete(placed.handles)
            raise
        self._commit(after, obsolete=request.moving)
        return Advanced(placed.examined.n_updates, placed.n_drained)

    # -- compaction ----------------------------------------------------------------------------------------------------

    def allow_compaction(self, since: Frontier, now: int | None = None) -> Frontier:
        """Advance since, as far as the leases in force at `now` allow; returns the since in force. Moves no data.

        Raises TimeOutOfRange, then SinceRegression. `since` may be beyond the seal; the empty frontier `[]` is final.
        """
        now = None if now is None else whole("now", now)
        self._commit(self.state.allow_compaction(self._frontier(since), now))
        return self.state.since

    def hold(self, name: str, at: int, *, expires_at: int) -> None:
        """Hold since at or before `at`, so that it stays readable, until `release` or `expires_at`.

        A later call with the same name replaces the lease. Raises TimeOutOfRange, then ReadBelowSince.
        """
        if not isinstance(name, str):
            raise ParameterError(expected="the lease's name as text", found=repr(name), next_step="name it", name=name)
        self._commit(self.state.hold(ReadLease(name, self._time(at), whole("expires_at", expires_at))))

    def release(self, name: str) -> None:
        """End a held read; since itself moves at the next `allow_compaction`."""
        self._commit(self.state.release(name))

    def compaction_request(self, settled: Frontier = _START) -> CompactionRequest | None:
        """See `ArrangementState.compaction_request`."""
        return self.state.compaction_request(settled)

    def merge(self, request: CompactionRequest) -> CompactionResponse:
        """Merge two adjoining batches of one level, every time forwarded to the request's since; nothing is installed.

        Raises the errors of `check_mergeable` before any data is read, and those of `merged_batch` with no batch left
        in the plane.
        """
        check_mergeable(request)
        stored = self.plane.merge(request.earlier.handle, request.later.handle, request.since)
        try:
            return CompactionResponse(request, merged_batch(request, stored))
        except ArrangementError:
            self.plane.delete([stored.handle])
            raise

    def install(self, response: CompactionResponse) -> tuple[TraceBatch, ...]:
        """Put the merged batch in the place of its inputs; returns the two replaced batches, the later one first.

        Unless both inputs are still there, side by side and unchanged, do nothing and return `()`.
        """
        after = self.state.install_merge(response)
        if after is None:
            return ()
        replaced = (response.request.later, response.request.earlier)
        self._commit(after, obsolete=replaced)
        return replaced

    def compact(
        self, max_merges: int | None = None, max_updates: int | None = None, settled: Frontier = _START
    ) -> Merged:
        """Merge until no merge is left, or a budget is spent; each merge is installed by itself.

        Batches that `settled` has passed, and since has not, merge with their times as they are. The first merge is
        made even if it reads more than `max_updates`.
        """
        merges = updates = 0
        while (request := self.compaction_request(settled)) is not None and (max_merges is None or merges < max_merges):
            read = request.earlier.n_updates + request.later.n_updates
            if merges and max_updates is not None and updates + read > max_updates:
                break
            self.install(self.merge(request))
            merges, updates = merges + 1, updates + read
        return Merged(merges, updates)

    def sweep(self) -> tuple[StoredBatch, ...]:
        """Remove the batches that no state of the journal names: their writers stored them and ended before the commit.

        Safe beside writers: a writer that has stored a batch without a commit finds that its collection's state has
        moved on, and repeats its operation. Not safe beside the first write of another collection of the plane, nor
        beside work in progress (`begin_drain`, `merge`), whose batches are removed, too. Returns the removed batches,
        by handle. Raises StateConflict.
        """
        stored = self.plane.stored()
        states = {**self.journal.states(), self.collection: self.state}
        named = self.journal.kept_handles().union(*(state.handles() for state in states.values()))
        orphans = sorted(stored.keys() - named)
        if orphans:
            self.journal.commit(
                [StateChange(name, state, state.without_next_seqno()) for name, state in states.items()]
            )
            self.state = self.state.without_next_seqno()
            self.plane.delete(orphans)
        return tuple(stored[handle] for handle in orphans)

    # -- reading -------------------------------------------------------------------------------------------------------

    def snapshot(self, at: int) -> pa.Table:
        """The definite read: the consolidated bag (data, diff) of the updates with time <= `at`, sorted by data.

        Raises TimeOutOfRange, then ReadBelowSince, then ReadNotSealed.
        """
        at = self._time(at)
        self.state.check_readable(at)
        return self.plane.accumulate(self._all_updates(upper=Frontier.at(at + 1)))

    def check(self, *, data: bool = False) -> None:
        """Check the metadata's invariants, and with `data` also the stored updates of every trace batch. Raises for the
        first broken one (see `engine.arrangement.checks`)."""
        check_state(self.state)
        for batch in self.state.trace if data else ():
            if batch.n_updates:
                self.plane.check(batch.handle, batch.description)

    def _time(self, time: int) -> int:
        """`time` as a Python integer. Raises TimeOutOfRange if it is no whole number or above the plane's times. A time
        below them is accepted: the state checks it."""
        if not isinstance(time, Integral) or isinstance(time, bool) or time > self.plane.greatest_time:
            raise TimeOutOfRange(time, self.plane.greatest_time)
        return int(time)

    def _frontier(self, frontier: Frontier) -> Frontier:
        """`frontier` with its time as `_time` returns it. Raises TimeOutOfRange."""
        if not isinstance(frontier, Frontier):
            raise TimeOutOfRange(frontier, self.plane.greatest_time)
        return frontier if frontier.time is None else Frontier(self._time(frontier.time))

    def _all_updates(self, upper: Frontier = Frontier.empty()) -> list[Slice]:  # noqa: B008  an immutable value
        # from trace_upper on, so that updates that a drain has moved and no trim has cut do not count twice
        unsealed = self._unsealed_updates(self.state.trace_upper, upper)
        return [Slice(batch.handle, upper=upper) for batch in self.state.trace] + unsealed

    def _unsealed_updates(self, lo: Frontier, hi: Frontier) -> list[Slice]:
        # the batches' bounds decide which ones can be skipped unread
        touched = (b for b in self.state.unsealed if lo.admits(b.greatest) and not hi.admits(b.least))
        return [Slice(batch.handle, lo, hi) for batch in touched]

    def _commit(self, after: ArrangementState, obsolete: Sequence[TraceBatch | UnsealedBatch] = ()) -> None:
        # an unchanged state is not written again: a commit costs a table version
        if after != self.state:
            self.journal.commit([StateChange(self.collection, self.state, after)])
            self.state = after
        if obsolete:
            self.plane.delete([batch.handle for batch in obsolete])


def whole(name: str, value: int) -> int:
    """`value` as a Python integer. Raises ParameterError."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ParameterError(expected=f"{name} as a whole number", found=repr(value), next_step="give an integer")
    return int(value)
