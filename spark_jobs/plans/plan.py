"""Plans: the changes that a run would make, computed by the stages themselves over a lake that keeps its writes apart.

No table, file or lease is written. A plan and its run are the same code over the same rows. So the previewed difference
is the changelog that the run will write, as long as the plan's base (`Base`) has not changed. A run that is given a
plan checks that first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import ensure_source
from spark_jobs.definitions.versions import changed_parts
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.extraction import forget_plans
from spark_jobs.jobs.base import Base
from spark_jobs.jobs.beginning import gap_of, initial_frontiers
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.estimate import estimate_seconds
from spark_jobs.jobs.preparation import files_to_land
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.stages import WORK
from spark_jobs.jobs.window import RestatedWindows
from spark_jobs.judging.overflows import report_windows
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import COUNTS, versions
from spark_jobs.model import FIRST, Report
from spark_jobs.plans.replay import Asked, replay_of
from spark_jobs.restatement.preview import TableDifference, differences
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import leases, publication
from spark_jobs.storage.delta.records import Rows
from spark_jobs.storage.descriptions.tables import FILES
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.gap import SealGap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_ID = "plan"


@dataclass(frozen=True, slots=True)
class PlannedDrop:
    """One drop in a plan: its files, compared with the ledger, and the counts of rows that a run would change.

    `new`, `changed`, `known`, `retracted`: paths. `bytes`: size of the files that would be read. `rows`, `rejects` and
    `duplicates` would land; those with `_back` would be taken back.
    """

    drop: str
    new: list[str]
    changed: list[str]
    known: list[str]
    retracted: list[str]
    bytes: int
    rows: int
    rejects: int
    duplicates: int
    rows_back: int
    rejects_back: int
    duplicates_back: int

    def to_json(self) -> dict[str, Any]:
        """The drop as the command's JSON document has it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def figures(self) -> tuple[Any, ...]:
        """The drop and its numbers as people see them: files by kind, bytes, rows that land and that are taken back."""
        files = (len(paths) for paths in (self.new, self.changed, self.known, self.retracted))
        return (self.drop, *files, self.bytes, self.rows, self.rejects, self.duplicates, self.rows_back)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: its drops, and the differences of the published tables.

    `estimate_s`: the estimated seconds of the run; None without past runs. `gap`: the error for a run that would move
    the seal past drops that were never run; None if this run would not.
    """

    base: Base
    drops: list[PlannedDrop]
    changed_definition: list[str]
    tables: list[TableDifference]
    estimate_s: float | None
    stages: list[dict[str, Any]] = field(default_factory=list)
    gap: SealGap | None = None

    @property
    def plan_id(self) -> str:
        """The name of the plan: a hash of its base."""
        return self.base.plan_id

    @property
    def changes_nothing(self) -> bool:
        """True if every published row would stay as it is."""
        return not any(table.rows for table in self.tables)


def plan_run(
    settings: Settings,
    source: Source,
    interval_us: tuple[int, int],
    spark: SparkSession,
    *,
    request: Request = ALL,
    sample: int,
) -> Plan:
    """Plan a run of `source` over `[lo, hi)` (microseconds); waits for a stage that is at work on the source.

    `request` is the run's task. A changed definition and a gap are shown, not refused. `sample` rows are shown per
    table, 0 shows all.

    Raises:
        TidemarkError: the run would be refused for the same reason.
    """
    with rehearse_run(settings, source, interval_us, spark, request) as rehearsal:
        return _plan(rehearsal, sample)


@dataclass(frozen=True)
class Rehearsal:
    """A run up to its last stage but one, in a lake that keeps its writes apart.

    `before`: the first stage as it was before it did anything. `files`: the files of its drops. `landed_paths`: those
    in the ledger. `reports`: those of the stages that were done, by name, in order. `tokens`: the tokens of these
    stages. `frontiers`: those up to which the run would publish. `verdicts`: warnings about its rows. `past`: (rows,
    seconds) of the last whole runs of the source.
    """

    lake: OverlayLake
    base: Base
    before: Stage
    files: Sequence[LandingFile]
    landed_paths: Collection[str]
    reports: Mapping[str, Report]
    tokens: range
    frontiers: SourceFrontiers
    verdicts: Sequence[Mapping[str, Any]]
    past: Sequence[tuple[int, float]]


@contextmanager
def rehearse_run(
    settings: Settings, source: Source, interval_us: tuple[int, int], spark: SparkSession, request: Request
) -> Iterator[Rehearsal]:
    """Rehearse a run: do its stages without writing. A changed definition and a gap are accepted.

    Runs of the source wait meanwhile.

    Raises:
        TidemarkError: the run would be refused for the same reason.
    """
    lake, rehearsed = OverlayLake(SparkLake(spark)), replace(request, accept_definition=True, pass_gap=True)
    with leases.hold_still(settings.home / "leases", source=source.name) as lease:
        first_token = lease.fence.token

        def stage(name: str) -> Stage:
            lease.next_token()
            return Stage(name, settings, source, *interval_us, RUN_ID, lake, lease, rehearsed)

        try:
            before = stage(FIRST)
            files = files_to_land(before).files
            base, landed_paths = before.base(files), set(versions(lake, source))
            reports: dict[str, Report] = {}
            for name, work in WORK.items():
                last = stage(name)
                outcome = work(last)
                reports[name] = outcome.report
                if isinstance(outcome, RestatedWindows):
                    reports[name] |= report_windows(lease, outcome.overflows).report
            yield Rehearsal(
                lake,
                base,
                before,
                files,
                landed_paths,
                reports,
                tokens=range(first_token + 1, lease.fence.token + 1),
                frontiers=last.frontiers,
                verdicts=lease.verdicts,
                past=lease.past,
            )
        finally:
            forget_plans(settings, source)
            lake.close()


def gap_of_run(source: Source, interval_us: tuple[int, int], spark: SparkSession) -> SealGap | None:
    """The error for a run of `source` over `[lo, hi)` that would move the seal past drops that were never run.

    None if this run would not. Writes nothing.
    """
    lake = OverlayLake(SparkLake(spark))
    try:
        ensure_source(lake, source)
        lo_us, hi_us = interval_us
        current_frontiers, published = frontiers.load(lake, source), publication.load(lake, source)
        initial = initial_frontiers(lake, source, current_frontiers, published, published.token)
        return gap_of(lake, source, initial, source.drops.drops_spanned(lo_us, hi_us))
    finally:
        lake.close()


def plan_replay(
    settings: Settings,
    source: Source,
    interval_us: tuple[int, int],
    spark: SparkSession,
    *,
    file: str | None = None,
    rule: str | None = None,
    sample: int,
) -> Plan:
    """Plan a replay: a run that reads files again that have open records in quarantine.

    These are the files of the interval's drops, or the one `file`, or those with records that `rule` rejected.
    `tidemark quarantine replay` does such a run.

    Raises:
        ParameterError: there is no such file.
    """
    lo_us, hi_us = interval_us
    replay = replay_of(spark, source, Asked(source.drops.drops_spanned(lo_us, hi_us), file, rule))
    if replay is None:
        raise ParameterError(
            expected="files with open records in quarantine, of drops that have landed",
            found="none",
            consequence="nothing was planned",
            next_step=f"`tidemark quarantine list {source.name}` names them",
        )
    request = Request(replay=replay.files)
    return plan_run(settings, source, replay.interval_us(source), spark, request=request, sample=sample)


def _plan(rehearsal: Rehearsal, sample: int) -> Plan:
    lake, before = rehearsal.lake, rehearsal.before
    source, request = before.source, before.request
    landed, reported = lake.recorded_rows(FILES), rehearsal.reports[FIRST]
    chosen = request.chosen_files
    about = [f for f in rehearsal.files if chosen is None or f.path in chosen]
    of_files = {row["seq_no"] for row in landed} | {f.seq_no for f in about}
    seq_nos = sorted({*before.drops, *of_files} if request.takes_drops else of_files)
    changed, retracted = (set(reported[f"{what}_files"]) for what in ("changed", "retracted"))
    drops = [
        _drop(source, n, [f for f in about if f.seq_no == n], landed, rehearsal.landed_paths, changed, retracted)
        for n in seq_nos
    ]
    return Plan(
        rehearsal.base,
        drops,
        changed_parts(source, before.publication),
        differences(lake, source, sample),
        estimate_seconds(rehearsal.past, sum(row["rows"] + (row["rows_back"] or 0) for row in landed)),
        [{"stage": name, **report} for name, report in rehearsal.reports.items()],
        before.gap,
    )


def _drop(
    source: Source,
    seq_no: int,
    files: list[Any],
    landed: Rows,
    landed_paths: Collection[str],
    changed: set[str],
    retracted: set[str],
) -> PlannedDrop:
    ledger_rows = [row for row in landed if row["seq_no"] == seq_no and row.get("path") is not None]
    landing = {row["path"] for row in ledger_rows}
    read = (landing - {*landed_paths}) | changed
    return PlannedDrop(
        source.drops.label(seq_no),
        sorted(landing - {*landed_paths}),
        sorted(landing & changed),
        sorted(file.path for file in files if file.path not in read | retracted),
        sorted(landing & retracted),
        sum(row["bytes"] for row in ledger_rows if row["path"] in read),
        *(sum(row[column] for row in ledger_rows) for column in COUNTS),
    )
