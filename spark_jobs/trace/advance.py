"""Advance a source's trace by the landed rows: append, seal and drain as one data write and one commit.

The updates are moved by the arrangement's own `advance`. This module decides when rows become visible, the new seal,
and the other parts of the new frontiers. A crash between the data write and the commit leaves rows of a batch that no
state names. A replaced batch stays until a publication has been made over its replacement (see `trace.maintenance`).
Batches for which there already is such a publication are removed by the commit that writes the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import horizon_of_run
from spark_jobs.trace.placing import LandedRows
from spark_jobs.trace.source_journal import SourceJournal
from spark_jobs.trace.source_plane import SourcePlane


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of one advance: the frontiers before and after, and the numbers of updates that were appended,
    drained, and written below the horizon."""

    before: SourceFrontiers
    after: SourceFrontiers
    appended: int
    drained: int
    below_horizon: int = 0

    @property
    def moved(self) -> bool:
        """True if the frontiers changed."""
        return self.before != self.after


def next_seal(frontiers: SourceFrontiers, hi_us: int, *, published_us: int, adds: bool, changes: bool) -> int:
    """The seal of a run that ends at `hi_us`: `hi_us`, if that is beyond the current seal.

    Else it is one tick beyond the current seal if the run adds updates. The same is true if the run `changes` the
    published results of the present updates and the current seal is published already. Else it is the current seal.
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

    `drops` are the drops that have landed with this run, in the order of time. `unpublished`: `publication` does not
    show all that the frontiers and the source file ask for. `has_repeats`: several landed updates may be of one row.
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
    result = journal.arrangement(plane).advance(landed, seal_us)
    if plane.has_written:
        after = after.without_replaced(frontiers.removable(publication.token))
    recorded = journal.record(replace(after, published_us=published_us))
    return Advance(frontiers, recorded, result.appended, result.drained, plane.n_below)
