"""Maintenance: steps that keep a lake small and check that it is whole.

It changes no answer. Each step takes its source by itself, between two stages of runs, so runs continue between the
steps. A failed step is reported, and the next one is done all the same. Only the loss of the lake server ends a
maintenance. Every step can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spark_jobs.audit.audit import audit
from spark_jobs.backup import back_up
from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables, source_tables
from spark_jobs.definitions.definition import histories
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.expiry import expire_rows
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.visits import merge, sweep_under, visit_source
from spark_jobs.model import TICKS_PER_SECOND, ReportStep, report_each, report_nothing, report_within
from spark_jobs.reads.sql_reads import count_noted_reads
from spark_jobs.session import is_lost_server, working_session
from spark_jobs.sources import Source, find_source
from spark_jobs.storage.coordination.fold import fold
from spark_jobs.storage.coordination.read_counts import keep_reads
from spark_jobs.storage.delta.file_upkeep import (
    Footprint,
    compact_small_files,
    delete_rows_before,
    files_in_use,
    files_stored,
    remove_unused,
)
from spark_jobs.storage.delta.table_notes import noted_table
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import chunks, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import STAGING, shown_marts, staging_table
from spark_jobs.threads import map_requests
from spark_jobs.trace.maintenance import Budget
from spark_jobs.trace.maintenance import maintain as maintain_trace
from spark_jobs.upkeep.chain_compaction import compact_chains
from spark_jobs.upkeep.leftovers import drop_leftovers, footprint_left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAINS_STEP = "chains"
"""The step that compacts chains, which the DAGs of `background_interval` do alone."""

TRACE_BUDGET = Budget(merges=64, updates=64_000_000)
"""The most merges, and the most merged updates, of one maintenance of a trace: enough for a backlog of weeks."""


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """A step that was done, or failed.

    about: the source, or `installation`. counted: the files that `before` and `after` count: those `in use`, which
    reads open, or all that are `stored`. found: the result, or the failure. do: what to do about a failure; else empty.
    """

    about: str
    step: str
    counted: str
    before: Footprint
    after: Footprint
    seconds: float
    found: str
    do: str = ""

    @property
    def failed(self) -> bool:
        """True if somebody has to act."""
        return bool(self.do)

    def row(self) -> list[Any]:
        """The step as a row of a table, in the order of `COLUMNS`."""
        sizes = (self.before.files, self.after.files, self.before.bytes, self.after.bytes)
        return [self.about, self.step, self.counted, *sizes, self.seconds, self.found]

    def to_json(self) -> dict[str, Any]:
        """The step as plain JSON values."""
        return asdict(self)


Cleaning = Callable[[Settings], tuple[str, str]]
"""A function that removes old records; returns what it did, and what somebody has to do about it, if anything."""

COLUMNS = ("about", "step", "counted", "files", "files after", "bytes", "bytes after", "seconds", "result")


def as_text(steps: Sequence[MaintenanceStep]) -> str:
    """The steps as a table of plain text, numbers to the right."""
    rows = [list(COLUMNS), *([f"{v:,}" if isinstance(v, int) else str(v) for v in step.row()] for step in steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    first, last = COLUMNS.index("files"), COLUMNS.index("seconds")
    return "\n".join(
        "  ".join(
            f"{v:>{w}}" if first <= i <= last else f"{v:<{w}}" for i, (v, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


class StepFailed(TidemarkError):
    """Steps of a maintenance failed; the others are done. Fact: `steps`."""

    code = "maintenance_failed"


def step_failed(steps: Sequence[MaintenanceStep]) -> StepFailed:
    """The failure that names these steps, each with what to do."""
    return StepFailed(
        expected="every step of the maintenance to succeed",
        found="; ".join(f"{step.about}, {step.step}: {step.found}" for step in steps),
        consequence="the other steps are done",
        next_step="; ".join(dict.fromkeys(step.do for step in steps)),
        steps=[f"{step.about} {step.step}" for step in steps],
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """A step to do: `work` returns what it did, and what somebody has to do about it, if anything."""

    step: str
    counted: str
    count: Callable[[], Footprint]
    work: Callable[[], tuple[str, str]]

    def run(self, about: str) -> MaintenanceStep:
        """Do the step and report it, also if it fails; raises only errors of the loss of the lake server."""
        start_s, before, do = time.monotonic(), Footprint(), ""
        try:
            before = self.count()
            result, do = self.work()
            after = self.count()
        except Exception as failure:  # whatever failed, the other steps have to be done
            if is_lost_server(failure):
                raise  # the other steps would fail as well: all are done again once the server is back
            after, (result, do) = before, _explain(failure)
        return MaintenanceStep(
            about, self.step, self.counted, before, after, round(time.monotonic() - start_s, 3), result, do
        )


def _explain(failure: Exception) -> tuple[str, str]:
    """The words for a failure, and what to do about it."""
    if isinstance(failure, TidemarkError):
        refusal = f"{failure.code}: expected {failure.expected}, found {failure.found}"
        return refusal, failure.next_step or _AGAIN
    return _last_line(failure), _AGAIN


def _last_line(failure: Exception) -> str:
    """The type of the failure and the last line of its message that is not from a stack trace of Java.

    For a failure in a Python worker that line is the failure itself.
    """
    lines = [line.strip() for line in str(failure).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "...", "JVM stacktrace"))]
    return f"{type(failure).__name__}: {lines[-1] if lines else 'no message'}"


_AGAIN = "run `tidemark maintain` again; if it fails again, `tidemark doctor` says whether the lake is damaged"


def maintain(
    settings: Settings,
    source: str | None,
    name: str,
    clean_airflow: Cleaning | None = None,
    report_step: ReportStep = report_nothing,
    only: str | None = None,
) -> list[MaintenanceStep]:
    """Do the steps of one source, in a session called `name`; if `source` is None, those of the installation.

    `report_step` is called with each step that begins. `only`: the one step of the source to do; None: all.

    Raises:
        ServerUnreachable: the lake server does not answer, or is lost on the way.
    """
    if source is None:
        return list(maintain_installation(settings, clean_airflow, report_step))
    with working_session(settings, name) as session:
        return list(maintain_source(settings, find_source(settings.sources, source), session, report_step, only))


def maintain_source(
    settings: Settings,
    source: Source,
    spark: SparkSession,
    report_step: ReportStep = report_nothing,
    only: str | None = None,
) -> Iterator[MaintenanceStep]:
    """Do the steps of one source, and yield each once it is done; none for a source that never ran.

    `report_step` is called with each step that begins, and with the tables of a step that goes through them. `only`:
    the one step to do; None: all.

    The steps merge chunks and trace, remove expired rows, compact chains, fold histories, remove old results, join
    small files, remove files out of use, and audit the source.
    """
    lake = SparkLake(spark)
    if not lake.folder.is_stored(chunks(source).database, chunks(source).table):
        return
    upkeep = _Upkeep(settings, lake, source, report_step)
    for task in upkeep.tasks():
        if only not in (None, task.step):
            continue
        report_step(f"{source.name}, {task.step}")
        yield task.run(source.name)


class _Upkeep:
    """The steps of one source."""

    def __init__(self, settings: Settings, lake: SparkLake, source: Source, report_step: ReportStep) -> None:
        self._settings, self._lake, self._source, self._report_step = settings, lake, source, report_step
        # tables of an older version lack columns that steps read: each such step refuses by itself
        self._tables = [t for t in source_tables(source) if lake.folder.is_stored(t.database, t.table)]
        self._small = [t for t in self._tables if t not in (chunks(source), updates(source))]

    def tasks(self) -> Iterator[_Task]:
        chunked, traced = [chunks(self._source)], [updates(self._source)]
        closed = [history.table for history in histories(self._source) if history.table in self._tables]
        yield _Task("chunks", "in use", lambda: self._in_use(chunked), self._merge_chunks)
        yield _Task("trace", "in use", lambda: self._in_use(traced), self._merge_trace)
        if self._source.retention.bronze_us is not None:
            yield _Task("expire", "in use", lambda: self._in_use(chunked), self._expire)
        if self._source.keeps_chains and CHAINS in self._tables:
            yield _Task(CHAINS_STEP, "in use", lambda: self._in_use([CHAINS]), self._compact_chains)
        yield _Task("fold", "in use", lambda: self._in_use(closed), self._fold)
        yield _Task("results", "in use", lambda: self._in_use([RESULTS]), self._drop_results)
        yield _Task("compact", "in use", lambda: self._in_use(self._small), self._compact)
        yield _Task("vacuum", "stored", self._footprint_stored, self._vacuum)
        yield _Task("audit", "stored", self._footprint_stored, self._audit)

    def _in_use(self, tables: list[Table]) -> Footprint:
        def count(table: Table) -> Footprint:
            return files_in_use(self._lake.folder.handle(table), self._sharer(table))

        return sum(map_requests(count, tables), Footprint())

    def _footprint_stored(self) -> Footprint:
        tables = [*self._tables, *self._marts()]
        return sum(map_requests(lambda table: files_stored(self._lake.folder.handle(table)), tables), Footprint())

    def _each(self, tables: list[Table], step: str) -> Iterator[Table]:
        """Yield the tables of a step, and report how many of them are done."""
        return report_each(tables, self._report_step, f"{self._source.name}, {step}, tables", len(tables))

    def _marts(self) -> list[Table]:
        """The tables of marts whose newest version is the one that people see.

        Of any other mart people read an earlier version, whose files have to stay.
        """
        versions = shown_marts(self._settings.home, self._source.name).versions
        stored = [(mart, version) for mart, version in versions.items() if self._lake.folder.is_stored(STAGING, mart)]
        return [
            staging_table(mart)
            for mart, version in stored
            if noted_table(self._lake.folder.handle_of(STAGING, mart)).version == version
        ]

    def _sharer(self, table: Table) -> str | None:
        """The source's name if sources share the table, which is then partitioned by source; else None."""
        return self._source.name if "source" in table.partitions else None

    def _merge_chunks(self) -> tuple[str, str]:
        merges = merge(self._settings, self._source, self._lake.spark, vacuum=False)
        return f"{merges.chunks_before} chunks became {merges.chunks_after}" if merges.rows else "nothing to merge", ""

    def _merge_trace(self) -> tuple[str, str]:
        lake, source = self._lake, self._source
        with visit_source(self._settings, source, lake) as lease:
            check_tables(lake, source)
            current_frontiers, current_publication = in_force(lake, source, near=lease.fence.token)
            if current_publication.published_us == 0:
                return "nothing is published yet", ""
            swept = sweep_under(lease, lake, source)
            result = maintain_trace(
                lake,
                source,
                lease.fence,
                "maintain",
                frontiers=current_frontiers,
                publication=current_publication,
                now_us=int(time.time() * TICKS_PER_SECOND),
                budget=TRACE_BUDGET,
            )
        gone = result.removed + len(swept.batches)
        return f"{result.merges} merges of {result.merged_updates} updates, {gone} batches removed", ""

    def _expire(self) -> tuple[str, str]:
        lake, source = self._lake, self._source
        with visit_source(self._settings, source, lake) as lease:
            check_tables(lake, source)
            return expire_rows(lake, source, lease).in_words, ""

    def _compact_chains(self) -> tuple[str, str]:
        lake, source = self._lake, self._source
        with visit_source(self._settings, source, lake) as lease:
            check_tables(lake, source)
            home = self._settings.home
            count_noted_reads(lake, home, self._settings.sources)
            keep_reads(lake, home, source.name)
            outcome = compact_chains(lake, source, lease, home)
        if outcome.waits:
            return "a run is between its stages: chains wait for the next maintenance", ""
        if not outcome.removed:
            return "no chain is due", ""
        return f"{outcome.removed} segments became {outcome.written}, {outcome.merged} deltas in newer checkpoints", ""

    def _fold(self) -> tuple[str, str]:
        lake, source = self._lake, self._source
        with visit_source(self._settings, source, lake) as lease:
            check_tables(lake, source)
            _, current_publication = in_force(lake, source, near=lease.fence.token)
            rows = sum(fold(lake, history, current_publication, lease.fence) for history in histories(source))
        return f"{rows} closed rows folded", ""

    def _drop_results(self) -> tuple[str, str]:
        days = self._settings.result_retention_days
        if RESULTS in self._tables:
            before = datetime.now(UTC) - timedelta(days=days)
            delete_rows_before(self._lake.folder.handle(RESULTS), self._source.name, "recorded_at", before)
        return f"files older than {days} days were removed", ""

    def _compact(self) -> tuple[str, str]:
        # under the lease: no stage of this source replaces a row in a file that is being joined
        with visit_source(self._settings, self._source, self._lake):
            # chains are read one row group at a time, and a joined file's groups would be too large for that
            for table in self._each([table for table in self._small if table != CHAINS], "compact"):
                compact_small_files(self._lake.folder.handle(table), self._sharer(table))
        return "small files are joined", ""

    def _vacuum(self) -> tuple[str, str]:
        with visit_source(self._settings, self._source, self._lake) as lease:
            # files out of use are needed to undo the loss of a publication, so nothing may be lost now
            in_force(self._lake, self._source, near=lease.fence.token)
            for table in self._each([*self._tables, *self._marts()], "vacuum"):
                remove_unused(self._lake.folder.handle(table), self._settings.file_retention)
        return f"files out of use for {self._settings.file_retention_hours} hours were removed", ""

    def _audit(self) -> tuple[str, str]:
        try:
            report_step = report_within(self._report_step, f"{self._source.name}, audit")
            report = audit(self._settings, self._source, self._lake.spark, report_step=report_step)
        except DefinitionChanged as refusal:
            # nothing is damaged: the next run's refusal has the advice
            return f"{refusal.found} in the source file, which no run has accepted: nothing was judged", ""
        if not report.failed:
            return f"{len(report.verdicts)} invariants hold", ""
        names = ", ".join(verdict.name for verdict in report.failed)
        return f"{names} do not hold", f"`tidemark quality {self._source.name} --run {report.run_id}` says which rows"


def maintain_installation(
    settings: Settings, clean_airflow: Cleaning | None = None, report_step: ReportStep = report_nothing
) -> Iterator[MaintenanceStep]:
    """Do the steps that are about no source, and yield each once it is done.

    They make the backup, if one is configured; remove old logs, reports and plans; and remove old records of Airflow,
    if `clean_airflow` is given. `report_step` is called with each step that begins.
    """
    if settings.backup is not None:
        place = settings.backup
        report_step("backup")
        yield _Task("backup", "stored", Footprint, lambda: _add_backup_set(settings, place, report_step)).run(
            "installation"
        )
    report_step("leftovers")
    yield _Task("leftovers", "stored", lambda: footprint_left(settings), lambda: drop_leftovers(settings)).run(
        "installation"
    )
    if clean_airflow is not None:
        report_step("records of Airflow")
        yield _Task("airflow", "stored", Footprint, lambda: clean_airflow(settings)).run("installation")


def _add_backup_set(settings: Settings, place: str, report_step: ReportStep) -> tuple[str, str]:
    report = back_up(settings, place, report_step=report_within(report_step, "backup"))
    return f"set {report.backup_set.name}: {report.copied_files} files, {report.copied_bytes} bytes copied", ""
