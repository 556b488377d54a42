"""Upkeep of trace and bronze by the stage `compact`, in every run, also if nothing new has landed."""

from __future__ import annotations

import time

from spark_jobs.jobs.context import RunStage
from spark_jobs.landing.merging import merge_due
from spark_jobs.model import TICKS_PER_SECOND
from spark_jobs.trace.frontiers import published_frontiers
from spark_jobs.trace.maintenance import Upkeep, maintain


def keep_trace(stage: RunStage) -> Upkeep:
    """Move since and horizon, and merge batches within the budget."""
    upkeep = maintain(
        stage.lake,
        stage.source,
        stage.fence,
        stage.run_id,
        frontiers=stage.frontiers,
        publication=stage.publication,
        now_us=int(time.time() * TICKS_PER_SECOND),
    )
    stage.summary.update(merges=upkeep.merges, merged_updates=upkeep.merged_updates, removed_batches=upkeep.removed)
    return upkeep


def keep_chunks(stage: RunStage) -> None:
    """Merge chunks of earlier runs if there are enough of them."""
    # this run's chunks are not published yet: a run that repeats it finds them by their landings
    published = published_frontiers(stage.lake, stage.source, stage.publication)
    merged = merge_due(stage.lake, stage.source, stage.fence.token, published.landed_through)
    stage.summary.update(chunks_before=merged.chunks_before, chunks_after=merged.chunks_after)
