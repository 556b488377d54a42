"""Whether all that has landed of a source is published: what changes a source as a whole begins with that."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.trace.frontiers import SourceFrontiers


class SourceUnpublished(TidemarkError):
    """What has landed of the source is not all published. Facts: `source`."""

    code = "source_unpublished"


def check_published(lake: Lake, source: Source, standing: SourceFrontiers, shown: Publication, done: str) -> None:
    """Refuse to go on where a run has landed or sealed something and not published it. `done` is what nothing was,
    such as `erased`.

    Raises:
        SourceUnpublished: one has.
    """
    if pending_landings(lake, source, standing.landed_through) or standing.seal_us != shown.published_us:
        raise SourceUnpublished(
            expected=f"all that has landed of {source.name} to be published",
            found="a run that has landed or sealed something and not published it",
            consequence=f"nothing was {done}",
            next_step=f"run its drops to the end, then do the same again: `tidemark status --drops {source.name}` names"
            " them",
            source=source.name,
        )
