"""Plan: what a run would change, worked out by the stages themselves over a lake that keeps its writes to itself.

Nothing is written: no table, no file, no lease. Since it is the same code over the same rows, the previewed difference
is the changelog that the run will write, as long as what the plan was made on (`Base`) still stands; a run that is
given the plan checks that first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import ensure_source
from spark_jobs.definitions.versions import changed_parts
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.extraction import forget_plans
from spark_jobs.jobs.base import Base
from spark_jobs.jobs.beginning import begun_frontiers, gap_of
from spark_jobs.jobs.compact import restate_states
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.estimate import estimate_seconds
from spark_jobs.jobs.land import base_of_run, land_files, listed_files
from spark_jobs.jobs.replay import Asked, replay_of
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.seal import advance_trace
from spark_jobs.jobs.window import restate_windows
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import COUNTS, versions
from spark_jobs.model import FIRST, STAGES
from spark_jobs.restatement.preview import Difference, differences
from spark_jobs.sources import Source
from spark_jobs.storage import fence, publication
from spark_jobs.storage.overlay import OverlayLake
from spark_jobs.storage.records import Rows
from spark_jobs.storage.tables import FILES
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import SealGap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REHEARSED = dict(zip(STAGES, (land_files, advance_trace, restate_windows, restate_states), strict=False))
"""What each stage does before its gate; `publish` would only show it."""

RUN_ID = "plan"


@dataclass(frozen=True, slots=True)
class PlannedDrop:
    """One interval: its files by what they are to the ledger, their bytes, and the rows that would land, or go back."""

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
        """As the command's document has it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def figures(self) -> tuple[Any, ...]:
        """The drop and its numbers as people see them: files by kind, bytes, rows that land and that go back."""
        files = (len(paths) for paths in (self.new, self.changed, self.known, self.retracted))
        return (self.drop, *files, self.bytes, self.rows, self.rejects, self.duplicates, self.rows_back)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do. `estimate_s` is None before there is a past run to go by. `gap`: the refusal of a run that
    is not told to pass drops which were never run, if there are any."""

    base: Base
    drops: list[PlannedDrop]
    changed_definition: list[str]
    tables: list[Difference]
    estimate_s: float | None
    stages: list[dict[str, Any]] = field(default_factory=list)
    gap: SealGap | None = None

    @property
    def plan_id(self) -> str:
        """What the plan is called."""
        return self.base.plan_id

    @property
    def changes_nothing(self) -> bool:
        """Whether every published row would stay as it is."""
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
    """Work out what a run of `source` over `[lo, hi)` would change; waits for a run that is at work on the source.

    `request` says what the run is about; a changed definition and a gap are shown, not refused. `sample` rows are shown
    per table, 0 shows all.

    Raises:
        TidemarkError: what the run would be refused for, too.
    """
    with rehearse_run(settings, source, interval_us, spark, request) as rehearsal:
        return _plan(rehearsal, sample)


@dataclass(frozen=True)
class Rehearsal:
    """A run up to its last stage but one, in a lake that keeps its writes to itself.

    `before`: the first stage as it was before it did anything, with the files of its drops, and those of the ledger.
    `stages`: those that were done, in their order, under `tokens`. `past`: (rows, seconds) of the last whole runs of
    the source.
    """

    lake: OverlayLake
    base: Base
    before: Stage
    files: Sequence[LandingFile]
    known: Collection[str]
    stages: Sequence[Stage]
    tokens: range
    past: Sequence[tuple[int, float]]


@contextmanager
def rehearse_run(
    settings: Settings, source: Source, interval_us: tuple[int, int], spark: SparkSession, request: Request
) -> Iterator[Rehearsal]:
    """Do what a run would; a changed definition and a gap are accepted. Runs of the source wait meanwhile.

    Raises:
        TidemarkError: what the run would be refused for, too.
    """
    lake, rehearsed = OverlayLake(spark), replace(request, accept_definition=True, pass_gap=True)
    with fence.hold_still(settings.home / "leases", source=source.name) as lease:
        begun = lease.fence.token

        def stage(name: str) -> Stage:
            lease.next_token()
            return Stage(name, settings, source, *interval_us, RUN_ID, lake, lease, rehearsed)

        try:
            before = stage(FIRST)
            files = listed_files(before)
            base, known = base_of_run(before, files), set(versions(lake, source))
            stages: list[Stage] = []
            for name, body in REHEARSED.items():
                stages.append(stage(name))
                body(stages[-1])
            tokens = range(begun + 1, lease.fence.token + 1)
            yield Rehearsal(lake, base, before, files, known, stages, tokens, lease.past)
        finally:
            forget_plans(settings, source)
            lake.close()


def gap_of_run(source: Source, interval_us: tuple[int, int], spark: SparkSession) -> SealGap | None:
    """The refusal that a run of `source` over `[lo, hi)` meets now if it is not told to pass drops that were never run;
    None if there are none. Writes nothing."""
    lake = OverlayLake(spark)
    try:
        ensure_source(lake, source)
        lo_us, hi_us = interval_us
        standing, published = frontiers.load(lake, source), publication.load(lake, source)
        begun = begun_frontiers(lake, source, standing, published, published.token)
        return gap_of(lake, source, begun, source.drops.spanned(lo_us, hi_us))
    finally:
        lake.close()


def plan_replay(
    settings: Settings,
    source: Source,
    interval_us: tuple[int, int],
    spark: SparkSession,
    *,
    file: str | None = None,
    sample: int,
) -> Plan:
    """Work out what replaying the files of these drops that have open records in quarantine, or the one file, would
    change: what `tidemark quarantine replay` would do for them.

    Raises:
        ParameterError: there is no such file.
    """
    lo_us, hi_us = interval_us
    found = replay_of(spark, source, Asked(source.drops.spanned(lo_us, hi_us), file))
    if found is None:
        raise ParameterError(
            expected="files with open records in quarantine, of drops that have landed",
            found="none",
            consequence="nothing was planned",
            next_step=f"`tidemark quarantine list {source.name}` names them",
        )
    request = Request(replay=found.files)
    return plan_run(settings, source, found.interval_us(source), spark, request=request, sample=sample)


def _plan(rehearsal: Rehearsal, sample: int) -> Plan:
    lake, before = rehearsal.lake, rehearsal.before
    source, request = before.source, before.request
    landed, reported = lake.recorded(FILES), rehearsal.stages[0].summary
    chosen = request.chosen_files
    about = [f for f in rehearsal.files if chosen is None or f.path in chosen]
    of_files = {row["seq_no"] for row in landed} | {f.seq_no for f in about}
    shown = sorted({*before.drops, *of_files} if request.takes_drops else of_files)
    changed, retracted = (set(reported[f"{what}_files"]) for what in ("changed", "retracted"))
    drops = [
        _drop(source, n, [f for f in about if f.seq_no == n], landed, rehearsal.known, changed, retracted)
        for n in shown
    ]
    return Plan(
        rehearsal.base,
        drops,
        changed_parts(source, before.publication),
        differences(lake, source, sample),
        estimate_seconds(rehearsal.past, sum(row["rows"] + (row["rows_back"] or 0) for row in landed)),
        [{"stage": stage.name, **stage.summary} for stage in rehearsal.stages],
        before.gap,
    )


def _drop(
    source: Source,
    seq_no: int,
    files: list[Any],
    landed: Rows,
    known: Collection[str],
    changed: set[str],
    retracted: set[str],
) -> PlannedDrop:
    own = [row for row in landed if row["seq_no"] == seq_no and row.get("path") is not None]
    landing = {row["path"] for row in own}
    read = (landing - {*known}) | changed
    return PlannedDrop(
        source.drops.label(seq_no),
        sorted(landing - {*known}),
        sorted(landing & changed),
        sorted(file.path for file in files if file.path not in read | retracted),
        sorted(landing & retracted),
        sum(row["bytes"] for row in own if row["path"] in read),
        *(sum(row[column] for row in own) for column in COUNTS),
    )
