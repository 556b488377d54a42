"""The stage `land`: the drops' files become chunks, rejects and duplicates; the ledger's commit makes them count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from spark_jobs.definitions.catalog import ensure_source, widen_tables
from spark_jobs.definitions.versions import check_version
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.extraction import Extraction
from spark_jobs.gates.measures import bronze as measure_bronze
from spark_jobs.jobs.base import Base, base_of
from spark_jobs.jobs.checks import check_landed, verify_checks
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.jobs.metrics import keep_metrics
from spark_jobs.jobs.names import check_names, let_names_follow
from spark_jobs.landing import ledger
from spark_jobs.landing.erasures import check_finished
from spark_jobs.landing.hints import copies, files_beside, gone_files
from spark_jobs.landing.landing import Landing
from spark_jobs.landing.ledger import COUNTS, PendingLanding, Version
from spark_jobs.landing.moving import moved_files, refuse_cut_anew
from spark_jobs.landing.reader import LandingFile, list_drop_files
from spark_jobs.landing.survey import Survey, survey, survey_retraction
from spark_jobs.storage.coordination.source_changes import check_unchanging
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.trace.horizon import check_drops

LOOKED_BESIDE = 3
"""The most drops without files per run for which neighbouring folders are searched."""


def land(stage: Stage) -> None:
    """Land the interval's files, then judge the bronze gate and the checks of rows."""
    land_files(stage)
    if not stage.publication.definition:
        let_names_follow(stage.settings, stage.lake, stage.source)
    _pass_gate(stage)


def land_files(stage: Stage) -> None:
    """Land those files of the interval's drops that are not in the ledger as they are now."""
    check_names(stage)
    ensure_source(stage.lake, stage.source)
    check_unchanging(stage.lake, stage.source.name)
    check_finished(stage.lake, stage.source)
    verify_checks(stage)
    if stage.request.takes_drops:
        check_drops(stage.source, stage.frontiers, stage.drops)
    files = listed_files(stage)
    if stage.request.planned is not None:
        stage.request.planned.check(base_of_run(stage, files), stage.source)
    changed = check_version(stage.source, stage.publication, accepted=stage.request.accept_definition)
    # before the first publication every part of the definition is new to the tables
    widen_tables(stage.lake, stage.source, changed if stage.publication.definition else stage.source.definition_parts())
    if stage.request.takes_drops:
        stage.check_gap()
    stage.withdraw()
    # an extraction may change files of other drops
    drops = None if stage.rereads or stage.source.extract is not None else stage.drops
    known = ledger.known(stage.lake, stage.source, drops, stage.frontiers.landed_through)
    moved = moved_files(stage.source, files, known.files)
    if moved:
        stage.lake.move_files(stage.source.name, moved)
        known = ledger.known(stage.lake, stage.source, drops, stage.frontiers.landed_through)
    found = _survey(stage, files, known.files)
    refuse_cut_anew(stage.lake, stage.source, found, files)
    empty = _empty_drops(stage, files, known.pending.values())
    stage.summary.update(_resumed(known.pending.values()))
    stage.summary.update(
        files=stage.summary["resumed_files"] + len(found.read),
        known_files=found.known,
        changed_files=found.changed,
        moved_files=[list(pair) for pair in sorted(moved.items())],
        retracted_files=sorted(before.path for before in found.retracted),
        empty_drops=[stage.source.drops.label(n) for n in empty],
    )
    stage.summary.update(_hints(stage, files, found, known.all_files, empty))
    rows = [ledger.empty_drop_row(stage.source, n) for n in empty]
    if found.has_work:
        landed = Landing(stage.lake, stage.source, stage.fence, stage.run_id).land(found)
        stage.summary.update({name: stage.summary[name] + n for name, n in landed.totals.items()})
        rows += landed.rows
    if rows:
        ledger.write(stage.lake, rows, stage.fence, stage.run_id)


def _hints(
    stage: Stage, files: list[LandingFile], found: Survey, landed: Mapping[str, Version], empty: list[int]
) -> dict[str, Any]:
    """The files that look misplaced, by the names under which the summary lists them.

    None for an extracted source, or for a run about landed files alone. `landed`: all landed files of the source.
    """
    request, landing = stage.request, stage.settings.landing
    if stage.source.extract is not None or request.retract or not request.takes_drops:
        return {}
    new = [file for file in found.read if file.path not in found.before]
    gone = [] if request.chosen_files is not None else gone_files(files, found.before)
    twins = copies(new, landed.values())
    beside = [hint for n in empty[:LOOKED_BESIDE] for hint in files_beside(landing, stage.source, n)]
    hints = {"gone_files": gone, "copied_files": [list(pair) for pair in twins], "files_beside": beside}
    return {name: listed for name, listed in hints.items() if listed}


