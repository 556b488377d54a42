"""Drop or reset a source: all of its landed and published rows leave the lake, and other sources' tables stay.

The publication is taken back first, in one commit, so that nothing is visible any more. Each step may be done twice: a
command that was interrupted anywhere goes on if it is started again, and until it is finished no run of the source
begins. Tokens only rise: rows that land later are never taken for rows of an earlier attempt.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from spark_jobs.backup import back_up
from spark_jobs.config import Settings
from spark_jobs.jobs.names import forget_names
from spark_jobs.lifecycle.environments import drop_tables
from spark_jobs.lifecycle.source_parts import SourceParts, hold_source, known_parts, remove_rows, source_parts
from spark_jobs.sources import environments
from spark_jobs.storage.coordination.lake_format import check_format
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.coordination.source_changes import DROP, begin_change, record_change, unfinished_change
from spark_jobs.storage.descriptions.people_tables import ERASURES, FINISHED
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import forget_shown, remove_mart


@dataclass
class Removed:
    """The report of a drop or a reset of a source.

    tables: the rows removed by table, including rows that nothing shows. marts: the marts that are no longer shown.
    pins: pins of the source, which stay. environments: those that lose their tables of the source. file: the source
    file that is removed, None if it stays. archive: the place of the backup that was made before.
    """

    source: str
    kind: str
    tables: dict[str, int] = field(default_factory=dict)
    marts: list[str] = field(default_factory=list)
    pins: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    file: str | None = None
    archive: str | None = None

    @classmethod
    def of(cls, parts: SourceParts, lake: Lake, kind: str) -> Removed:
        """The report for these parts of a source; erasures stay in force, and are not counted."""
        rows = {table: count for table, count in parts.rows(lake).items() if table != ERASURES.qualified}
        file = str(parts.file) if parts.file is not None and kind == DROP else None
        return cls(parts.source, kind, rows, parts.marts, parts.pins, parts.environments, file)


def find_removal(settings: Settings, spark: SparkSession, source: str, kind: str) -> Removed:
    """The report of a drop or reset before it is done; changes nothing.

    Raises:
        SourceUnknown: neither a source file nor the lake has the name.
    """
    lake = SparkLake(spark)
    check_format(lake)
    return Removed.of(known_parts(settings, lake, source), lake, kind)


def remove_source(
    settings: Settings,
    spark: SparkSession,
    source: str,
    kind: str,
    *,
    archive: str | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Removed:
    """Drop or reset a source, or go on with an interrupted drop or reset; the caller has the source's turn.

    `archive`: a place for a backup of the whole lake, made before anything is removed. `on_step` is called with the
    name of each step before it begins. A query that reads a table of all sources at the same moment may fail on a
    missing file, and has to be repeated.

    Raises:
        SourceUnknown: neither a source file nor the lake has the name.
        SourceChangeUnfinished: another change of the source was interrupted.
    """
    lake = SparkLake(spark)
    check_format(lake)
    before = unfinished_change(lake, source)
    parts = (known_parts if before is None else source_parts)(settings, lake, source)
    report = Removed.of(parts, lake, kind)
    if archive is not None and before is None:
        on_step("archive")
        back_up(settings, archive)
    with hold_source(settings, lake, source) as lease:
        change = begin_change(lake, source, kind, getpass.getuser(), archive=archive)
        report.archive = change.archive
        _take_out_of_sight(settings, lake, parts, lease, on_step)
        on_step("tables")
        for table in (*parts.histories, *parts.tables):
            lake.catalog.drop(table)
        remove_rows(lake, source, keep=(ERASURES,))
        if kind == DROP and parts.file is not None:
            on_step("file")
            parts.file.unlink(missing_ok=True)
        record_change(lake, change, FINISHED)
    return report


def _take_out_of_sight(
    settings: Settings, lake: SparkLake, parts: SourceParts, lease: Lease, on_step: Callable[[str], None]
) -> None:
    """Remove the publication and all names by which people read the source."""
    on_step("publication")
    if lake.folder.is_stored(PUBLISHED.database, PUBLISHED.table):
        # committed under the lease's token: the source's later tokens are greater than all in the log
        lake.replace_records(PUBLISHED, [], lease.fence)
    on_step("names")
    forget_names(settings, lake, parts.source, parts.windows)
    for mart in parts.marts:
        remove_mart(lake, mart)
    forget_shown(settings.home, parts.source)
    for environment in environments(settings.home):
        drop_tables(lake, environment, [parts.source])
