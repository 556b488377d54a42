"""An arrangement whose steps are taken one by one, as the reference has them.

Runs of a source take all steps at once (`Arrangement.advance`). Here each step has a commit of its own, so that several
writers can take them, and the case files of the reference can be replayed. The decisions are the same functions of the
state (`spark_jobs.engine.arrangement.state`); `advance` calls them one after another. Definition: Materialize persist
`Arrangement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.engine.arrangement import (
    Buckets,
    FinishedDrain,
    SeqnoRange,
    TraceBatch,
    UnsealedBatch,
)
from spark_jobs.engine.updates import TimeOutOfRange
from spark_jobs.errors import ParameterError
from spark_jobs.model import Frontier
from spark_jobs.trace.arrangement import SMALLEST_BUCKETS, Arrangement, whole
from spark_jobs.trace.journal import StateChange, StateJournal
from spark_jobs.trace.plane import Slice, SteppedPlane, U


@dataclass(frozen=True, slots=True)
class UnsealedStep:
    """The result of one `unsealed_step`: the dropped batches, and the trimmed one (as it was before), if any."""

    evicted: tuple[UnsealedBatch, ...]
    trimmed: UnsealedBatch | None


class SteppedArrangement(Arrangement[U]):
    """One collection, whose steps are taken one by one. The arguments are those of `Arrangement`."""

    plane: SteppedPlane[U]

    def __init__(
        self,
        plane: SteppedPlane[U],
        journal: StateJournal | None = None,
        *,
        collection: str = "updates",
        buckets: Buckets = SMALLEST_BUCKETS,
    ) -> None:
        super().__init__(plane, journal, collection=collection, buckets=buckets)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, updates: U) -> UnsealedBatch | None:
        """The front door: append updates at or beyond the seal under the next sequence number.

        Returns the batch; None for no updates, which takes no number. Raises MalformedUpdates, then TimeBelowSeal, then
        the errors of `append`. All updates are appended or none.
        """
        examined = self.plane.examine(updates, [self.state.seal, self.state.trace_upper])
        below_seal, below_trace_upper = examined.first_below
        self.state.check_front_door(below_seal)
        if examined.n_updates == 0:
            return None
        seqno = (self.state.seqno_upper, self.state.seqno_upper + 1)
        self.state.check_append(seqno, examined.n_updates, below_trace_upper)
        self.plane.check_sums(updates, examined.magnitude, self._all_updates)
        return self._append(updates, seqno)

    def append(self, updates: U, seqno: SeqnoRange) -> UnsealedBatch:
        """Append updates in any order as one unsealed batch that covers `seqno`.

        Checks the trace's upper and never the seal: use `write` for updates that may be below the seal.
        Raises MalformedUpdates, SeqnoMismatch, TimeBelowTraceUpper, EmptyBatch, EmptySeqnoRange, and DiffOverflow where
        the diffs of one value could add up beyond int64, in this order.
        """
        seqno = (whole("the start of a sequence range", seqno[0]), whole("its end", seqno[1]))
        examined = self.plane.examine(updates, [self.state.trace_upper])
        self.state.check_append(seqno, examined.n_updates, examined.first_below[0])
        self.plane.check_sums(updates, examined.magnitude, self._all_updates)
        return self._append(updates, seqno)

    def _append(self, updates: U, seqno: SeqnoRange) -> UnsealedBatch:
        batch = UnsealedBatch.of(self.plane.put(updates), seqno)
        self._commit(self.state.append(batch))
        return batch

    def seal(self, ts: int) -> None:
        """Move the seal to `ts`: no update below it can be written any more.

        Moves no data. Raises TimeOutOfRange, then SealRegression. `ts` may be the present seal.
        """
        seal_all([self], ts)

    def force_seal(self, ts: int) -> None:
        """Set the seal, which may move back: only to roll back a commit that failed. Raises TimeOutOfRange."""
        if self._time(ts) < 0:
            raise TimeOutOfRange(ts, self.plane.greatest_time)
        self._commit(self.state.force_sealed(int(ts)))

    # -- from unsealed to trace ----------------------------------------------------------------------------------------

    def drain(self) -> TraceBatch | None:
        """Move the sealed updates to the trace, as one level-0 batch `[trace_upper, seal)`; returns that batch.

        None if nothing is newly sealed, or no update is in the interval; the trace's upper then does not change.
        Updates that cancel make an empty batch. Raises InvalidBatchBounds.
        """
        finished = self.begin_drain()
        return None if finished is None else self.apply_drain(finished)

    def begin_drain(self) -> FinishedDrain | None:
        """Store the batch of a `drain` without installing it; None if there is nothing to move.

        Raises InvalidBatchBounds.
        """
        request = self.state.drain_request()
        if request is None or not request.sources:
            return None
        stored = self.plane.drain([source.handle for source in request.sources], request.lower, request.upper)
        return None if stored is None else FinishedDrain(request, stored)

    def apply_drain(self, finished: FinishedDrain) -> TraceBatch | None:
        """Install a finished drain. If the trace has moved on since the drain began, do nothing and return None."""
        after = self.state.install_drain(finished.request, finished.stored)
        if after is None:
            return None
        self._commit(after)
        return after.trace[-1]

    def evict(self) -> tuple[UnsealedBatch, ...]:
        """Drop the unsealed batches whose updates are all in the trace; returns them, oldest first."""
        after, evicted = self.state.evict()
        self._commit(after, obsolete=evicted)
        return evicted

    def unsealed_step(self) -> UnsealedStep:
        """Evict, then trim the first batch that is partly in the trace to the rest: at most one read and one write."""
        evicted = self.evict()
        straddling = self.state.straddling_batch()
        if straddling is not None:
            stored = self.plane.trim(straddling.handle, self.state.trace_upper)
            self._commit(self.state.replace_trimmed(straddling, stored), obsolete=[straddling])
        return UnsealedStep(evicted, straddling)

    # -- raw reads -----------------------------------------------------------------------------------------------------

    def updates(self) -> U:
        """The raw read: every update of trace and unsealed once, times forwarded to since; no updates cancel."""
        return self.plane.read(self._all_updates(), self.state.since)

    def unsealed_snapshot(self, lo: Frontier, hi: Frontier) -> U:
        """The unsealed updates at or beyond `lo` and not at or beyond `hi`, raw. Raises SnapshotUpperBelowLower."""
        lo, hi = self._frontier(lo), self._frontier(hi)
        self.state.check_interval(lo, hi)
        return self.plane.read(self._unsealed_updates(lo, hi))

    def trace_snapshot(self) -> U:
        """The trace's updates with their times as stored, not forwarded to since."""
        return self.plane.read([Slice(batch.handle) for batch in self.state.trace])


def seal_all(arrangements: Sequence[SteppedArrangement[U]], ts: int) -> None:
    """Seal several collections of one journal at `ts` together, or none of them.

    Raises TimeOutOfRange, SealRegression, StateConflict.
    """
    if any(each.journal is not arrangements[0].journal for each in arrangements):
        raise ParameterError(
            expected="arrangements of one journal, so that one commit seals them all",
            found="several journals",
            next_step="open the arrangements with the same journal",
        )
    sealed = [each.state.advance_seal(each._time(ts)) for each in arrangements]
    moved = [(each, after) for each, after in zip(arrangements, sealed, strict=True) if after != each.state]
    if moved:
        arrangements[0].journal.commit([StateChange(each.collection, each.state, after) for each, after in moved])
    for arrangement, after in moved:
        arrangement.state = after
