"""The work of the stage `land`: files become chunks, rejects and duplicates; the ledger's commit makes them count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.errors import ParameterError
from spark_jobs.jobs.request import Request
from spark_jobs.landing import ledger
from spark_jobs.landing.hints import copies, files_beside, gone_files
from spark_jobs.landing.landing import Landing
from spark_jobs.landing.ledger import COUNTS, PendingLanding, Version
from spark_jobs.landing.moving import moved_files, refuse_cut_anew
from spark_jobs.landing.reader import LandingFile
from spark_jobs.landing.survey import Survey, survey, survey_retraction
from spark_jobs.sources import Source
from spark_jobs.trace.expiry import check_whole
from spark_jobs.trace.frontiers import SourceFrontiers

LOOKED_BESIDE = 3
"""The most drops without files per run for which neighbouring folders are searched."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The outcome of landing; `report` has the counts of files, rows, rejects and duplicates, and hints for people."""

    report: dict[str, Any]


def land_files(
    landing: Landing,
    files: list[LandingFile],
    frontiers: SourceFrontiers,
    drops: range,
    request: Request,
    *,
    rereads: bool,
    folder: Path | str,
    on_work: Callable[[Survey], None] = lambda _: None,
) -> Landed:
    """Land those files that are not in the ledger as they are now, and empty drops.

    Args:
        landing: writes the rows.
        files: the files of `drops`, and of all landed drops if they are read anew (`rereads`).
        frontiers: those with which the run begins.
        drops: the drops of the run's interval.
        request: the run's task with them.
        folder: the landing directory, in which files are looked for that may be misplaced.
        on_work: is called with the work before the first file is read or taken back.
    """
    lake, source = landing.lake, landing.source
    # an extraction may change files of other drops
    read_drops = None if rereads or source.extract is not None else drops
    ledger_state = ledger.read_ledger(lake, source, read_drops, frontiers.landed_through)
    moved = moved_files(source, files, ledger_state.files)
    if moved:
        lake.move_files(source.name, moved)
        ledger_state = ledger.read_ledger(lake, source, read_drops, frontiers.landed_through)
    work = _survey(source, files, ledger_state.files, drops, request, rereads=rereads)
    refuse_cut_anew(lake, source, work, files)
    drops_of_files = [file.seq_no for file in work.read] + [version.seq_no for version in work.retracted]
    check_whole(source, frontiers, drops_of_files)
    pending = ledger_state.pending.values()
    empty = _empty_drops(drops, files, pending, frontiers) if request.takes_drops else []
    report = _count_resumed(pending)
    report.update(
        files=report["resumed_files"] + len(work.read),
        known_files=work.unchanged,
        changed_files=work.changed,
        moved_files=[list(pair) for pair in sorted(moved.items())],
        retracted_files=sorted(before.path for before in work.retracted),
        empty_drops=[source.drops.label(n) for n in empty],
    )
    if source.extract is None and request.takes_drops:
        gone = gone_files(files, work.before) if request.only_file is None else []
        report.update(_hints(folder, source, work, ledger_state.all_files, empty, gone))
    rows = [ledger.empty_drop_row(source, n) for n in empty]
    if work.has_work:
        on_work(work)
        landed = landing.land(work)
        report.update({name: report[name] + n for name, n in landed.totals.items()})
        rows += landed.rows
    if rows:
        ledger.write(lake, rows, landing.fence, landing.run_id)
    return Landed(report)


def _hints(
    folder: Path | str, source: Source, work: Survey, landed: Mapping[str, Version], empty: list[int], gone: list[str]
) -> dict[str, Any]:
    """The files that look misplaced, by the names under which the summary lists them.

    `landed`: all landed files of the source. `empty`: drops without files. `gone`: landed files that are not there.
    """
    new = [file for file in work.read if file.path not in work.before]
    twins = copies(new, landed.values())
    beside = [hint for n in empty[:LOOKED_BESIDE] for hint in files_beside(folder, source, n)]
    hints = {"gone_files": gone, "copied_files": [list(pair) for pair in twins], "files_beside": beside}
    return {name: listed for name, listed in hints.items() if listed}


def _survey(
    source: Source,
    files: list[LandingFile],
    versions: dict[str, Version],
    drops: range,
    request: Request,
    *,
    rereads: bool,
) -> Survey:
    chosen = request.chosen_files
    if request.retract:
        return survey_retraction(files, versions, _to_retract(source, versions, drops, request))
    again = None if rereads else (request.replay or ())
    if rereads and chosen is not None:
        chosen = chosen | versions.keys()
    return survey(files, versions, chosen=chosen, again=again, brought_back=request.only_file is not None)


def _to_retract(source: Source, versions: dict[str, Version], drops: range, request: Request) -> frozenset[str]:
    chosen = request.chosen_files
    paths = frozenset(versions) if chosen is None else chosen & versions.keys()
    if paths:
        return paths
    raise ParameterError(
        expected=f"a landed file of {source.name} in {', '.join(map(source.drops.label, drops))}",
        found="none" if request.only_file is None else repr(request.only_file),
        consequence="nothing was taken back",
        next_step=f"name one of {', '.join(sorted(versions)[:5])}" if versions else "name a drop that has landed",
    )


def _count_resumed(pending: Collection[PendingLanding]) -> dict[str, Any]:
    """The counts of landings that earlier runs did not publish: this run publishes them, so they count as its own."""
    totals = {name: sum(landing.counts[name] for landing in pending) for name in COUNTS}
    resumed = {f"resumed_{name}": totals[name] for name in ("rows", "rows_back")}
    return {**totals, "resumed_files": sum(landing.files for landing in pending), **resumed}


def _empty_drops(
    drops: range, files: list[LandingFile], pending: Collection[PendingLanding], frontiers: SourceFrontiers
) -> list[int]:
    """The drops that are run for the first time and have no file."""
    with_files = {f.seq_no for f in files}.union(*(landing.drops for landing in pending))
    return [n for n in drops if n not in with_files and not frontiers.has_landed(range(n, n + 1))]
