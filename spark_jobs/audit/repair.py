"""Repair: makes lost or wrong tables and names anew if they follow from the lake, source by source, under its lease.

Windows, late rows and states are computed anew from the trace if they have lost commits, or were changed other than by
Tidemark. Rows of a table without its log, or of a missing commit of the ledger or the trace, follow from nothing else:
only a backup has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables, names_lacking, source_tables
from spark_jobs.definitions.versions import changed_parts, check_version
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.in_force import changed_tables, check_unchanged, derived_tables, in_force
from spark_jobs.jobs.marts import marts_follow
from spark_jobs.jobs.names import let_names_follow
from spark_jobs.jobs.pipeline import new_run_id
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.jobs.visits import sweep_under, visit_source
from spark_jobs.model import STAGES, Finding
from spark_jobs.session import session_kind
from spark_jobs.sources import Source, read_sources
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DATABASES, FILES, FRONTIERS, PUBLISHED, chunks
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.storage.coordination.leases import Lease


def lacks_names(settings: Settings, spark: SparkSession) -> bool:
    """True if the catalog lacks a view that users read, of a source that has run."""
    lake, sources = SparkLake(spark), read_sources(settings.sources).sources
    tables = (chunks(sources[name]) for name in names_lacking(lake, sources.values()))
    return any(lake.folder.is_stored(table.database, table.table) for table in tables)


def repair(settings: Settings, spark: SparkSession) -> list[Finding]:
    """Mend every source that has run, as far as possible; returns a finding for each repair done or refused."""
    findings = []
    for source in read_sources(settings.sources).sources.values():
        lake = SparkLake(spark)
        stored_tables = [table for table in source_tables(source) if lake.folder.is_stored(table.database, table.table)]
        if chunks(source) not in stored_tables:
            continue
        lost = [table.qualified for table in (FILES, FRONTIERS, PUBLISHED) if table not in stored_tables]
        if lost:
            advice = "restore the lake from a backup: `tidemark restore`"
            findings.append(Finding(source.name, "wrong", f"not mended: no Delta log of {', '.join(lost)}", advice))
            continue
        try:
            for mending in _mend(settings, lake, source, stored_tables):
                # repairs that were done before a refusal stay done
                findings.append(Finding(source.name, "ok", f"mended: {mending}"))
        except TidemarkError as refusal:
            findings.append(Finding(source.name, "wrong", f"not mended: {refusal.found}", refusal.next_step))
    return findings


def _mend(settings: Settings, lake: SparkLake, source: Source, stored_tables: list[Table]) -> Iterator[str]:
    taken_up = lake.catalog.ensure(DATABASES, stored_tables)
    if taken_up:
        yield f"the catalog had lost {', '.join(table.qualified for table in taken_up)}"
    lease_file = settings.home / "leases" / f"{source.name}.lease"
    had_lease = lease_file.exists()
    with visit_source(settings, source, lake) as lease:
        if not had_lease:
            yield f"{lease_file} was lost: it counts on from token {lease.fence.token}"
        if publication.keep_newest(lake, source, lease.fence):
            yield f"{PUBLISHED.qualified} named a publication twice: the newest row is left"
    yield from _restate(settings, lake, source)
    with visit_source(settings, source, lake) as lease:
        yield from _mend_under(lease, settings, lake, source)


def _restate(settings: Settings, lake: Lake, source: Source) -> Iterator[str]:
    """Compute changed tables anew if they follow from the trace, publish the difference, and yield a line for each.

    Raises:
        TablesChanged: a table that does not follow from the trace has changed as well.
        DefinitionChanged: the source file differs from the published definition.
    """
    current_frontiers, current_publication = in_force(lake, source, compares=False)
    changed, derived = changed_tables(lake, source, current_publication), derived_tables(source)
    if not changed:
        return
    check_unchanged(source, changed if changed.keys() - derived else {})
    check_version(source, current_publication, accepted=False, consequence="nothing was mended")
    lo_us, hi_us = source.drops.interval(current_frontiers.landed[-1][1] - 1)
    request = Request(replay=frozenset(), anew=frozenset().union(*(derived[table] for table in changed)))
    run_id = new_run_id("repair")
    for stage in STAGES:
        run_stage(
            stage,
            source=source.name,
            lo=instant(lo_us),
            hi=instant(hi_us),
            run_id=run_id,
            settings=settings,
            spark=lake.spark,
            request=request,
        )
    for table, change in changed.items():
        yield f"{table}: {change}; its rows are worked out anew from the trace, and published by run {run_id}"


def _mend_under(lease: Lease, settings: Settings, lake: SparkLake, source: Source) -> Iterator[str]:
    _, current_publication = in_force(lake, source, near=lease.fence.token)
    if current_publication.published_us > 0 and not changed_parts(source, current_publication):
        check_tables(lake, source)
        healed = let_names_follow(settings, lake, source)
        if healed:
            yield healed
        # a classic session can build no marts
        marts = (
            None
            if session_kind(settings) == "classic"
            else marts_follow(settings, lake, source, current_publication.published_us)
        )
        if marts:
            yield f"marts: {marts}"
    swept = sweep_under(lease, lake, source)
    if swept.batches:
        yield f"{len(swept.batches)} batches that no state named are removed"
    for table, rows in swept.history.items():
        yield f"{rows} rows of {table} that no publication named are removed"
