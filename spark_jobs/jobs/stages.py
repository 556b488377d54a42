"""A run on one page: `land` prepares it, four stages do their work and have it judged, `publish` shows it.

Each function is a stage. Work is done by functions that return an outcome and judge nothing, and they are all that a
plan rehearses (`WORK`). Judges (`spark_jobs.judging`) look at the rows as they are stored, and raise `GateFailed`. A
repeated stage does the rest of its work, and is judged again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from spark_jobs.gates import preload
from spark_jobs.jobs.compact import RestatedStates, restate_states, state_scope
from spark_jobs.jobs.context import RunStage, Stage
from spark_jobs.jobs.land import Landed, land_files
from spark_jobs.jobs.names import let_names_follow
from spark_jobs.jobs.preparation import prepare_run
from spark_jobs.jobs.publish import publish
from spark_jobs.jobs.seal import advance_trace
from spark_jobs.jobs.upkeep import keep_chunks, keep_trace
from spark_jobs.jobs.window import RestatedWindows, restate_windows
from spark_jobs.judging.judges import (
    judge_landings,
    judge_merges,
    judge_moves,
    judge_states,
    judge_windows,
    keep_promoted_overflows,
)
from spark_jobs.landing.ledger import pending_landings
from spark_jobs.landing.survey import Survey
from spark_jobs.model import STAGES, pluralize

CHECKS = "checks"
"""The step of a stage in which its judges look at the rows that it wrote."""
_MB = 1_000_000


class Outcome(Protocol):
    """The outcome of a stage's work: lines for the stage's summary, and measures for its judges."""

    @property
    def report(self) -> dict[str, Any]:
        """Names and plain JSON values."""
        ...


def land(stage: RunStage) -> None:
    """Prepare the run, land its files, and judge every landing that is not in the trace yet."""
    stage.report_step("looking for files")
    landed = land_files(stage, prepare_run(stage), on_work=partial(_begin_work, stage))
    stage.summary.update(landed.report)
    if not stage.publication.definition:
        let_names_follow(stage.settings, stage.lake, stage.source)
    # landings of an earlier run, too, so that a repeated run meets a failed gate again
    landings = pending_landings(stage.lake, stage.source, stage.frontiers.landed_through)
    stage.summary["landings"] = list(landings)
    if landings:
        stage.report_step(CHECKS)
    judge_landings(stage.judged, landings)


def seal(stage: RunStage) -> None:
    """Append the landed rows to the trace, move the frontiers, and judge the moves."""
    sealed = advance_trace(stage)
    stage.summary.update(sealed.report)
    if sealed.moves:
        stage.report_step(CHECKS)
    judge_moves(stage.judged, sealed.moves)


def window(stage: RunStage) -> None:
    """Write the corrections of silver and judge them; nothing is visible before `publish`."""
    windows = _window(stage)
    stage.summary.update(windows.report)
    if stage.request.promotes is not None and windows.is_promoted:
        keep_promoted_overflows(stage.judged, stage.request.promotes.verdicts)
    if windows.is_due:
        stage.report_step(CHECKS)
        judged = windows.ranges, windows.accounts, windows.overflows
        judge_windows(stage.judged, stage.scope, stage.definitions, *judged)


def compact(stage: RunStage) -> None:
    """Write the corrections of gold and judge them; then keep the trace and the chunks small, and judge merges."""
    states = _compact(stage)
    stage.summary.update(states.report)
    if states.is_due:
        stage.report_step(CHECKS)
        judge_states(stage.judged, state_scope(stage.scope))
    stage.report_step("upkeep of trace and chunks")
    upkeep = keep_trace(stage)
    if upkeep.merges:
        judge_merges(stage.judged, upkeep.before, upkeep.after)
    keep_chunks(stage)


def _begin_work(stage: RunStage, work: Survey) -> None:
    """Name the files of the landing, and import Great Expectations beside it.

    The import takes two seconds, and a run with nothing new needs none.
    """
    stage.report_step(_words(work))
    threading.Thread(target=preload, daemon=True).start()


def _words(work: Survey) -> str:
    """The work of a landing as a step of its stage, such as `reading 2 files, 31.4 MB`."""
    if not work.read:
        return f"taking back {pluralize(len(work.retracted), 'file')}"
    size = sum(file.size for file in work.read)
    return f"reading {pluralize(len(work.read), 'file')}" + (f", {size / _MB:,.0f} MB" if size >= _MB else "")


def _land(stage: Stage) -> Landed:
    return land_files(stage, prepare_run(stage))


def _window(stage: Stage) -> RestatedWindows:
    promotes = stage.request.promotes
    return restate_windows(stage.lake, stage.scope, stage.definitions, stage.fence.token, promotes=promotes)


def _compact(stage: Stage) -> RestatedStates:
    home, promotes = stage.settings.home, stage.request.promotes
    return restate_states(stage.lake, stage.source, stage.scope, stage.fence.token, home=home, promotes=promotes)


BODIES: dict[str, Callable[[RunStage], None]] = dict(zip(STAGES, (land, seal, window, compact, publish), strict=True))
"""The function of each stage, by the stage's name."""

WORK: dict[str, Callable[[Stage], Outcome]] = dict(
    zip(STAGES[:-1], (_land, advance_trace, _window, _compact), strict=True)
)
"""The work of each stage before its judges, by the stage's name; `publish` has none, since it only shows rows."""
