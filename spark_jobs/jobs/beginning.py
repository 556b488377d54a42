"""What a run begins with: the frontiers of the publication, and the drops that it would leave out."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.trace.frontiers import SourceFrontiers, published_frontiers
from spark_jobs.trace.gap import SealGap, gap_before, gap_refusal
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
    """The refusal of a run of `drops` that would leave out drops that were never run."""
    return gap_refusal(source, _with_pending(lake, source, frontiers, drops), drops)


def _with_pending(lake: Lake, source: Source, frontiers: SourceFrontiers, drops: range) -> SourceFrontiers:
    """`frontiers`, with what an earlier run landed without publishing it: a run of `drops` takes it in, so it is not
    left out."""
    if not drops or not gap_before(source, frontiers, drops.start):
        return frontiers
    pending = pending_landings(lake, source, frontiers.landed_through).values()
    ranges = (range(n, n + 1) for landing in pending for n in landing.drops)
    return reduce(SourceFrontiers.with_landed, ranges, frontiers)
