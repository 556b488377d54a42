"""Upkeep of a source's trace after each run: since and horizon move by retention, batches merge, and replaced batches
are removed.

If retention moves since, batches merge as since passes them, and their times are forwarded. Without such retention a
trace of many batches merges published ones as they are: so a read opens few files, and no past is lost.

No step changes an answer for a time >= since and an event time >= horizon. One commit to `trace.frontiers` makes the
upkeep visible. Replaced batches are removed only once a publication has been made over their replacement. So a reader
that read the frontiers just before can still read the batches that they name. A gate that rejects a merge still has its
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.model import Frontier
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import published_horizon
from spark_jobs.trace.source_journal import SourceJournal
from spark_jobs.trace.source_plane import SourcePlane, remove_batches

MERGES_PER_RUN = 8
"""The most merges in one run. A daily run makes one on average, so a backlog shrinks."""

UPDATES_PER_RUN = 4_000_000
"""The most updates that the merges of one run read. The first merge is always made: no batch is too large to be merged
at all."""

MOST_BATCHES = 16
"""The number of batches above which a trace without `retention.since` merges some. A run then makes up to
`MERGES_PER_RUN` merges and has them judged once, and the runs after it make none."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of the merging that one run may do: merges, and updates that they read."""

    merges: int = MERGES_PER_RUN
    updates: int = UPDATES_PER_RUN


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The result of the upkeep: the frontiers before and after, and the numbers of merges, of updates that they read,
    and of replaced batches that were removed."""

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

    `now_us` decides only about held reads: a held read that expired before it does not delay since any more.
    """
    # a run that wrote to the trace has removed them with that commit; a run with no new rows removes them here
    due = frontiers.removable(publication.token)
    remove_batches(lake, source, due)
    kept = frontiers.without_replaced(due)
    journal = SourceJournal(lake, source, fence, run_id, frontiers)
    arrangement = journal.arrangement(SourcePlane(lake, source, fence))
    arrangement.allow_compaction(since_allowed(source, frontiers.arrangement, publication), now_us)
    settled = settled_frontier(source, frontiers.arrangement, publication)
    merged = arrangement.compact(budget.merges, budget.updates, settled)
    after = journal.record(replace(kept, horizon_us=published_horizon(source, kept, publication)))
    return Upkeep(frontiers, after, merged.merges, merged.updates, len(due))


def since_allowed(source: Source, state: ArrangementState, publication: Publication) -> Frontier:
    """The frontier to which retention lets since advance: its duration before the published time, and never back."""
    kept_us = source.retention.since_us
    if kept_us is None or state.since.time is None:
        return state.since
    return max(state.since, Frontier.at(max(0, publication.published_us - kept_us)))


def settled_frontier(source: Source, state: ArrangementState, publication: Publication) -> Frontier:
    """The frontier up to which batches may merge without a change of their times: the published time, if the trace has
    many batches and retention does not move since; else the least frontier."""
    if source.retention.since_us is not None or len(state.trace) <= MOST_BATCHES:
        return Frontier.at(0)
    return Frontier.at(max(0, publication.published_us))
