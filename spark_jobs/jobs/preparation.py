"""The preparation of a run: everything that can refuse it is checked, once, before anything lands."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.definitions.catalog import ensure_source, widen_tables
from spark_jobs.definitions.versions import check_version
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.extraction import Extraction
from spark_jobs.jobs.base import Base, base_of
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.names import check_names
from spark_jobs.judging.checks import verify_checks
from spark_jobs.landing.erasures import check_finished
from spark_jobs.landing.reader import LandingFile, list_drop_files
from spark_jobs.storage.coordination.source_changes import check_unchanging
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.trace.horizon import check_drops


def prepare_run(stage: Stage) -> list[LandingFile]:
    """Check that the run may begin, make or widen the source's tables, and list the files of the run.

    Raises:
        TidemarkError: the source's names are taken, it is being changed or erased, a check cannot be judged, a drop is
            below the horizon, a plan is stale, the definition changed without leave, or drops would be left out.
    """
    check_names(stage)
    ensure_source(stage.lake, stage.source)
    check_unchanging(stage.lake, stage.source.name)
    check_finished(stage.lake, stage.source)
    verify_checks(stage.judged)
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
    return files


def listed_files(stage: Stage) -> list[LandingFile]:
    """The files of the interval's drops, and of all landed ones if they have to be read anew.

    Raises:
        ParameterError: the one file that the run is about is not there.
    """
    extracted, roots = _extract_drops(stage)
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


def _extract_drops(stage: Stage) -> tuple[set[int], list[Path | str]]:
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
