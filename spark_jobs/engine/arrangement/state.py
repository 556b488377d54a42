"""The arrangement's state machine: metadata in, metadata out. No data, no clock, no I/O.

A state has the `seal` (below it no update can be added) and `since` (below it times may be compacted). It also has the
unsealed batches in order of arrival, the trace batches in order of time, and the leases. Every transition returns a new
state and leaves the old one as it was, so a refused or abandoned step need not be undone. Definition: Materialize
persist `Arrangement`.

Invariants, kept by every transition but `force_seal` (the roll-back of a failed commit, which may move the seal back):

- seqnos:   ranges of unsealed batches ascend and do not overlap; a number is used once, even if its batch is gone.
- unsealed: an append has no update below `trace_upper`; the front door refuses updates below the seal.
- trace:    batches are contiguous and not empty intervals; `trace_upper <= seal`; each batch's since <= since.
- levels:   never increase from oldest to newest.

Cost: each transition is O(live batches) pointer copies at most; reading a property is O(1) but for `held_since`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spark_jobs.engine.arrangement.batches import (
    Description,
    ReadLease,
    SeqnoRange,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
)
from spark_jobs.engine.arrangement.compaction import (
    CompactionRequest,
    CompactionResponse,
    check_stored_bounds,
    choose_pair,
)
from spark_jobs.engine.arrangement.errors import (
    EmptyBatch,
    EmptySeqnoRange,
    InvalidBatchBounds,
    ReadBelowSince,
    ReadNotSealed,
    SealRegression,
    SeqnoMismatch,
    SnapshotUpperBelowLower,
    TimeBelowSeal,
    TimeBelowTraceUpper,
)
from spark_jobs.engine.arrangement.future import Buckets
from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.model import Frontier

_START = Frontier.at(0)


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """Move the updates of `[lower, upper)` to the trace; `sources` are the unsealed batches that may have any."""

    lower: Frontier
    upper: Frontier
    sources: tuple[UnsealedBatch, ...]


@dataclass(frozen=True, slots=True)
class FinishedDrain:
    """A drain whose batch is stored but not yet installed."""

    request: DrainRequest
    stored: StoredBatch


@dataclass(frozen=True, slots=True)
class AdvanceRequest:
    """Put each update where it belongs once the seal is at `seal`.

    The updates are the new ones at or beyond `door`, and those of the batches `moving` at or beyond `lower` (earlier
    ones are in the trace already). Updates below the seal go to the trace, the others to the buckets in which they
    wait.
    """

    door: Frontier
    lower: Frontier
    seal: int
    moving: tuple[UnsealedBatch, ...]
    buckets: Buckets


@dataclass(frozen=True, slots=True)
class ArrangementState:
    """The metadata of an arrangement; see the module for the invariants.

    `seqno_floor` is the least sequence number that the next append may have: batches that are gone have used numbers
    below it.
    """

    seal: Frontier = _START
    since: Frontier = _START
    unsealed: tuple[UnsealedBatch, ...] = ()
    trace: tuple[TraceBatch, ...] = ()
    leases: tuple[ReadLease, ...] = ()
    seqno_floor: int = 0

    @property
    def trace_upper(self) -> Frontier:
        """The frontier up to which updates have been moved into the trace; it lags behind the seal until a drain."""
        return self.trace[-1].upper if self.trace else _START

    @property
    def seqno_upper(self) -> int:
        """The sequence number at which the range of the next append must start."""
        return max(self.seqno_floor, self.unsealed[-1].seqno[1]) if self.unsealed else self.seqno_floor

    def handles(self) -> frozenset[str]:
        """The handles of all live batches; any other batch in the data plane is an orphan that was never installed."""
        return frozenset([*(batch.handle for batch in self.unsealed), *(batch.handle for batch in self.trace)])

    # -- unsealed ------------------------------------------------------------------------------------------------------

    def check_front_door(self, first_below_seal: int | None) -> None:
        """Refuse a write with a time below the seal; `first_below_seal` is the offender, None if there is none."""
        if first_below_seal is not None:
            raise TimeBelowSeal(first_below_seal, self.seal)

    def check_append(self, seqno: SeqnoRange, n_updates: int, first_below_trace_upper: int | None) -> None:
        """Refuse an append before its data is stored.

        Raises, in this order: SeqnoMismatch, TimeBelowTraceUpper, EmptyBatch, EmptySeqnoRange.
        """
        if seqno[0] != self.seqno_upper:
            raise SeqnoMismatch(self.seqno_upper, seqno[0])
        if first_below_trace_upper is not None:
            raise TimeBelowTraceUpper(first_below_trace_upper, self.trace_upper)
        if n_updates == 0:
            raise EmptyBatch
        if seqno[1] <= seqno[0]:
            raise EmptySeqnoRange(seqno)

    def append(self, batch: UnsealedBatch) -> ArrangementState:
        """Add one unsealed batch. Raises what `check_append` raises; the least time of the batch is checked."""
        below = None if self.trace_upper.admits(batch.least) else batch.least
        self.check_append(batch.seqno, batch.n_updates, below)
        return self._with(unsealed=(*self.unsealed, batch))

    def evictable(self) -> tuple[UnsealedBatch, ...]:
        """The unsealed batches all of whose times are before `trace_upper` (not the seal), oldest first."""
        upper = self.trace_upper
        return tuple(batch for batch in self.unsealed if not upper.admits(batch.greatest))

    def evict(self) -> tuple[ArrangementState, tuple[UnsealedBatch, ...]]:
        """Drop the evictable batches. Returns them too: their data are to be deleted after the commit."""
        upper = self.trace_upper
        kept = tuple(batch for batch in self.unsealed if upper.admits(batch.greatest))
        if len(kept) == len(self.unsealed):
            return self, ()
        return self._with(unsealed=kept, seqno_floor=self.seqno_upper), self.evictable()

    def straddling_batch(self) -> UnsealedBatch | None:
        """The first unsealed batch with a time before `trace_upper`; after an eviction, it also has later times."""
        upper = self.trace_upper
        return next((batch for batch in self.unsealed if not upper.admits(batch.least)), None)

    def replace_trimmed(self, batch: UnsealedBatch, stored: StoredBatch) -> ArrangementState:
        """Replace `batch` by `stored`, its updates at or beyond `trace_upper`, under the same sequence range."""
        trimmed = UnsealedBatch.of(stored, batch.seqno)
        return self._with(unsealed=tuple(trimmed if waiting == batch else waiting for waiting in self.unsealed))

    def rewrite(self, replaced: Sequence[UnsealedBatch], stored: Iterable[StoredBatch]) -> ArrangementState:
        """Replace unsealed batches by `stored`, each under a sequence number of its own.

        The stored batches contain the updates of `replaced` at or beyond the seal, and perhaps new ones. The updates
        below the seal have been drained. Raises what `check_front_door` and `append` raise.
        """
        kept = tuple(batch for batch in self.unsealed if batch not in replaced)
        state = self._with(unsealed=kept, seqno_floor=self.seqno_upper)
        for batch in stored:
            state.check_front_door(None if state.seal.admits(batch.least) else batch.least)
            state = state.append(UnsealedBatch.of(batch, (state.seqno_upper, state.seqno_upper + 1)))
        return state

    def without_next_seqno(self) -> ArrangementState:
        """Skip a sequence number. Nothing else changes, and no step from the old state can be committed any more."""
        return self._with(seqno_floor=self.seqno_upper + 1)

    # -- frontiers -----------------------------------------------------------------------------------------------------

    def check_seal(self, ts: int) -> None:
        """Refuse a seal before the present one (SealRegression); the present seal is accepted."""
        if not self.seal.admits(ts):
            raise SealRegression(self.seal, ts)

    def advance_seal(self, ts: int) -> ArrangementState:
        """Advance the seal to `[ts]`: logical only, no data move. Raises SealRegression."""
        self.check_seal(ts)
        return self._with(seal=Frontier.at(ts))

    def force_sealed(self, ts: int) -> ArrangementState:
        """Set the seal without a check, also to an earlier time: rolls back a commit that failed."""
        return self._with(seal=Frontier.at(ts))

    def rolled_back(self, earlier: ArrangementState) -> ArrangementState:
        """The state `earlier`, from which this one followed, restored by withdrawing every step in between.

        Since and the leases stay. Sequence numbers of withdrawn batches are not used again.
        """
        since = max(earlier.since, self.since)
        return replace(earlier, since=since, leases=self.leases, seqno_floor=self.seqno_upper)

    def check_since(self, asked: Frontier) -> None:
        """Refuse a since before the present one (SinceRegression); one beyond the seal and `[]` are accepted."""
        if not self.since <= asked:
            raise SinceRegression(self.since, asked)

    def held_since(self, now: int | None = None) -> Frontier:
        """The frontier up to which the leases let since advance: the least of their times, `[]` if no lease is left.

        Leases that have expired at `now` don't count; with None, all leases count.
        """
        live = (lease.at for lease in self.leases if now is None or now < lease.expires_at)
        least = min(live, default=None)
        return Frontier.empty() if least is None else Frontier.at(least)

    def allow_compaction(self, asked: Frontier, now: int | None = None) -> ArrangementState:
        """Advance since to `asked`, or as far as the leases that live at `now` (None: all of them) let it.

        Logical only: no data move. If a lease holds since back, that is no error: see `since` of the result. Raises
        SinceRegression.
        """
        self.check_since(asked)
        leased_since = self.held_since(now)
        leases = self.leases if now is None else tuple(lease for lease in self.leases if now < lease.expires_at)
        return self._with(since=asked if asked <= leased_since else leased_since, leases=leases)

    def hold(self, lease: ReadLease) -> ArrangementState:
        """Add a lease, which replaces one of the same name. Raises ReadBelowSince if its time is below since."""
        if not self.since.admits(lease.at):
            raise ReadBelowSince(lease.at, self.since)
        others = tuple(other for other in self.leases if other.name != lease.name)
        return self._with(leases=(*others, lease))

    def release(self, name: str) -> ArrangementState:
        """End the lease of this name, if there is one."""
        return self._with(leases=tuple(lease for lease in self.leases if lease.name != name))

    # -- trace ---------------------------------------------------------------------------------------------------------

    def drain_request(self) -> DrainRequest | None:
        """The interval that a drain would move now, with its sources; None when the trace has reached the seal.

        The bounds of the sources overlap the interval; only their data show if an update lies in it. Raises
        InvalidBatchBounds.
        """
        lower, upper = self.trace_upper, self.seal
        if lower == upper:
            return None
        if not lower <= upper:
            raise InvalidBatchBounds(lower, upper)
        overlapping = (b for b in self.unsealed if lower.admits(b.greatest) and not upper.admits(b.least))
        return DrainRequest(lower, upper, tuple(overlapping))

    def install_drain(self, request: DrainRequest, stored: StoredBatch) -> ArrangementState | None:
        """Append the drained batch at level 0. None, and nothing to do, if the trace has moved on since the request.

        Raises what `check_stored_bounds` raises for updates outside the request's interval.
        """
        if request.lower != self.trace_upper:
            return None
        description = Description(request.lower, request.upper, _START)
        check_stored_bounds(description, stored)
        return self._with(trace=(*self.trace, TraceBatch.of(stored, description, level=0)))

    def advance_request(self, seal: int, buckets: Buckets) -> AdvanceRequest:
        """The batches to move when the seal advances to `seal`. Raises SealRegression, then InvalidBatchBounds."""
        self.advance_seal(seal).drain_request()
        moving = buckets.rewritten(self.unsealed, seal)
        return AdvanceRequest(self.seal, self.trace_upper, seal, moving, buckets)

    def advance(
        self, request: AdvanceRequest, drained: StoredBatch | None, waiting: Iterable[StoredBatch]
    ) -> ArrangementState:
        """Append, seal, drain, evict and trim as one step.

        Args:
            request: of this very state.
            drained: the new and the moved updates below the seal; None if there were none (updates that cancel
                count).
            waiting: the other updates, one batch per bucket.

        Raises what `install_drain` and `rewrite` raise.
        """
        state = self.advance_seal(request.seal)
        drain = state.drain_request()
        if drain is not None and drained is not None:
            installed = state.install_drain(drain, drained)
            assert installed is not None, "the trace can't move between request and install of one step"
            state = installed
        return state.rewrite(request.moving, waiting)

    def compaction_request(self, settled: Frontier = _START) -> CompactionRequest | None:
        """The merge to do next, at the present since; None if there is none. The pair is the same until installed.

        A batch may be merged if since or `settled` has passed its upper. Times are forwarded to since alone, so a merge
        of batches beyond since changes no update.
        """
        i = choose_pair(self.trace, max(self.since, settled))
        return None if i is None else CompactionRequest(self.trace[i - 1], self.trace[i], self.since)

    def install_merge(self, response: CompactionResponse) -> ArrangementState | None:
        """Replace the two inputs by the merged batch; None unless both are still there, side by side and unchanged."""
        pair = (response.request.earlier, response.request.later)
        for i in range(len(self.trace) - 1):
            if self.trace[i : i + 2] == pair:
                return self._with(trace=(*self.trace[:i], response.merged, *self.trace[i + 2 :]))
        return None

    # -- reads ---------------------------------------------------------------------------------------------------------

    def check_interval(self, lo: Frontier, hi: Frontier) -> None:
        """Refuse an interval that ends before it starts (SnapshotUpperBelowLower); an empty one is accepted."""
        if not lo <= hi:
            raise SnapshotUpperBelowLower(lo, hi)

    def check_readable(self, at: int) -> None:
        """Refuse a definite read at a time outside `[since, seal)`. Raises ReadBelowSince, then ReadNotSealed."""
        if not self.since.admits(at):
            raise ReadBelowSince(at, self.since)
        if self.seal.admits(at):
            raise ReadNotSealed(at, self.seal)

    # -- JSON ----------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The whole state as plain JSON values, from which `from_json` makes an equal state."""
        return {
            "seal": self.seal.to_json(),
            "since": self.since.to_json(),
            "unsealed": [batch.to_json() for batch in self.unsealed],
            "trace": [batch.to_json() for batch in self.trace],
            "leases": [asdict(lease) for lease in self.leases],
            "seqno_floor": self.seqno_floor,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ArrangementState:
        """Read a state from the values that `to_json` returned, without a check; see `checks.check_meta`."""
        return cls(
            seal=Frontier.from_json(fields["seal"]),
            since=Frontier.from_json(fields["since"]),
            unsealed=tuple(UnsealedBatch.from_json(batch) for batch in fields["unsealed"]),
            trace=tuple(TraceBatch.from_json(batch) for batch in fields["trace"]),
            leases=tuple(ReadLease(**lease) for lease in fields["leases"]),
            seqno_floor=fields["seqno_floor"],
        )

    def _with(self, **changes: Any) -> ArrangementState:
        return replace(self, **changes)
