"""What a run begins with: the frontiers of the publication, and the drops that it would leave out."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.trace.frontiers import SourceFrontiers, published_frontiers
from spark_jobs.trace.gap import SealGap, gap_refusal
from spark_jobs.trace.withdrawal import withdrawn


def begun_frontiers(
    lake: Lake, source: Source, standing: SourceFrontiers, publication: Publication, token: int
) -> SourceFrontiers:
    """The frontiers that a run goes on from where `standing` stands: those of the publication. What an earlier run
    sealed and did not publish is withdrawn, under `token`."""
    if standing.seal_us <= publication.published_us:
        return standing
    begun = withdrawn(standing, published_frontiers(lake, source, publication), token)
    return replace(begun, published_us=publication.published_us)


def gap_of(lake: Lake, source: Source, frontiers: SourceFrontiers, drops: range) -> SealGap | None:
    """The refusal of a run of `drops` that would leave out drops that were never run. What an earlier run landed
    without publishing it is not left out: this run takes it in."""
    if gap_refusal(source, frontiers, drops) is None:
        return None
    pending = pending_landings(lake, source, frontiers.landed_through).values()
    ranges = (range(n, n + 1) for landing in pending for n in landing.drops)
    return gap_refusal(source, reduce(SourceFrontiers.with_landed, ranges, frontiers), drops)
