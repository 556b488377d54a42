"""The ops of kind `arrangement`, each a thin call of `spark_jobs.trace` or `spark_jobs.engine.arrangement`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_jobs.engine.arrangement import (
    ArrangementState,
    CompactionRequest,
    CompactionResponse,
    Description,
    FinishedDrain,
    SeqnoRange,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
    check_trace_batch,
)
from spark_jobs.engine.arrangement.checks import check_meta, check_unsealed_batch
from spark_jobs.engine.updates import DIFF, TIME
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.trace import (
    ArrowPlane,
    MemoryJournal,
    Slice,
    StateChange,
    SteppedArrangement,
    updates_table,
)
from tests.replaying.protocol import Json, UnknownOp

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), (TIME, pa.uint64()), (DIFF, pa.int64())])
"""Times of the cases range over 0 .. 2^64-1."""

START = [0]


class Player:
    """One in-memory arrangement, and the drain and the merge that are computed but not yet installed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._open(ArrangementState(), _plane())

    def play(self, op: str, args: Mapping[str, Json]) -> Json:
        handler = getattr(self, f"op_{op}", None)
        if handler is None:
            raise UnknownOp(op)
        return handler(**args)

    def state(self) -> object:
        # batches never change under their handles, so the handles stand for their updates
        return self._arrangement.state, self._plane.stored(), self._held_drain, self._held_merge

    def _open(self, state: ArrangementState, plane: ArrowPlane) -> None:
        journal = MemoryJournal()
        journal.commit([StateChange("case", journal.load("case"), state)])
        self._plane = plane
        self._arrangement = SteppedArrangement(plane, journal, collection="case")
        self._held_drain: FinishedDrain | None = None
        self._held_merge: CompactionResponse | None = None

    # -- state and frontiers -------------------------------------------------------------------------------------------

    def op_new(self, seal: Json = START, since: Json = START, trace: Json = (), unsealed: Json = ()) -> None:
        plane = _plane()
        state = ArrangementState(
            seal=Frontier.from_json(seal),
            since=Frontier.from_json(since),
            trace=tuple(_put_trace_batch(plane, **batch) for batch in trace),
            unsealed=tuple(UnsealedBatch.of(plane.put(_table(b["updates"])), _range(b["seqno"])) for b in unsealed),
        )
        self._open(state, plane)

    def op_seal(self, ts: int) -> None:
        self._arrangement.seal(ts)

    def op_force_seal(self, ts: int) -> None:
        self._arrangement.force_seal(ts)

    def op_validate_seal(self, ts: int) -> None:
        self._arrangement.state.check_seal(ts)

    def op_allow_compaction(self, since: Json) -> None:
        self._arrangement.allow_compaction(Frontier.from_json(since))

    def op_validate_since(self, since: Json) -> None:
        self._arrangement.state.check_since(Frontier.from_json(since))

    def op_frontiers(self) -> Json:
        state = self._arrangement.state
        return {name: getattr(state, name).to_json() for name in ("seal", "since", "trace_upper")}

    def op_meta_ok(self) -> None:
        self._arrangement.check()

    # -- unsealed ------------------------------------------------------------------------------------------------------

    def op_write(self, updates: Json) -> None:
        self._arrangement.write(_table(updates))

    def op_append(self, seqno: Json, updates: Json) -> None:
        self._arrangement.append(_table(updates), _range(seqno))

    def op_seqno_upper(self) -> int:
        return self._arrangement.state.seqno_upper

    def op_unsealed(self) -> Json:
        return [[list(b.seqno), b.least, b.greatest] for b in self._arrangement.state.unsealed]

    def op_unsealed_snapshot(self, lo: Json, hi: Json) -> Json:
        return _listed(self._arrangement.unsealed_snapshot(Frontier.from_json(lo), Frontier.from_json(hi)))

    def op_evict(self) -> Json:
        evicted = self._arrangement.evict()
        self._number_as_the_reference()
        return [list(batch.seqno) for batch in evicted]

    def op_step(self) -> bool:
        step = self._arrangement.unsealed_step()
        self._number_as_the_reference()
        return step.trimmed is not None

    def _number_as_the_reference(self) -> None:
        """The reference numbers on after the last batch that is left, or from 0; here a number is used once."""
        state = self._arrangement.state
        if state.seqno_floor:
            after = replace(state, seqno_floor=0)
            self._arrangement.journal.commit([StateChange("case", state, after)])
            self._arrangement.refresh()

    # -- drain ---------------------------------------------------------------------------------------------------------

    def op_drain(self) -> Json:
        return self._shown(self._arrangement.drain())

    def op_drain_begin(self) -> None:
        self._held_drain = self._arrangement.begin_drain()

    def op_drain_apply(self) -> Json:
        held, self._held_drain = self._held_drain, None
        return None if held is None else self._shown(self._arrangement.apply_drain(held))

    # -- trace ---------------------------------------------------------------------------------------------------------

    def op_trace(self) -> Json:
        return [[*_bounds(b), b.since.to_json(), b.level] for b in self._arrangement.state.trace]

    def op_trace_snapshot(self) -> Json:
        state = self._arrangement.state
        updates = _listed(self._arrangement.trace_snapshot())
        return {"since": state.since.to_json(), "upper": state.trace_upper.to_json(), "updates": updates}

    def op_snapshot(self) -> Json:
        state = self._arrangement.state
        updates = _listed(self._arrangement.updates())
        return {"since": state.since.to_json(), "seal": state.seal.to_json(), "updates": updates}

    # -- compaction ----------------------------------------------------------------------------------------------------

    def op_compact_next(self) -> Json:
        request = self._arrangement.compaction_request()
        return None if request is None else [_bounds(request.earlier), _bounds(request.later)]

    def op_compact_begin(self) -> bool:
        request = self._arrangement.compaction_request()
        self._held_merge = None if request is None else self._arrangement.merge(request)
        return request is not None

    def op_compact_apply(self) -> Json:
        held, self._held_merge = self._held_merge, None
        replaced = () if held is None else self._arrangement.install(held)
        return [[*_bounds(batch), batch.since.to_json()] for batch in replaced]

    def op_compact_step(self) -> Json:
        self.op_compact_begin()
        return self.op_compact_apply()

    def op_compact_all(self) -> int:
        before = copy.deepcopy(vars(self))
        n_merges = 0
        try:
            while self.op_compact_step():
                n_merges += 1
        except TidemarkError:
            # the op is one step of a case: refused as a whole although single merges had been done
            vars(self).update(before)
            raise
        return n_merges

    # -- without state -------------------------------------------------------------------------------------------------

    def op_check_meta(self, seal: Json, since: Json, trace: Json = (), unsealed: Json = ()) -> None:
        batches = [TraceBatch("", _description(batch), batch.get("level", 0), 0, 0) for batch in trace]
        check_meta(Frontier.from_json(seal), Frontier.from_json(since), batches, map(_range, unsealed))

    def op_check_trace_batch(self, desc: Json, updates: Json) -> None:
        check_trace_batch(_description(desc), _table(updates))

    def op_check_unsealed_batch(self, seqno: Json, n_updates: int) -> None:
        check_unsealed_batch(_range(seqno), n_updates)

    def op_merge(self, b0: Json, b1: Json, since: Json, merged_size: int | None = None) -> Json:
        plane = _plane(merged_size)
        earlier, later = (_put_trace_batch(plane, **batch) for batch in (b0, b1))
        merged = SteppedArrangement(plane).merge(CompactionRequest(earlier, later, Frontier.from_json(since))).merged
        return _shown_batch(merged, plane)

    def _shown(self, batch: TraceBatch | None) -> Json:
        return None if batch is None else _shown_batch(batch, self._plane)


