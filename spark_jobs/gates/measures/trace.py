"""Measures of the gate after `seal`: the updates that an advance wrote, against the arrangement before and after."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import Measurement, Part, listed, measure, texts, timestamp, violation
from spark_jobs.kernels.arrangement import ArrangementState
from spark_jobs.sources import Source
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.tables import FILES, updates
from spark_jobs.trace.frontiers import SourceFrontiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    unsealed batches that it consumed.
    """
    state = after.arrangement
    kept = {batch.handle for batch in state.unsealed}
    consumed = [batch.handle for batch in before.arrangement.unsealed if batch.handle not in kept]
    own = f"token = {token}"
    checks = {
        "updates_below_previous_seal": f"time < {timestamp(before.seal_us)}",
        "updates_outside_batch": f"NOT coalesce({_inside(state)}, false)",
        "updates_without_diff": "coalesce(diff, 0) = 0",
        "updates_without_identity": "row_id IS NULL OR entity IS NULL OR event_time IS NULL OR time IS NULL",
        "visible_before_event": "time < event_time",
    }
    counts = ", ".join(f"count_if({own} AND ({check})) AS {measure}" for measure, check in checks.items())
    updates_by_row = (
        f"SELECT batch, row_id, time, sign(diff) AS sign, any_value(entity) AS entity, count_if({own}) AS times,"
        f" sum(IF({own}, diff, -diff)) AS added, {counts} FROM {qualified('trace', updates(source).table)}"
        f" WHERE {own}{f' OR batch IN {texts(consumed)}' if consumed else ''} GROUP BY batch, row_id, time, sign(diff)"
    )
    adds = {measure: measure for measure in checks} | {
        "updates_added": "added",
        "repeated_updates": violation("times > 1"),
    }
    landed = (
        f"SELECT * FROM {qualified(FILES.database, FILES.table)}"
        f" WHERE source = {literal(source.name)} AND landing IN {listed(landings)}"
    )
    parts = [
        Part(updates_by_row, adds, ("batch", "row_id", "time", "sign", "entity", "times")),
        Part(landed, {"rows_landed": "rows"}, ("seq_no", "path", "landing", "rows")),
    ]
    return measure(
        spark,
        parts,
        {
            "broken_batch_chain": sum(a.upper != b.lower for a, b in pairwise(state.trace)),
            "trace_upper_us": state.trace_upper.time or 0,
            "seal_us": after.seal_us,
            "previous_seal_us": before.seal_us,
            "previous_since_us": before.arrangement.since.time or 0,
            "since_us": state.since.time or 0,
            "reached_us": after.reached_us,
        },
    )


def _inside(state: ArrangementState) -> str:
    """Whether an update lies where its batch says: in the batch's interval, or at or beyond the seal if unsealed."""
    cases = []
    for batch in state.trace:
        lower, upper = timestamp(batch.lower.time or 0), timestamp(batch.upper.time or 0)
        cases.append(f"WHEN batch = {literal(batch.handle)} THEN time >= {lower} AND time < {upper}")
    seal = timestamp(state.seal.time or 0)
    cases += [f"WHEN batch = {literal(batch.handle)} THEN time >= {seal}" for batch in state.unsealed]
    return f"CASE {' '.join(cases)} ELSE false END" if cases else "false"
