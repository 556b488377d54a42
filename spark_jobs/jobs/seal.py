"""Seal: what has landed enters the trace, and the frontiers move."""

from __future__ import annotations

from spark_jobs.jobs.context import Stage
from spark_jobs.landing.pending import pending_updates
from spark_jobs.trace.advance import advance


def seal(stage: Stage) -> None:
    """Append the landings that are not in the trace yet, seal at the interval's end, drain and trim."""
    pending = pending_updates(stage.lake, stage.source, stage.frontiers.landed_through)
    moved = advance(
        stage.lake,
        stage.source,
        stage.fence,
        stage.run_id,
        frontiers=stage.frontiers,
        drops=stage.drops,
        hi_us=stage.hi_us,
        landed=pending.rows,
        landed_through=pending.through,
        unpublished=not stage.scope.nothing_to_do() and stage.frontiers.seal_us > 0,
    )
    stage.summary.update(
        appended=moved.appended,
        drained=moved.drained,
        seal_us=moved.after.seal_us,
        moved=moved.moved,
        unsealed=sum(batch.n_updates for batch in moved.after.arrangement.unsealed),
    )