def listed_files(stage: Stage) -> list[LandingFile]:
    """The files of the interval's drops, and of all landed ones if they have to be read anew.

    Raises:
        ParameterError: the one file that the run is about is not there.
    """
    extracted, roots = _extracted(stage)
    drops = {n for n in stage.drops if stage.request.takes_drops or stage.frontiers.has_landed(range(n, n + 1))}
    drops |= extracted
    if stage.rereads:
        landed = {n for first, past in stage.frontiers.landed for n in range(first, past)}
        drops |= {n for n in landed if stage.source.drops.interval(n)[1] > stage.frontiers.horizon_us}
    by_path = {f.path: f for root in roots for n in sorted(drops) for f in list_drop_files(root, stage.source, n)}
    files = sorted(by_path.values(), key=lambda file: (file.seq_no, file.path))
    asked = stage.request
    if asked.only_file is not None and not asked.retract and asked.only_file not in {f.path for f in files}:
        raise ParameterError(
            expected=f"a file of the drops of {stage.source.name}, relative to the landing directory",
            found=repr(asked.only_file),
            consequence="nothing was run",
            next_step=f"name one of {', '.join(f.path for f in files[:5]) or 'none'}",
        )
    return files


def _extracted(stage: Stage) -> tuple[set[int], list[Path | str]]:
    """Read the interval's drops from their table or topic: those not read yet, or all if the run is asked to `reread`.

    Returns the drops whose files that changes, and the landing directories with files of this run. A file in a later
    directory replaces the one of the same path in an earlier one.
    """
    landing, request = stage.settings.landing, stage.request
    if stage.source.extract is None or not request.takes_drops or request.only_file is not None:
        return set(), [landing]
    stage.check_gap()
    plan = isinstance(stage.lake, OverlayLake)
    extraction = Extraction(stage.settings, stage.lake, stage.source, stage.fence, stage.run_id, plan)
    landed = [n for n in stage.drops if stage.frontiers.has_landed(range(n, n + 1))]
    before = extraction.readings.committed
    drops = extraction.extract(stage.drops, landed=landed, reread=request.reread)
    new = extraction.readings.all[before:]
    if new:
        stage.summary.update(extracted_rows=sum(r.rows for r in new), gone_rows=sum(r.gone for r in new))
    return drops, [landing, *([extraction.into] if plan else [])]


def _survey(stage: Stage, files: list[LandingFile], known: dict[str, Version]) -> Survey:
    chosen = stage.request.chosen_files
    if stage.request.retract:
        return survey_retraction(files, known, _to_retract(stage, known))
    again = None if stage.rereads else (stage.request.replay or ())
    if stage.rereads and chosen is not None:
        chosen = chosen | known.keys()
    return survey(files, known, chosen=chosen, again=again, brought_back=stage.request.only_file is not None)


def _to_retract(stage: Stage, known: dict[str, Version]) -> frozenset[str]:
    chosen = stage.request.chosen_files
    paths = frozenset(known) if chosen is None else chosen & known.keys()
    if paths:
        return paths
    raise ParameterError(
        expected=f"a landed file of {stage.source.name} in {', '.join(map(stage.source.drops.label, stage.drops))}",
        found="none" if stage.request.only_file is None else repr(stage.request.only_file),
        consequence="nothing was taken back",
        next_step=f"name one of {', '.join(sorted(known)[:5])}" if known else "name a drop that has landed",
    )


def _resumed(pending: Collection[PendingLanding]) -> dict[str, int]:
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


def base_of_run(stage: Stage, files: list[LandingFile]) -> Base:
    """The base of this run; a plan with another base is stale."""
    interval, chosen = (stage.lo_us, stage.hi_us), stage.request.chosen_files
    about = [f for f in files if chosen is None or f.path in chosen]
    return base_of(
        stage.source,
        interval,
        about,
        stage.frontiers,
        stage.publication,
        only_file=stage.request.only_file,
        retract=stage.request.retract,
        replay=stage.request.replay,
    )


def _pass_gate(stage: Stage) -> None:
    """Judge every landing that is not in the trace yet, so that a repeated run meets a failed gate again."""
    landings = ledger.pending_landings(stage.lake, stage.source, stage.frontiers.landed_through)
    stage.summary["landings"] = list(landings)
    if landings:
        pass_gate(stage, "bronze", measure_bronze(stage.lake, stage.source, landings=list(landings)))
        check_landed(stage, landings, keep_metrics(stage, landings))
