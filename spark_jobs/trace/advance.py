"""Advance a source's trace by what has landed: append, seal and drain as one data write and one commit.

What moves is the arrangement's own `advance`; here is when rows become visible, how far the seal goes, and what else
the frontiers say once it is done. A crash between both commits leaves rows of a batch that no state names. The batches
that are replaced stay until a publication has been made over it (see `trace.maintenance`); those for which that was so
before go in the same commit that writes the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import horizon_of_run
from spark_jobs.trace.placing import LandedRows
from spark_jobs.trace.source_journal import SourceJournal
from spark_jobs.trace.source_plane import SourcePlane


@dataclass(frozen=True, slots=True)
class Advance:
    """What one advance did: frontiers before and after, updates appended, drained and still unsealed, and how many
    of those that it wrote lie below the horizon."""

    before: SourceFrontiers
    after: SourceFrontiers
    appended: int
    drained: int
    below_horizon: int = 0

    @property
    def moved(self) -> bool:
        """Whether anything changed."""
        return self.before != self.after


def next_seal(frontiers: SourceFrontiers, hi_us: int, *, published_us: int, adds: bool, changes: bool) -> int:
    """The seal of a run that ends at `hi_us`: `hi_us`, if that is beyond the current seal.

    Else one tick beyond the current seal, if the run adds updates, or if it `changes` what is shown of those that are
    there and the current seal is published already. Else the current seal.
    """
    if hi_us > frontiers.seal_us:
        return hi_us
    needs_time = adds or (changes and frontiers.seal_us == published_us)
    return frontiers.seal_us + 1 if needs_time else frontiers.seal_us


def advance(
    lake: Lake,
    source: Source,
    fence: Fence,
    run_id: str,
    *,
    frontiers: SourceFrontiers,
    drops: Sequence[range],
    hi_us: int,
    landed: LandedRows | None,
    landed_through: int,
    unpublished: bool,
    publication: Publication,
    has_repeats: bool = True,
) -> Advance:
    """Append `landed` (None if nothing landed), seal and drain.

    `drops` have landed then, in the order of time. `unpublished` says that `publication` does not show what the
    frontiers and the source file ask for. `has_repeats`: some of what landed may be of the same row.
    """
    after = replace(
        reduce(SourceFrontiers.with_landed, drops, frontiers),
        reached_us=max(frontiers.reached_us, hi_us),
        landed_through=landed_through,
    )
    changes = unpublished or after.landed != frontiers.landed
    published_us = publication.published_us
    seal_us = next_seal(frontiers, hi_us, published_us=published_us, adds=landed is not None, changes=changes)
    if seal_us == frontiers.seal_us and landed is None and after == frontiers:
        return Advance(frontiers, frontiers, 0, 0)
    plane = SourcePlane(
        lake,
        source,
        fence,
        horizon=horizon_of_run(source, frontiers, drops[0].start if drops else 0),
        seal_us=frontiers.seal_us,
        has_repeats=has_repeats,
        removed=frontiers.removable(publication.token),
    )
    journal = SourceJournal(lake, source, fence, run_id, frontiers)
    done = journal.arrangement(plane).advance(landed, seal_us)
    if plane.has_written:
        after = after.without_replaced(frontiers.removable(publication.token))
    recorded = journal.record(replace(after, published_us=published_us))
    return Advance(frontiers, recorded, done.appended, done.drained, plane.n_below)
