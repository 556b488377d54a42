"""A run on one page: `land` prepares it, four stages do their work and have it judged, `publish` shows it.

Each function is a stage. Work is done by functions that return an outcome and judge nothing, and they are all that a
plan rehearses (`WORK`). Judges (`spark_jobs.judging`) look at the rows as they are stored, and raise `GateFailed`. A
repeated stage does the rest of its work, and is judged again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.meaning import weighs_traffic
from spark_jobs.gates import preload
from spark_jobs.jobs.compact import RestatedStates, restate_states, state_scope
from spark_jobs.jobs.context import RunStage, Stage
from spark_jobs.jobs.land import Landed, land_files
from spark_jobs.jobs.names import let_names_follow
from spark_jobs.jobs.preparation import prepare_run
from spark_jobs.jobs.publish import publish
from spark_jobs.jobs.seal import Sealed, advance_trace
from spark_jobs.jobs.window import RestatedWindows, restate_windows
from spark_jobs.judging.gate import Judgement
from spark_jobs.judging.judges import (
    judge_landings,
    judge_merges,
    judge_moves,
    judge_states,
    judge_windows,
    keep_promoted_overflows,
)
from spark_jobs.judging.metrics import keep_trace_size
from spark_jobs.judging.pressures import report_pressures
from spark_jobs.landing.indexing import index_chunks
from spark_jobs.landing.landing import Landing
from spark_jobs.landing.ledger import pending_landings
from spark_jobs.landing.merging import merge_due
from spark_jobs.landing.survey import Survey
from spark_jobs.model import STAGES, TICKS_PER_SECOND, Report, pluralize
from spark_jobs.reads.sql_reads import count_noted_reads
from spark_jobs.storage.coordination.read_counts import keep_reads
from spark_jobs.trace.expiry import first_whole_drop
from spark_jobs.trace.frontiers import published_frontiers
from spark_jobs.trace.maintenance import maintain

CHECKS = "checks"
"""The step of a stage in which its judges look at the rows that it wrote."""
_MB = 1_000_000


class Outcome(Protocol):
    """The outcome of a stage's work: lines for the stage's report, and measures for its judges."""

    @property
    def report(self) -> Report:
        """The lines of the report."""
        ...


def land(stage: RunStage) -> Report:
    """Prepare the run, land its files, and judge every landing that is not in the trace yet."""
    stage.report_step("looking for files")
    landed = _land(stage, on_work=partial(_begin_work, stage))
    index_chunks(stage.lake, stage.source)
    if not stage.publication.definition:
        # the rows of a first run can be read by name although it has not published yet, or never will
        let_names_follow(stage.settings, stage.lake, stage.source)
    # landings of an earlier run, too, so that a repeated run meets a failed gate again
    landings = pending_landings(stage.lake, stage.source, stage.frontiers.landed_through)
    if landings:
        stage.report_step(CHECKS)
    judgement = judge_landings(stage.judged, stage.lake, landings)
    return {**landed.report, "landings": list(landings), **judgement.report}


def seal(stage: RunStage) -> Report:
    """Append the landed rows to the trace, move the frontiers, and judge the moves."""
    sealed = _seal(stage)
    if sealed.moves:
        stage.report_step(CHECKS)
    return sealed.report | judge_moves(stage.judged, stage.lake, sealed.moves).report


def window(stage: RunStage) -> Report:
    """Write the corrections of silver and judge them; nothing is visible before `publish`."""
    windows = _window(stage)
    if stage.request.promotes is not None and windows.is_promoted:
        keep_promoted_overflows(stage.lease, stage.request.promotes.verdicts)
    if not windows.is_due:
        return windows.report
    stage.report_step(CHECKS)
    outcome = windows.ranges, windows.accounts, windows.overflows
    judgement = judge_windows(stage.judged, stage.lake, windows.scope, definitions(stage.source), *outcome)
    pressures = {f"silver.{name}": pressure for name, pressure in windows.pressures.items()}
    return windows.report | judgement.plus(report_pressures(stage.lease, "silver", pressures)).report


def compact(stage: RunStage) -> Report:
    """Write the corrections of gold and judge them; then keep the trace and the chunks small, and judge merges."""
    lake, source, fence, publication = stage.lake, stage.source, stage.fence, stage.publication
    if weighs_traffic(source):
        count_noted_reads(lake, stage.settings.home, stage.settings.sources)
        keep_reads(lake, stage.settings.home, source.name)
    states, judgement = _compact(stage), Judgement()
    if states.is_due:
        stage.report_step(CHECKS)
        judgement = judge_states(stage.judged, lake, state_scope(stage.scope))
        pressures = {f"gold.{source.name}": pressure for pressure in states.pressures.values()}
        judgement = judgement.plus(report_pressures(stage.lease, "gold", pressures))
    report = states.report | judgement.report
    # in every run, also if nothing new has landed
    stage.report_step("upkeep of trace and chunks")
    published = published_frontiers(lake, source, publication)
    frontiers, now_us = stage.frontiers, int(time.time() * TICKS_PER_SECOND)
    upkeep = maintain(lake, source, fence, stage.run_id, frontiers=frontiers, publication=publication, now_us=now_us)
    report |= {"merges": upkeep.merges, "merged_updates": upkeep.merged_updates, "removed_batches": upkeep.removed}
    if upkeep.merges:
        report |= judgement.plus(judge_merges(stage.judged, lake, upkeep.before, upkeep.after)).report
    if upkeep.after.arrangement.handles() != published.arrangement.handles():
        keep_trace_size(stage.judged, lake, upkeep.after.arrangement)
    # this run's chunks are not published yet: a run that repeats it finds them by their landings
    first_whole = first_whole_drop(source, frontiers.rows_from_us)
    chunks = merge_due(lake, source, fence.token, published.landed_through, first_whole)
    if chunks.rows:
        index_chunks(lake, source)
    return report | {"chunks_before": chunks.chunks_before, "chunks_after": chunks.chunks_after}


def _begin_work(stage: RunStage, work: Survey) -> None:
    """Name the files of the landing, and import Great Expectations beside it.

    The import takes two seconds. A run with nothing new needs none, nor do gates on a lake of files; checks of a source
    have imported it already.
    """
    stage.report_step(_words(work))
    if not stage.judged.plainly:
        threading.Thread(target=preload, daemon=True).start()


def _words(work: Survey) -> str:
    """The work of a landing as a step of its stage, such as `reading 2 files, 31.4 MB`."""
    if not work.read:
        return f"taking back {pluralize(len(work.retracted), 'file')}"
    size = sum(file.size for file in work.read)
    return f"reading {pluralize(len(work.read), 'file')}" + (f", {size / _MB:,.0f} MB" if size >= _MB else "")


def _land(stage: Stage, on_work: Callable[[Survey], None] = lambda _: None) -> Landed:
    prepared = prepare_run(stage)
    landed = land_files(
        Landing(stage.lake, stage.source, stage.fence, stage.run_id),
        prepared.files,
        stage.frontiers,
        stage.drops,
        stage.request,
        rereads=stage.rereads,
        folder=stage.settings.landing,
        on_work=on_work,
    )
    return Landed({**prepared.report, **landed.report})


def _seal(stage: Stage) -> Sealed:
    stage.check_gap()
    drops = stage.drops if stage.request.takes_drops else range(0)
    return advance_trace(stage.lake, stage.scope, stage.fence, stage.run_id, drops)


def _window(stage: Stage) -> RestatedWindows:
    promotes = stage.request.promotes
    return restate_windows(stage.lake, stage.scope, definitions(stage.source), stage.fence.token, promotes=promotes)


def _compact(stage: Stage) -> RestatedStates:
    home, promotes = stage.settings.home, stage.request.promotes
    return restate_states(stage.lake, stage.source, stage.scope, stage.fence.token, home=home, promotes=promotes)


BODIES: dict[str, Callable[[RunStage], Report]] = dict(zip(STAGES, (land, seal, window, compact, publish), strict=True))
"""The function of each stage, by the stage's name. It returns the stage's report."""

WORK: dict[str, Callable[[Stage], Outcome]] = dict(zip(STAGES[:-1], (_land, _seal, _window, _compact), strict=True))
"""The work of each stage before its judges, by the stage's name; `publish` has none, since it only shows rows."""
