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

_UPDATE = ("batch", "time", "diff", "row_id", "entity", "event_time")


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
    table = qualified("trace", updates(source).table)
    written = f"SELECT * FROM {table} WHERE token = {token}"
    added = f"SELECT * FROM {table} WHERE token = {token} OR batch IN {texts(consumed)}"
    own = f"token = {token}"
    parts = [
        Part(
            added if consumed else written,
            {
                "updates_below_previous_seal": violation(f"{own} AND time < {timestamp(before.seal_us)}"),
                "updates_outside_batch": violation(f"{own} AND NOT coalesce({_inside(state)}, false)"),
                "updates_without_diff": violation(f"{own} AND coalesce(diff, 0) = 0"),
                "updates_without_identity": violation(
                    f"{own} AND (row_id IS NULL OR entity IS NULL OR event_time IS NULL OR time IS NULL)"
                ),
                "visible_before_event": violation(f"{own} AND time < event_time"),
                "updates_added": f"IF({own}, diff, -diff)",
            },
            _UPDATE,
        ),
        Part(
            f"SELECT batch, row_id, time, sign(diff) AS sign, count(*) AS times FROM ({written})"
            " GROUP BY batch, row_id, time, sign(diff) HAVING count(*) > 1",
            {"repeated_updates": "1"},
            ("batch", "row_id", "time", "sign", "times"),
        ),
        Part(_landed(source, landings), {"rows_landed": "net"}, ("seq_no", "path", "landing", "net")),
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


def _landed(source: Source, landings: Sequence[int]) -> str:
    """Per file of these landings the rows it brought, less those of the version that it replaces."""
    ledger = f"(SELECT * FROM {qualified(FILES.database, FILES.table)} WHERE source = {literal(source.name)})"
    return (
        f"SELECT f.seq_no, f.path, f.landing, f.rows - coalesce(o.rows, 0) AS net FROM {ledger} f"
        f" LEFT JOIN {ledger} o ON o.landing = f.replaces AND o.path <=> f.path AND o.seq_no = f.seq_no"
        f" WHERE f.landing IN {listed(landings)}"
    )