def _plane(size: int | None = None) -> ArrowPlane:
    """A plane whose batches have this size, or their number of updates."""
    return ArrowPlane(SCHEMA, size_of=lambda updates: updates.num_rows if size is None else size)


def _put_trace_batch(
    plane: ArrowPlane,
    lower: Json,
    upper: Json,
    since: Json = START,
    level: int = 0,
    updates: Json = (),
    size: int | None = None,
) -> TraceBatch:
    stored = plane.put(_table(updates))
    description = _description({"lower": lower, "upper": upper, "since": since})
    given = stored.n_updates if size is None else size
    return TraceBatch.of(
        StoredBatch(stored.handle, stored.n_updates, given, stored.least, stored.greatest), description, level
    )


def _shown_batch(batch: TraceBatch, plane: ArrowPlane) -> Json:
    """The batch's metadata under the names of the form, with its updates."""
    shown = {
        name: value
        for name, value in batch.to_json().items()
        if name not in ("handle", "n_updates", "least", "greatest")
    }
    return {**shown, "updates": _listed(plane.read([Slice(batch.handle)]))}


def _description(desc: Mapping[str, Json]) -> Description:
    lower, upper, since = (Frontier.from_json(desc.get(name, START)) for name in ("lower", "upper", "since"))
    return Description(lower, upper, since)


def _bounds(batch: TraceBatch) -> list[list[int]]:
    return [batch.lower.to_json(), batch.upper.to_json()]


def _range(seqno: Sequence[int]) -> SeqnoRange:
    lo, hi = seqno
    return lo, hi


def _table(updates: Sequence[Sequence[Json]]) -> pa.Table:
    return updates_table(updates, SCHEMA)


def _listed(updates: pa.Table) -> list[list[Json]]:
    """The updates as lists in the order of every returned list; reads promise none."""
    return sorted([list(update) for update in zip(*(column.to_pylist() for column in updates.columns), strict=True)])
