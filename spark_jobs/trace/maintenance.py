"""Upkeep of a source's trace after each run: since and horizon move by retention, batches merge, what was replaced
goes.

Everything here keeps every answer for T >= since and E >= horizon. One commit to `trace.frontiers` makes it visible.
Replaced batches are removed only once a publication has been made over their replacement: a reader that took up the
frontiers just before still finds what they name, and a gate that finds fault with a merge still has its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.kernels.arrangement import ArrangementState
from spark_jobs.model import Frontier
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.schema import Table
from spark_jobs.storage.tables import updates
from spark_jobs.trace.advance import ORDER, source_plane
from spark_jobs.trace.arrangement import Arrangement
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.frontiers import SourceFrontiers, commit
from spark_jobs.trace.horizon import published_horizon
from spark_jobs.trace.journal import MemoryJournal, StateChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGES_PER_RUN = 8
"""Merges in one run at most: a daily run makes one on average, so a backlog shrinks."""

UPDATES_PER_RUN = 4_000_000
"""Updates read by the merges of one run. The first merge is always made: no batch is too large to be merged at all."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much merging one run may do."""

    merges: int = MERGES_PER_RUN
    updates: int = UPDATES_PER_RUN


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done: frontiers before and after, merges, updates that they read, replaced batches removed."""

    before: SourceFrontiers
    after: SourceFrontiers
    merges: int
    merged_updates: int
    removed: int


def maintain(
    lake: Lake,
    source: Source,
    fence: Fence,
    run_id: str,
    *,
    frontiers: SourceFrontiers,
    publication: Publication,
    now_us: int,
    budget: Budget = Budget(),
) -> Upkeep:
    """Remove replaced batches that are due, move since and horizon by retention, merge within the budget.

    `now_us` decides about held reads alone: those that expired before it no longer hold since back.
    """
    # a run that wrote to the trace has removed them with that commit; this is for runs with nothing new
    due = frontiers.removable(publication.token)
    source_plane(lake, source).delete(due)
    kept = frontiers.without_replaced(due)
    # the steps are committed in memory: one row of trace.frontiers makes them all visible
    journal = MemoryJournal()
    journal.commit([StateChange(source.name, journal.load(source.name), kept.arrangement)])
    plane = _KeepingPlane(lake, updates(source), order=ORDER, fence=fence)
    arrangement: Arrangement[DataFrame] = Arrangement(plane, journal, collection=source.name)
    arrangement.allow_compaction(since_allowed(source, kept.arrangement, publication), now_us)
    merges, merged_updates = _merge(arrangement, budget)
    after = kept.replacing(arrangement.state, fence.token, plane.replaced)
    after = replace(after, horizon_us=published_horizon(source, kept, publication))
    if after != frontiers:
        commit(lake, source, fence, run_id, after)
    return Upkeep(frontiers, after, merges, merged_updates, len(due))


def since_allowed(source: Source, state: ArrangementState, publication: Publication) -> Frontier:
    """How far retention lets since go: its duration before what is published, never back."""
    kept_us = source.retention.since_us
    if kept_us is None or state.since.time is None:
        return state.since
    return max(state.since, Frontier.at(max(0, publication.published_us - kept_us)))


def _merge(arrangement: Arrangement[DataFrame], budget: Budget) -> tuple[int, int]:
    """Merge while the budget lasts; returns the number of merges and of the updates that they read."""
    merges = merged_updates = 0
    while (request := arrangement.compaction_request()) is not None and merges < budget.merges:
        reads = request.earlier.n_updates + request.later.n_updates
        if merges and merged_updates + reads > budget.updates:
            break
        arrangement.install(arrangement.merge(request))
        merges, merged_updates = merges + 1, merged_updates + reads
    return merges, merged_updates


class _KeepingPlane(DeltaPlane):
    """Leaves replaced batches where they are, and lists them."""

    def __init__(self, lake: Lake, table: Table, *, order: Sequence[str], fence: Fence) -> None:
        super().__init__(lake, table, order=order, fence=fence)
        self.replaced: list[str] = []

    def delete(self, handles: Sequence[str]) -> None:
        """To be removed in a later run: see the module."""
        self.replaced += handles
