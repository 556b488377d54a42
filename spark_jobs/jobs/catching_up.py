"""The drops of a scheduled run: its own, and earlier drops that have been left out."""

from __future__ import annotations

from spark_jobs.config import Settings
from spark_jobs.jobs.beginning import initial_frontiers
from spark_jobs.jobs.lake_reads import lake_for_reads
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import gap_before


def drops_due(settings: Settings, source: Source, drops: range) -> range:
    """The given drops, and all drops before them from the first that was never published and ends beyond the seal.

    Such drops are left out by an outage, and no other run will take them. Drops that have landed and were not published
    are taken again: if a gate failed and somebody has mended the files, the repeated run reads these files. Files that
    did not change do not land again.

    Before the first run no drop counts as left out: a person decides with which drop a source begins.
    """
    with lake_for_reads(settings, f"{source.name}:drops") as lake:
        # in this order: reading the frontiers of a run brings the publication along
        current_frontiers = frontiers.load(lake, source)
        current_publication = publication.load(lake, source)
        initial = initial_frontiers(lake, source, current_frontiers, current_publication, current_publication.token)
        if initial.seal_us == 0:
            return drops
        missing = gap_before(source, initial, drops.start)
    return range(missing[0][0], drops.stop) if missing else drops
