"""The frontiers and the publication in force of a source, and the tables that the publication rests on.

No record may be older than another record implies. Since the publication, no table may have lost commits, or have been
changed other than by Tidemark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow.compute as pc

from spark_jobs.definitions.catalog import source_tables
from spark_jobs.definitions.definition import definitions
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.fingerprints import Fingerprint, Fingerprints, change_since, take_fingerprint
from spark_jobs.storage.delta.records import committed_token
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.tables import FRONTIERS, LATE, PUBLISHED, STATE
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.threads import in_threads
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers


class PublicationLost(TidemarkError):
    """The record of a source's newest publication is missing, or an older one is in its place. Facts: `source`."""

    code = "publication_lost"


class TablesChanged(TidemarkError):
    """Tables have lost commits since the publication, or their rows were changed other than by Tidemark. Facts:
    `source`, `tables` (the name of each -> its change in words)."""

    code = "tables_changed"


def in_force(
    lake: TableReader, source: Source, *, near: int = 0, compares: bool = True
) -> tuple[SourceFrontiers, Publication]:
    """The frontiers and the publication in force; `compares`: check also that tables are as the publication left them.

    `near`: see `frontiers.load`.

    Raises:
        PublicationLost: a later publication was made than the one in the table.
        PublicationDoubled: the table has several rows of the source.
        TablesChanged: a table has lost commits, or was changed other than by Tidemark.
    """
    # in this order: reading the frontiers of a run brings the publication along
    current_frontiers = frontiers.load(lake, source, near=near)
    current_publication = publication.load(lake, source)
    if current_frontiers.published_us > current_publication.published_us or (
        current_publication.published_us == 0 and _was_published(lake, source)
    ):
        raise _publication_lost(lake, source, current_frontiers, current_publication)
    if compares:
        check_unchanged(source, changed_tables(lake, source, current_publication))
    return current_frontiers, current_publication


def take_fingerprints(lake: TableReader, source: Source, before: Fingerprints) -> dict[str, Fingerprint]:
    """The fingerprints of the source's tables without those of `quality`, by name; `before`: its last publication's."""
    # results of checks and records of runs are kept for people: no published row depends on them
    tables = [table for table in source_tables(source) if table not in QUALITY]
    taken = in_threads(
        lambda of: take_fingerprint(lake.folder.handle(of), source.name, before.get(of.qualified)), tables
    )
    return dict(zip((table.qualified for table in tables), taken, strict=True))


def changed_tables(lake: TableReader, source: Source, current_publication: Publication) -> dict[str, str]:
    """The tables that somebody other than Tidemark has changed since the publication, each with the change in words."""
    tables = sorted(current_publication.tables)
    changes = in_threads(
        lambda table: change_since(
            lake.folder.handle_of(*table.split(".")), source.name, current_publication.tables[table]
        ),
        tables,
    )
    return {table: change for table, change in zip(tables, changes, strict=True) if change is not None}


def check_unchanged(source: Source, changed: Mapping[str, str]) -> None:
    """Refuse to go on if there are changed tables; `changed` has the change of each in words, by name.

    Raises:
        TablesChanged: there is such a table.
    """
    if changed:
        raise TablesChanged(
            expected=f"the tables of {source.name} as its publication left them, and Tidemark's commits since",
            found="; ".join(f"{table}: {change}" for table, change in changed.items()),
            consequence="nothing was done: wrong rows would be published, or right ones twice",
            next_step=way_back(source, changed),
            source=source.name,
            tables=dict(changed),
        )


def way_back(source: Source, changed: Iterable[str]) -> str:
    """The advice for tables that have changed: derived ones can be computed anew, others need a backup."""
    if {*changed} <= {*derived_tables(source)}:
        return (
            "`tidemark doctor --repair` works these tables out anew from the trace, as one correction; or `tidemark"
            " restore` a backup into an empty home, which also has the answers as of earlier times"
        )
    return (
        "put the commits back, or `tidemark restore` a backup into an empty home: the rows follow from no other table."
        " A change by hand is undone by `DeltaTable(FOLDER).restore(VERSION)` of deltalake, to the version before it"
    )


def derived_tables(source: Source) -> dict[str, frozenset[str]]:
    """The tables that follow from the trace, by name, each with the parts of the definition that decide its rows."""
    windows = {definition.table().qualified: frozenset({definition.part}) for definition in definitions(source)}
    late = frozenset({"state"}).union(*windows.values())
    return windows | {LATE.qualified: late} | {of.qualified: frozenset({"state"}) for of in (STATE, CHAINS)}


def _was_published(lake: TableReader, source: Source) -> bool:
    """True if a publication of the source was committed after its first frontiers.

    The frontiers themselves may not note the first publication yet. A reset removes earlier frontiers.
    """
    moves = lake.records(FRONTIERS, pc.field("source") == source.name)
    return bool(moves) and committed_token(lake.folder.handle(PUBLISHED), source.name) > min(
        move["token"] for move in moves
    )


def _publication_lost(
    lake: TableReader, source: Source, current_frontiers: SourceFrontiers, current_publication: Publication
) -> PublicationLost:
    row = f"the row of {instant(current_publication.published_us)}" if current_publication.published_us else "no row"
    time_of_frontiers = (
        f", the one of {instant(current_frontiers.published_us)} or a later one"
        if current_frontiers.published_us
        else ""
    )
    uri = lake.folder.handle(PUBLISHED).uri
    return PublicationLost(
        expected=f"the newest publication of {source.name} in {PUBLISHED.qualified}{time_of_frontiers}",
        found=f"{row} of {source.name} in {PUBLISHED.qualified}, which has published since",
        consequence="nothing was done: rows that were published would pass for those of attempts given up",
        next_step=f"set the table back to its version before: in Python, `DeltaTable({uri!r})` of"
        " deltalake, `.history()` names versions, `.restore(VERSION)` takes one. If a source has published since, or"
        " that version is gone, `tidemark restore` a backup into an empty home",
        source=source.name,
    )
