"""The examination of a lake by its files alone, on a disk or in S3: no Spark, no server, nothing changed.

Each table is compared with its own log, and the tables with each other: whatever one refers to, another must contain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import names_lacking, source_tables
from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.versions import changed_parts
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.in_force import changed_tables, in_force, way_back
from spark_jobs.jobs.marts import marts_lacking
from spark_jobs.jvm.catalog import lost_catalog
from spark_jobs.landing import ledger
from spark_jobs.model import Finding, ReportStep, report_each, report_nothing
from spark_jobs.restatement.misread import is_misread
from spark_jobs.sources import Source, read_sources
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.coordination.source_changes import source_changes, unfinished_change
from spark_jobs.storage.delta.delta_log import is_unfinished
from spark_jobs.storage.delta.fingerprints import miscount
from spark_jobs.storage.delta.lake_files import LakeFiles
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.table_check import damaged_tables
from spark_jobs.storage.delta.table_notes import column_types
from spark_jobs.storage.descriptions.chain_tables import CHAINS, CHAINS_PART
from spark_jobs.storage.descriptions.people_tables import ERASURES, FINISHED
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, PUBLISHED, chunks, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.stored_lake import StoredLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESTORE = "`tidemark restore` a backup into an empty home; without one, {}"
_REPAIR = "`tidemark doctor --repair`"
_RECORDS = (FILES, FRONTIERS, PUBLISHED)
"""The tables that record how far each source has come; their loss is reported before anything else."""


def examine_lake(
    settings: Settings, *, deep: bool = False, report_step: ReportStep = report_nothing
) -> Iterator[Finding]:
    """The findings about a lake: its files, as the logs of its tables name them, then its tables, catalog and records.

    Findings `ok` if there is nothing else. `deep` also reads each file. The lake's files are listed once.
    """
    lake = StoredLake.at(settings.lake)
    if lake is None:
        yield Finding("tables", "warning", f"not examined: {settings.lake} is neither on a disk nor in S3")
        return
    report_step("list of the lake's files")
    files = LakeFiles.of(lake.folder)
    if not files.sizes and not files.logs:
        yield Finding("tables", "ok", "none yet")
        return
    damage = list(damaged_tables(lake.folder, files, deep=deep, report_step=report_step))
    for each in damage:
        advice = _RESTORE.format("land the sources' drops again in a new home")
        yield Finding(f"table {each.table}", "wrong", f"{each.file} {each.finding}", advice)
    if not damage:
        yield Finding("tables", "ok", "every file there" + (" and read" if deep else ""))
    yield from _examine_records(settings, lake, files, report_step)


def _examine_records(
    settings: Settings, lake: StoredLake, files: LakeFiles, report_step: ReportStep
) -> Iterator[Finding]:
    """The findings about a lake's tables, catalog and records, compared with each other."""
    findings = [*_folders_without_log(lake, files), *_catalog(settings), *_orphans(settings, lake)]
    findings += _report_findings("lake", _unfinished_changes(lake))
    # most tables are shared by all sources
    tables = _Tables(lake.folder)
    sources = read_sources(settings.sources).sources.values()
    for source in report_each(sources, report_step, "records of sources", len(sources)):
        examined = _Examined(settings, lake, source, tables)
        findings += _report_findings(f"{source.name}: records", examined.findings())
    yield from findings or [Finding("lake", "ok", "records, tables and trace agree")]


