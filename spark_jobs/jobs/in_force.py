"""What is in force of a source: its frontiers, and a publication that is no older than what they know was published."""

from __future__ import annotations

import pyarrow.compute as pc

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.tables import FRONTIERS, PUBLISHED
from spark_jobs.storage.times import instant
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers


class PublicationLost(TidemarkError):
    """What says what is published of a source is gone, or set back. Facts: `source`."""

    code = "publication_lost"


def in_force(lake: Lake, source: Source, *, near: int = 0) -> tuple[SourceFrontiers, Publication]:
    """The frontiers and the publication in force; `near`: see `frontiers.load`.

    Raises:
        PublicationLost: a later publication was made than the one that stands.
        PublicationDoubled: several rows claim to be it.
    """
    # in this order: reading the frontiers of a run brings the publication along
    standing = frontiers.load(lake, source, near=near)
    shown = publication.load(lake, source)
    if standing.published_us > shown.published_us or (shown.published_us == 0 and _was_published(lake, source)):
        raise _lost(lake, source, standing, shown)
    return standing, shown


def _was_published(lake: Lake, source: Source) -> bool:
    """Whether a row of the source was committed since its frontiers began: of the first publication they may note
    nothing yet. A reset removes the frontiers of before."""
    moves = lake.records(FRONTIERS, pc.field("source") == source.name)
    return bool(moves) and lake.committed_token(PUBLISHED, source.name) > min(move["token"] for move in moves)


def _lost(lake: Lake, source: Source, standing: SourceFrontiers, shown: Publication) -> PublicationLost:
    row = f"the row of {instant(shown.published_us)}" if shown.published_us else "no row"
    known = f", the one of {instant(standing.published_us)} or a later one" if standing.published_us else ""
    return PublicationLost(
        expected=f"the newest publication of {source.name} in {PUBLISHED.qualified}{known}",
        found=f"{row} of {source.name} in {PUBLISHED.qualified}, which has published since",
        consequence="nothing was done: rows that were published would pass for those of attempts given up",
        next_step=f"set the table back to its version before: in Python, `DeltaTable({lake.uri(PUBLISHED)!r})` of"
        " deltalake, `.history()` names versions, `.restore(VERSION)` takes one. If a source has published since, or"
        " that version is gone, `tidemark restore` a backup into an empty home",
        source=source.name,
    )
