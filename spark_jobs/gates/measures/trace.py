"""The measures of the trace gate: the updates that an attempt wrote, compared with the arrangement before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.arrangement import (
    ArrangementError,
    ArrangementState,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
    check_state,
)
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.measures import (
    Adds,
    BatchFacts,
    BatchNote,
    Interval,
    changed_batches,
    judge_changed_batches,
    judge_repeated_updates,
    judge_updates,
    repeated_updates,
    taken_from,
)
from spark_jobs.gates.measures.parts import (
    AnyPart,
    EachRow,
    Ground,
    Measurement,
    OfShare,
    Together,
    measure,
    of_landings,
)
from spark_jobs.sources import Source
from spark_jobs.storage.delta.records import arrow_records
from spark_jobs.storage.descriptions.tables import FILES, updates
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.stored_batches import batches_of

AnyBatch = TraceBatch | UnsealedBatch | StoredBatch

_SHOWN = ("batch", "row_id", "time", "diff", "entity", "event_time")


def trace(
    lake: Lake,
    source: Source,
    *,
    before: SourceFrontiers,
    after: SourceFrontiers,
    token: int,
    landings: Sequence[int],
) -> Measurement:
    """The measures of the attempt `token`: the updates that it added to the trace, and the frontiers that it moved.

    `landings` are the landings whose rows it took in. Batches written before are immutable and were measured then. So
    only the rows of this attempt are read, and those of the batches that it drained or merged. Of the batches that
    were there before and are still there, the footers of their files are read: they must be as the frontiers noted.
    """
    handles_before = before.arrangement.handles()
    added = [batch for batch in after.arrangement.trace if batch.handle not in handles_before]
    unsealed = [batch for batch in after.arrangement.unsealed if batch.handle not in handles_before]
    merged = [batch.handle for batch in added if batch.lower < before.arrangement.trace_upper]
    # batches that one merge of this attempt wrote, and a later merge of it replaced
    passing = [
        handle for handle, replaced_by in after.obsolete if replaced_by == token and handle not in handles_before
    ]
    of_attempt = (pc.field("token") == token) & ~pc.field("batch").isin(pa.array(passing, pa.string()))
    table = updates(source)
    written = lake.stored(table, _SHOWN, of_attempt)
    gone = {"batch": sorted(handles_before - after.arrangement.handles())}
    consumed = lake.stored(table, ["batch", "row_id", "diff"], None, gone)
    intervals = _intervals(added, unsealed, after.arrangement.seal.time or 0)
    judge = partial(judge_updates, intervals=intervals, sealed_us=before.seal_us, merged=merged)
    alike = written.with_columns(["batch", "row_id", "time", "diff", "below_horizon"])
    batches: list[TraceBatch | UnsealedBatch] = [*added, *unsealed]
    stated = [batch for batch in batches if batch.n_updates]
    notes_before, notes_after = _notes(before.arrangement), _notes(after.arrangement)
    looked_at = [*(batch.handle for batch in stated), *(handle for handle in notes_before if handle in notes_after)]
    stored = {
        handle: _facts(batch)
        for handle, batch in batches_of(lake.summaries(table, "batch", looked_at, ("time",))).items()
    }
    changes = changed_batches(notes_before, notes_after, stored)
    parts: list[AnyPart] = [
        EachRow(written, judge, (*_SHOWN, "seq_no")),
        EachRow(consumed, taken_from, (*_SHOWN, "seq_no")),
        Together([OfShare(alike, "row_id")], repeated_updates, judge_repeated_updates),
        _landed_rows(lake, source, landings),
        _batches(stated, stored),
        EachRow(changes, judge_changed_batches, changes.column_names),
    ]
    by_drop = Ground("seq_no", "drop", source.drops.label)
    return measure(lake.spark, parts, _frontier_measures(before, after), by_drop)


def _landed_rows(lake: Lake, source: Source, landings: Sequence[int]) -> EachRow:
    ours = (pc.field("source") == source.name) & of_landings(landings)
    ledger = arrow_records(FILES, lake.records(FILES, ours))
    return EachRow(ledger, _net_rows, ("seq_no", "path", "landing", "rows", "rows_back"))


def _net_rows(ledger: pa.Table) -> Adds:
    return {"rows_landed": numbers(ledger["rows"]) - numbers(ledger["rows_back"])}


def _batches(stated: Sequence[TraceBatch | UnsealedBatch], stored: Mapping[str, BatchFacts]) -> EachRow:
    """The part that compares batches with the frontiers: the number of updates, and the bounds of their times.

    The stored facts are read from the footers of the batches' files."""
    fits = [
        (facts := stored.get(batch.handle)) is not None and facts.counts == _facts(batch).counts for batch in stated
    ]
    batches = pa.table({"batch": [b.handle for b in stated], "n_updates": [b.n_updates for b in stated], "fits": fits})
    return EachRow(batches, _not_as_stated, ("batch", "n_updates"))


def _facts(batch: AnyBatch) -> BatchFacts:
    return BatchFacts(batch.n_updates, batch.least, batch.greatest, batch.checksum)


def _notes(state: ArrangementState) -> dict[str, BatchNote]:
    """The batches of a state, by handle."""
    of_trace = {b.handle: BatchNote(_bounds(b), b.level, _facts(b)) for b in state.trace}
    return of_trace | {b.handle: BatchNote(str(b.seqno), None, _facts(b)) for b in state.unsealed}


def _bounds(batch: TraceBatch) -> str:
    times = (frontier.to_json() for frontier in (batch.lower, batch.upper, batch.since))
    return "lower {}, upper {}, since {}".format(*times)


def _not_as_stated(batches: pa.Table) -> Adds:
    return {"batches_not_as_stated": ~np.array(batches["fits"].to_pylist(), np.bool_)}


def _frontier_measures(before: SourceFrontiers, after: SourceFrontiers) -> dict[str, int]:
    state = after.arrangement
    return {
        "broken_invariants": int(_breaks_an_invariant(state)),
        "broken_batch_chain": sum(a.upper != b.lower for a, b in pairwise(state.trace)),
        "trace_upper_us": state.trace_upper.time or 0,
        "seal_us": after.seal_us,
        "previous_seal_us": before.seal_us,
        "previous_since_us": before.arrangement.since.time or 0,
        "since_us": state.since.time or 0,
        "reached_us": after.reached_us,
    }


def _breaks_an_invariant(state: ArrangementState) -> bool:
    try:
        check_state(state)
    except ArrangementError:
        return True
    return False


def _intervals(trace: Sequence[TraceBatch], unsealed: Sequence[UnsealedBatch], seal_us: int) -> dict[str, Interval]:
    """Handle of a batch -> the least and the greatest time, in microseconds, that its updates may have.

    Updates of a trace batch are in its interval, or up to its since where that is greater. Updates of an unsealed batch
    are at or beyond the seal."""
    of_trace = {
        batch.handle: (batch.lower.time or 0, max((batch.upper.time or 0) - 1, batch.since.time or 0))
        for batch in trace
    }
    return {**of_trace, **{batch.handle: (seal_us, (1 << 63) - 1) for batch in unsealed}}