def _report_findings(what: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings; if a damaged table ends them, a finding about that as well."""
    try:
        yield from findings
    except TidemarkError as error:
        yield Finding(what, "wrong", error.found, error.next_step)


def _folders_without_log(lake: StoredLake, files: LakeFiles) -> Iterator[Finding]:
    """The folders of tables that have data files and no log."""
    for table in files.tables_without_log():
        database, _, name = table.partition(".db/")
        advice = _RESTORE.format("its rows are lost: move the folder away and run the source's drops again")
        finding = f"{lake.folder.root}/{table} has data files and no {LOG_DIR}"
        yield Finding(f"table {database}.{name}", "wrong", finding, advice)


def _catalog(settings: Settings) -> Iterator[Finding]:
    catalog = lost_catalog(settings)
    if catalog is not None:
        state = f"{catalog} is not there, or not whole, and the lake has tables"
        yield Finding("catalog", "warning", state, "`tidemark up` makes it anew, with all names, from the lake")


def _orphans(settings: Settings, lake: StoredLake) -> Iterator[Finding]:
    """The sources that have tables and no source file."""
    read = read_sources(settings.sources)
    source_names = {*read.sources, *(Path(error.file).stem for error in read.errors)}
    ending = "_chunks"
    for table in sorted(lake.catalog.names_if_present("bronze")):
        source = table.removesuffix(ending)
        if table.endswith(ending) and source not in source_names:
            place = lake.folder.handle_of("bronze", table).uri
            tables = f"{place} and other tables, and no {source}.yml in {settings.sources}"
            advice = (
                f"bring the file back; its tables read on without it. Or `tidemark source drop {source}`, which says"
                " what would go"
            )
            yield Finding(f"source {source}", "warning", tables, advice)


def _unfinished_changes(lake: StoredLake) -> Iterator[Finding]:
    """The renames, drops and resets of sources that were interrupted."""
    for change in source_changes(lake):
        if change.step != FINISHED:
            refusal = change.refuse()
            yield Finding(f"source {change.source}", "wrong", refusal.found, refusal.next_step)


def examine_names(settings: Settings, spark: SparkSession) -> Iterator[Finding]:
    """The views and marts that the catalog of a running server should have and does not have."""
    lake = SparkLake(spark)
    if not lake.folder.is_stored(PUBLISHED.database, PUBLISHED.table):
        return
    sources = read_sources(settings.sources).sources.values()
    of_sources = names_lacking(lake, sources)
    for source in sources:
        try:
            current_publication = publication.load(lake, source)
        except TidemarkError:
            continue  # the examination of the files reports it
        if current_publication.published_us == 0 or changed_parts(source, current_publication):
            continue
        lacking = [*of_sources.get(source.name, []), *marts_lacking(settings, lake, source)]
        if lacking:
            yield Finding(f"{source.name}: names", "wrong", f"the catalog lacks {', '.join(lacking)}", f"{_REPAIR}")


def examine_source(settings: Settings, source: Source) -> list[Finding]:
    """The findings about one source's tables and records, compared with each other.

    They are not compared with the publication's fingerprints. None if the lake is neither on a disk nor in S3.
    """
    lake = StoredLake.at(settings.lake)
    return [] if lake is None else [*_Examined(settings, lake, source, _Tables(lake.folder), compares=False).findings()]


class _Tables:
    """Answers from the logs of tables, each asked once, since most tables are shared by all sources.

    has_log: true if a table has a log. columns: the columns of a table that has one, each with its type.
    """

    def __init__(self, folder: LakeFolder) -> None:
        self.has_log: Callable[[Table], bool] = cache(lambda table: folder.is_stored(table.database, table.table))
        self.columns: Callable[[Table], Mapping[str, str]] = cache(lambda table: column_types(folder.handle(table)))


@dataclass(frozen=True)
class _Examined:
    """The examination of one source's tables and files; `compares`: also with the publication's fingerprints."""

    settings: Settings
    lake: StoredLake
    source: Source
    tables: _Tables
    compares: bool = True

    def findings(self) -> Iterator[Finding]:
        """The findings about the source; none if it never ran."""
        if not self._has_run():
            return
        if unfinished_change(self.lake, self.source.name) is not None:
            return  # reported as a change: until it is finished, the tables contradict each other
        lost = [table for table in _RECORDS if not self.tables.has_log(table)]
        for table in lost:
            advice = _RESTORE.format("what counts of the lake can't be told")
            yield self._finding(table.qualified, f"no Delta log in {self.lake.folder.handle(table).uri}", advice)
        looks: list[Callable[[], Iterator[Finding]]] = [self._tables, self._lease]
        compared = [self._fingerprints] if self.compares else []
        for look in looks if lost else [self._pointer, self._records, self._reading, *compared, *looks]:
            yield from _report_findings(f"{self.source.name}: records", look())

    @property
    def _of_source(self) -> pc.Expression:
        """The condition of the source's rows: each source reads its own, so that many are examined in linear time."""
        return pc.field("source") == self.source.name

    @cached_property
    def _publication(self) -> Publication:
        return publication.load(self.lake, self.source)

    def _has_run(self) -> bool:
        """True if the source has its table of chunks, which a first run creates last, or a record that names it."""
        if not self._is_absent(chunks(self.source)):
            return True
        logged = filter(self.tables.has_log, _RECORDS)
        try:
            return any(self.lake.records(table, self._of_source) for table in logged)
        except TidemarkError:
            return True  # the damaged records are reported by themselves

    def _is_absent(self, table: Table) -> bool:
        """True if there is no table: at most the remains of a creation that was stopped."""
        return not self.tables.has_log(table) and is_unfinished(self.lake.folder.handle(table))

    def _finding(self, what: str, symptom: str, do: str) -> Finding:
        return Finding(f"{self.source.name}: {what}", "wrong", symptom, do)

    def _pointer(self) -> Iterator[Finding]:
        rows = self.lake.records(PUBLISHED, self._of_source)
        if len(rows) > 1:
            tokens = ", ".join(str(row["token"]) for row in rows)
            symptom = f"{len(rows)} rows of the source in {PUBLISHED.qualified} (tokens {tokens})"
            yield self._finding("publication", symptom, publication.MEND_DOUBLED)

    def _tables(self) -> Iterator[Finding]:
        changed = self._changed_parts()
        for table in source_tables(self.source):
            if self.tables.has_log(table):
                yield from self._finding_of_lacking(table, changed)
            elif self._is_absent(table) and table not in _RECORDS:
                yield self._absent(table, changed)

    def _absent(self, table: Table, changed: list[str]) -> Finding:
        """The finding about a missing table: the lake is older, the source file declares more, or the table is lost."""
        if table in (*QUALITY, ERASURES):
            advice = f"run any drop of {self.source.name}: it makes the table, and nothing else needs it"
            return Finding(f"{self.source.name}: {table.qualified}", "warning", "no such table: an older lake", advice)
        state = f"no table in {self.lake.folder.handle(table).uri}"
        if self._parts().get(table.qualified) in changed:
            return self._finding_of_unaccepted(table, state)
        return self._finding(table.qualified, state, _RESTORE.format("land its drops again in a new home"))

    def _changed_parts(self) -> list[str]:
        """The parts of the source file that no run has accepted as they are now."""
        try:
            return changed_parts(self.source, self._publication)
        except TidemarkError:
            return []  # the damaged record is reported by itself

    def _parts(self) -> dict[str, str]:
        """The part of the definition for which a table exists, by the table's name."""
        return {CHAINS.qualified: CHAINS_PART, **{d.table().qualified: d.part for d in definitions(self.source)}}

    def _finding_of_unaccepted(self, table: Table, lacks: str) -> Finding:
        """The finding about a table, or columns, that the first run with the changed source file will make."""
        state = f"{lacks}: the source file has changed, and no run has accepted it"
        advice = "run with --accept-definition, or undo the change"
        return Finding(f"{self.source.name}: {table.qualified}", "warning", state, advice)

    def _finding_of_lacking(self, table: Table, changed: list[str]) -> Iterator[Finding]:
        """The finding about columns that a table lacks: the lake is older, or the source file declares more."""
        stored = self.tables.columns(table)
        lacking = [column.name for column in table.columns if column.name not in stored]
        if not lacking:
            return
        lacks = f"without the columns {', '.join(lacking)}"
        if changed:
            yield self._finding_of_unaccepted(table, lacks)
        else:
            yield self._finding(table.qualified, f"{lacks}: an older lake", f"run any drop of {self.source.name}")

    def _records(self) -> Iterator[Finding]:
        moves = Counter(row["token"] for row in self.lake.records(FRONTIERS, self._of_source))
        twice = [token for token, count in moves.items() if count > 1]
        if twice:
            advice = _RESTORE.format("its version before is the way back, if no source has committed to it since")
            yield self._finding("frontiers", f"token {twice[0]} is there more than once", advice)
        now, current_publication = in_force(self.lake, self.source, compares=False)
        if now.seal_us < current_publication.published_us:
            finding = (
                f"the newest frontiers seal {now.seal_us}, before what is published, {current_publication.published_us}"
            )
            advice = _RESTORE.format("what was sealed last can't be told")
            yield self._finding("frontiers", f"{finding}: a commit of {FRONTIERS.qualified} is missing", advice)
        rows_by_landing = ledger.rows_by_landing(self.lake, self.source)
        if now.landed_through > max(rows_by_landing, default=0):
            finding = f"the trace took in landing {now.landed_through}, which the ledger does not have"
            yield self._finding("ledger", finding, _RESTORE.format("`tidemark plan` shows what a run would land again"))
        if not self.tables.has_log(updates(self.source)):
            return  # a missing table is reported with the other tables
        stored = {file.partition for file in self.lake.summaries(updates(self.source), "batch", None, ())}
        orphans = sorted(stored - now.arrangement.handles() - {handle for handle, _ in now.obsolete})
        if orphans:
            finding = (
                f"{len(orphans)} batches that no state names ({', '.join(orphans[:3])}): of a run at work, or a crash"
            )
            yield Finding(
                f"{self.source.name}: orphans", "warning", finding, f"{_REPAIR} waits for the run, and removes them"
            )
        state = now.arrangement
        # a batch whose updates were all erased, or cancel each other, has no file
        named = {batch.handle for batch in state.trace if batch.n_updates} | {batch.handle for batch in state.unsealed}
        missing = sorted(named - stored)
        if missing:
            finding = f"{len(missing)} batches of its trace have no files: {', '.join(missing[:3])}"
            yield self._finding("trace", finding, _RESTORE.format("land its drops again in a new home"))

    def _reading(self) -> Iterator[Finding]:
        """The finding about a publication that an earlier version of Tidemark made, and that leaves rows out."""
        has_updates = self.tables.has_log(updates(self.source))
        if has_updates and is_misread(self.lake, self.source, self._publication):
            left_out = "files with a time before year 1000 or of year 9999, or rows without a value in a window's key"
            advice = (
                f"run any drop of {self.source.name}, a landed one will do: it publishes all windows and states anew"
            )
            yield self._finding("publication", f"an earlier version made it, which left out {left_out}", advice)

    def _fingerprints(self) -> Iterator[Finding]:
        """The findings about tables that somebody has changed since the publication."""
        changed = changed_tables(self.lake, self.source, self._publication)
        for table, noted in self._publication.tables.items():
            if table not in changed and (
                difference := miscount(self.lake.folder.handle_of(*table.split(".")), self.source.name, noted)
            ):
                changed[table] = difference
        for table, difference in changed.items():
            yield self._finding(table, difference, way_back(self.source, [table]))

    def _lease(self) -> Iterator[Finding]:
        path = self.settings.home / "leases" / f"{self.source.name}.lease"
        what, goes_on = f"{self.source.name}: lease", "nothing: the next run goes on from the lake's own tokens"
        if not path.exists():
            yield Finding(what, "warning", f"no {path}, and a source that has been run", goes_on)
            return
        try:
            json.loads(path.read_text() or "{}")
        except ValueError:
            yield Finding(what, "warning", f"{path} is cut or no JSON", goes_on)
