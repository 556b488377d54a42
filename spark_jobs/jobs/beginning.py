"""The beginning of a run: the frontiers of the publication, and the drops that the run would leave out."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.lakes.lake import Lake, TableReader
from spark_jobs.trace.frontiers import SourceFrontiers, published_frontiers
from spark_jobs.trace.gap import SealGap, gap_before, gap_refusal
from spark_jobs.trace.withdrawal import withdraw


def initial_frontiers(
    lake: TableReader, source: Source, current: SourceFrontiers, publication: Publication, token: int
) -> SourceFrontiers:
    """The frontiers with which a run begins, if `current` are those in the lake.

    They are the frontiers of the publication: a seal that an earlier run did not publish is withdrawn, under `token`.
    """
    if current.seal_us <= publication.published_us:
        return current
    initial = withdraw(current, published_frontiers(lake, source, publication), token)
    return replace(initial, published_us=publication.published_us)


def gap_of(lake: Lake, source: Source, frontiers: SourceFrontiers, drops: range) -> SealGap | None:
    """The error that refuses a run of `drops` because it would leave out drops that were never run; else None."""
    return gap_refusal(source, _with_pending(lake, source, frontiers, drops), drops)


def _with_pending(lake: Lake, source: Source, frontiers: SourceFrontiers, drops: range) -> SourceFrontiers:
    """The frontiers, with drops that an earlier run landed and did not publish counted as landed.

    A run of `drops` includes those landings, so it does not leave these drops out.
    """
    if not drops or not gap_before(source, frontiers, drops.start):
        return frontiers
    pending = pending_landings(lake, source, frontiers.landed_through).values()
    ranges = (range(n, n + 1) for landing in pending for n in landing.drops)
    return reduce(SourceFrontiers.with_landed, ranges, frontiers)
