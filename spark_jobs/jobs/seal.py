"""Seal: what has landed enters the trace, and the frontiers move."""

from __future__ import annotations

from spark_jobs.gates.measures import trace as measure_trace
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.landing.pending import landings_between, pending_updates
from spark_jobs.trace.advance import advance
from spark_jobs.trace.frontiers import moves_since


def seal(stage: Stage) -> None:
    """Append the landings that are not in the trace yet, seal at the interval's end, drain and trim."""
    before = stage.frontiers
    pending = pending_updates(stage.lake, stage.source, before.landed_through)
    moved = advance(
        stage.lake,
        stage.source,
        stage.fence,
        stage.run_id,
        frontiers=before,
        drops=stage.drops,
        hi_us=stage.hi_us,
        landed=pending.rows,
        landed_through=pending.through,
        unpublished=before.seal_us > 0 and not stage.scope.nothing_to_do(),
    )
    stage.summary.update(
        appended=moved.appended,
        drained=moved.drained,
        unsealed=sum(batch.n_updates for batch in moved.after.arrangement.unsealed),
        seal_us=moved.after.seal_us,
        moved=moved.moved,
    )
    _pass_gate(stage)


def _pass_gate(stage: Stage) -> None:
    """Measure every move of the frontiers that is not published yet, so that a repeated run meets a failed gate
    again."""
    for move in moves_since(stage.lake, stage.source, stage.publication.token):
        landings = landings_between(stage.lake, stage.source, move.before.landed_through, move.after.landed_through)
        measured = measure_trace(
            stage.lake.spark, stage.source, before=move.before, after=move.after, token=move.token, landings=landings
        )
        pass_gate(stage, "trace", measured)
