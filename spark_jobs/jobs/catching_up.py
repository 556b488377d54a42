"""Which drops a run takes that nobody asked for by name: its own, and those before it that have been left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_jobs.config import Settings
from spark_jobs.jobs.beginning import begun_frontiers
from spark_jobs.session import open_session, work_on
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.stored_lake import StoredLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import gap_before


def drops_due(settings: Settings, source: Source, drops: range) -> range:
    """`drops`, and before them all since the first one that was never published and ends beyond the seal: an outage is
    over, and nobody else will run them.

    What has landed and was not published is taken again: where a run is repeated since its gate failed, the files that
    somebody has mended are read, and what it publishes is told of all its drops. What did not change lands once.

    Before the first run nothing is left out: how far back a source goes is for a person to say.
    """
    with _records(settings, source) as lake:
        # in this order: reading the frontiers of a run brings the publication along
        standing = frontiers.load(lake, source)
        shown = publication.load(lake, source)
        begun = begun_frontiers(lake, source, standing, shown, shown.token)
        if begun.seal_us == 0:
            return drops
        missing = gap_before(source, begun, drops.start)
    return range(missing[0][0], drops.stop) if missing else drops


@contextmanager
def _records(settings: Settings, source: Source) -> Iterator[Lake]:
    """The lake's records, without Spark where they can be read without."""
    stored = StoredLake.at(settings.lake)
    if stored is not None:
        yield stored
        return
    session = open_session(settings, f"{source.name}:drops")
    try:
        with work_on(session, settings):
            yield Lake(session)
    finally:
        session.stop()
