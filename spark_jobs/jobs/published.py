"""A check that all landed rows of a source are published; changes of a whole source begin with it."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import SourceFrontiers


class SourceUnpublished(TidemarkError):
    """The source has rows that are landed or sealed and not published. Facts: `source`."""

    code = "source_unpublished"


def check_published(
    lake: Lake, source: Source, current_frontiers: SourceFrontiers, current_publication: Publication, participle: str
) -> None:
    """Refuse to go on if a run has landed or sealed rows and not published them.

    `participle`: for the message, such as `erased` in "nothing was erased".

    Raises:
        SourceUnpublished: there is such a run.
    """
    if (
        pending_landings(lake, source, current_frontiers.landed_through)
        or current_frontiers.seal_us != current_publication.published_us
    ):
        raise SourceUnpublished(
            expected=f"all that has landed of {source.name} to be published",
            found="a run that has landed or sealed something and not published it",
            consequence=f"nothing was {participle}",
            next_step=f"run its drops to the end, then do the same again: `tidemark status --drops {source.name}` names"
            " them",
            source=source.name,
        )
