"""The work of the stage `land`: files become chunks, rejects and duplicates; the ledger's commit makes them count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import ParameterError
from spark_jobs.jobs.context import Stage
from spark_jobs.landing import ledger
from spark_jobs.landing.hints import copies, files_beside, gone_files
from spark_jobs.landing.landing import Landing
from spark_jobs.landing.ledger import COUNTS, PendingLanding, Version
from spark_jobs.landing.moving import moved_files, refuse_cut_anew
from spark_jobs.landing.reader import LandingFile
from spark_jobs.landing.survey import Survey, survey, survey_retraction

LOOKED_BESIDE = 3
"""The most drops without files per run for which neighbouring folders are searched."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The outcome of landing; `report` has the counts of files, rows, rejects and duplicates, and hints for people."""

    report: dict[str, Any]


def land_files(stage: Stage, files: list[LandingFile], on_work: Callable[[Survey], None] = lambda _: None) -> Landed:
    """Land those files that are not in the ledger as they are now, and empty drops.

    `files`: the files of the interval's drops, and of all landed ones if they are read anew. `on_work` is called with
    the work before the first file is read or taken back.
    """
    # an extraction may change files of other drops
    drops = None if stage.rereads or stage.source.extract is not None else stage.drops
    ledger_state = ledger.read_ledger(stage.lake, stage.source, drops, stage.frontiers.landed_through)
    moved = moved_files(stage.source, files, ledger_state.files)
    if moved:
        stage.lake.move_files(stage.source.name, moved)
        ledger_state = ledger.read_ledger(stage.lake, stage.source, drops, stage.frontiers.landed_through)
    work = _survey(stage, files, ledger_state.files)
    refuse_cut_anew(stage.lake, stage.source, work, files)
    empty = _empty_drops(stage, files, ledger_state.pending.values())
    report = _count_resumed(ledger_state.pending.values())
    report.update(
        files=report["resumed_files"] + len(work.read),
        known_files=work.unchanged,
        changed_files=work.changed,
        moved_files=[list(pair) for pair in sorted(moved.items())],
        retracted_files=sorted(before.path for before in work.retracted),
        empty_drops=[stage.source.drops.label(n) for n in empty],
    )
    report.update(_hints(stage, files, work, ledger_state.all_files, empty))
    rows = [ledger.empty_drop_row(stage.source, n) for n in empty]
    if work.has_work:
        on_work(work)
        landed = Landing(stage.lake, stage.source, stage.fence, stage.run_id).land(work)
        report.update({name: report[name] + n for name, n in landed.totals.items()})
        rows += landed.rows
    if rows:
        ledger.write(stage.lake, rows, stage.fence, stage.run_id)
    return Landed(report)


def _hints(
    stage: Stage, files: list[LandingFile], work: Survey, landed: Mapping[str, Version], empty: list[int]
) -> dict[str, Any]:
    """The files that look misplaced, by the names under which the summary lists them.

    None for an extracted source, or for a run about landed files alone. `landed`: all landed files of the source.
    """
    request, landing = stage.request, stage.settings.landing
    if stage.source.extract is not None or request.retract or not request.takes_drops:
        return {}
    new = [file for file in work.read if file.path not in work.before]
    gone = [] if request.chosen_files is not None else gone_files(files, work.before)
    twins = copies(new, landed.values())
    beside = [hint for n in empty[:LOOKED_BESIDE] for hint in files_beside(landing, stage.source, n)]
    hints = {"gone_files": gone, "copied_files": [list(pair) for pair in twins], "files_beside": beside}
    return {name: listed for name, listed in hints.items() if listed}


def _survey(stage: Stage, files: list[LandingFile], versions: dict[str, Version]) -> Survey:
    chosen = stage.request.chosen_files
    if stage.request.retract:
        return survey_retraction(files, versions, _to_retract(stage, versions))
    again = None if stage.rereads else (stage.request.replay or ())
    if stage.rereads and chosen is not None:
        chosen = chosen | versions.keys()
    return survey(files, versions, chosen=chosen, again=again, brought_back=stage.request.only_file is not None)


def _to_retract(stage: Stage, versions: dict[str, Version]) -> frozenset[str]:
    chosen = stage.request.chosen_files
    paths = frozenset(versions) if chosen is None else chosen & versions.keys()
    if paths:
        return paths
    raise ParameterError(
        expected=f"a landed file of {stage.source.name} in {', '.join(map(stage.source.drops.label, stage.drops))}",
        found="none" if stage.request.only_file is None else repr(stage.request.only_file),
        consequence="nothing was taken back",
        next_step=f"name one of {', '.join(sorted(versions)[:5])}" if versions else "name a drop that has landed",
    )


def _count_resumed(pending: Collection[PendingLanding]) -> dict[str, Any]:
    """The counts of landings that earlier runs did not publish: this run publishes them, so they count as its own."""
    totals = {name: sum(landing.counts[name] for landing in pending) for name in COUNTS}
    resumed = {f"resumed_{name}": totals[name] for name in ("rows", "rows_back")}
    return {**totals, "resumed_files": sum(landing.files for landing in pending), **resumed}


def _empty_drops(stage: Stage, files: list[LandingFile], pending: Collection[PendingLanding]) -> list[int]:
    """The drops of the interval that are run for the first time and have no file."""
    if not stage.request.takes_drops:
        return []
    with_files = {f.seq_no for f in files}.union(*(landing.drops for landing in pending))
    return [n for n in stage.drops if n not in with_files and not stage.frontiers.has_landed(range(n, n + 1))]
