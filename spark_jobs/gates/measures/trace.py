"""Measures of the trace gate: the updates that an attempt wrote, against the arrangement before and after."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import BITS, WORD, Measurement, Part, listed, measure, texts, timestamp, violation
from spark_jobs.kernels.arrangement import ArrangementError, ArrangementState, TraceBatch, UnsealedBatch, check_state
from spark_jobs.model import Frontier
from spark_jobs.sources import Source
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.tables import FILES, updates
from spark_jobs.trace.frontiers import SourceFrontiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MET_AGAIN = "rows_met_again"
"""Measure: updates of a batch that have the row and the sign of another one."""


def trace(
    spark: SparkSession,
    source: Source,
    *,
    before: SourceFrontiers,
    after: SourceFrontiers,
    token: int,
    landings: Sequence[int],
) -> Measurement:
    """What the attempt `token` added to the trace, and the frontiers it moved. `landings` are those that it took in.

    Batches written before are immutable and were measured then; only rows of this attempt are read, and those of the
    batches that it drained or merged.
    """
    known = before.arrangement.handles()
    added = [batch for batch in after.arrangement.trace if batch.handle not in known]
    unsealed = [batch for batch in after.arrangement.unsealed if batch.handle not in known]
    consumed = sorted(known - after.arrangement.handles())
    merged = texts([batch.handle for batch in added if batch.lower < before.arrangement.trace_upper])
    checks = {
        "updates_below_previous_seal": f"time < {timestamp(before.seal_us)} AND coalesce(batch NOT IN {merged}, true)",
        "updates_outside_batch": f"NOT coalesce({_inside(added, unsealed, after.arrangement.seal)}, false)",
        "updates_without_diff": "coalesce(diff, 0) = 0",
        "updates_without_identity": "row_id IS NULL OR entity IS NULL OR event_time IS NULL OR time IS NULL",
        "visible_before_event": "time < event_time",
    }
    landed = (
        f"SELECT * FROM {qualified(FILES.database, FILES.table)}"
        f" WHERE source = {literal(source.name)} AND landing IN {listed(landings)}"
    )
    written: list[TraceBatch | UnsealedBatch] = [*added, *unsealed]
    stated = [batch for batch in written if batch.n_updates]
    # what one merge wrote and the next one read, in the same attempt
    passing = [handle for handle, replaced_by in after.obsolete if replaced_by == token and handle not in known]
    own = f"token = {token} AND batch NOT IN {texts(passing)}" if passing else f"token = {token}"
    shown = ("batch", "row_id", "time", "diff", "entity", "event_time")
    adds = {measure: violation(f"own AND ({check})") for measure, check in checks.items()}
    parts = [
        Part(_written(source, own, consumed), adds | {"updates_added": "IF(own, diff, -diff)"}, shown),
        Part(
            landed, {"rows_landed": "rows - coalesce(rows_back, 0)"}, ("seq_no", "path", "landing", "rows", "rows_back")
        ),
        Part(_batches(source, own), {"batches_as_stated": violation(_as_stated(stated))}, ("batch", "n_updates")),
        _rows_met_again(source, own),
    ]
    measured = measure(spark, parts, {"batches_stated": len(stated), **_frontier_measures(before, after)})
    repeated = _repeated_updates(source, own)
    if measured.values[MET_AGAIN]:
        return measured.plus(measure(spark, [repeated]))
    return measured.plus(Measurement(spark, [repeated], dict.fromkeys(repeated.adds, 0)))


def _written(source: Source, own: str, consumed: Sequence[str]) -> str:
    """The updates of this attempt, and those of the batches that it drained and merged in their place."""
    table = qualified("trace", updates(source).table)
    # two scans, so that each skips files: by the token's statistics, and by the batches' partitions
    rows = f"SELECT *, true AS own FROM {table} WHERE {own}"
    if consumed:
        rows += f" UNION ALL SELECT *, false AS own FROM {table} WHERE batch IN {texts(consumed)}"
    return rows


def _rows_met_again(source: Source, own: str) -> Part:
    """How many updates of a batch have the row and the sign of another one: a bit for each row id, in words of 64, so
    that no table of all ids is held. Only where there are such can an update be repeated, at the same time too."""
    alike = f"batch, sign(diff), below_horizon, {WORD}"
    relation = (
        f"SELECT batch, count(*) - coalesce(bit_count({BITS}), 0) AS surplus"
        f" FROM {qualified('trace', updates(source).table)} WHERE {own} GROUP BY {alike}"
    )
    return Part(relation, {MET_AGAIN: "surplus"}, ("batch", "surplus"))


def _repeated_updates(source: Source, own: str) -> Part:
    """One row per batch, row, time and sign, with the number of its updates."""
    alike = "batch, row_id, time, sign(diff), below_horizon"
    count = "sign(diff) AS sign, count(*) AS times"
    table = qualified("trace", updates(source).table)
    relation = f"SELECT batch, row_id, time, {count} FROM {table} WHERE {own} GROUP BY {alike}"
    shown = ("batch", "row_id", "time", "sign", "times")
    return Part(relation, {"repeated_updates": violation("times > 1")}, shown)


def _batches(source: Source, own: str) -> str:
    bounds = "count(*) AS n_updates, min(unix_micros(time)) AS least, max(unix_micros(time)) AS greatest"
    return f"SELECT batch, {bounds} FROM {qualified('trace', updates(source).table)} WHERE {own} GROUP BY batch"


def _as_stated(batches: Sequence[TraceBatch | UnsealedBatch]) -> str:
    """Whether a batch is as the frontiers say: its number of updates, and the bounds of their times."""
    cases = [
        f"batch = {literal(b.handle)} AND n_updates = {b.n_updates} AND least = {b.least} AND greatest = {b.greatest}"
        for b in batches
    ]
    return " OR ".join(cases) or "false"


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


def _inside(trace: Sequence[TraceBatch], unsealed: Sequence[UnsealedBatch], seal: Frontier) -> str:
    """Whether an update lies where its batch says: in the batch's interval (forwarded to its since at most, once that
    has passed it), or at or beyond the seal if unsealed."""
    cases = []
    for batch in trace:
        least = timestamp(batch.lower.time or 0)
        greatest = max((batch.upper.time or 0) - 1, batch.since.time or 0)
        within = f"time >= {least} AND time <= {timestamp(greatest)}"
        cases.append(f"WHEN batch = {literal(batch.handle)} THEN {within}")
    sealed = timestamp(seal.time or 0)
    cases += [f"WHEN batch = {literal(batch.handle)} THEN time >= {sealed}" for batch in unsealed]
    return f"CASE {' '.join(cases)} ELSE false END" if cases else "false"
