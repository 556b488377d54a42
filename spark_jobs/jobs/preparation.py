"""The preparation of a run: everything that can refuse it is checked, once, before anything lands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.definitions.catalog import ensure_source, widen_tables
from spark_jobs.definitions.versions import check_version
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.extraction import Extraction
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.names import check_names
from spark_jobs.judging.checks import verify_checks
from spark_jobs.landing.erasures import check_finished
from spark_jobs.landing.reader import LandingFile, list_drop_files
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.source_changes import check_unchanging
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.trace.expiry import check_still_declared
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import check_drops


@dataclass(frozen=True, slots=True)
class FilesToLand:
    """The files of a run's drops, and of all landed ones if they have to be read anew.

    `report`: the numbers of rows that were extracted for them, for a source whose rows come from a table or topic.
    """

    files: list[LandingFile]
    report: dict[str, int]


def prepare_run(stage: Stage) -> FilesToLand:
    """Check that the run may begin, make or widen the source's tables, and list the files of the run.

    Raises:
        TidemarkError: the source's names are taken, it is being changed or erased, a check cannot be judged, a drop is
            below the horizon, a plan is stale, the definition changed without leave, or drops would be left out.
    """
    lake, source, request = stage.lake, stage.source, stage.request
    # the publication is read from a lake that has a table for it
    is_new = PUBLISHED.table not in lake.catalog.names_if_present(PUBLISHED.database)
    check_names(stage.settings, source, "" if is_new else stage.publication.definition)
    ensure_source(lake, source)
    check_unchanging(lake, source.name)
    check_finished(lake, source)
    verify_checks(stage.judged, lake)
    check_still_declared(source, stage.frontiers)
    if request.takes_drops:
        check_drops(source, stage.frontiers, stage.drops)
    prepared = files_to_land(stage)
    if request.planned is not None:
        request.planned.check(stage.base(prepared.files), source)
    changed = check_version(source, stage.publication, accepted=request.accept_definition)
    # before the first publication every part of the definition is new to the tables
    widen_tables(lake, source, changed if stage.publication.definition else source.definition_parts())
    if request.takes_drops:
        stage.check_gap()
    stage.withdraw()
    return prepared


def files_to_land(stage: Stage) -> FilesToLand:
    """The files of the run, after drops of a table or topic have been read into files.

    Raises:
        ParameterError: the one file that the run is about is not there.
    """
    source, request, frontiers = stage.source, stage.request, stage.frontiers
    drops = _drops_to_list(source, frontiers, stage.drops, takes_drops=request.takes_drops, rereads=stage.rereads)
    folders: list[Path | str] = [stage.settings.landing]
    report: dict[str, int] = {}
    if source.extract is not None and request.takes_drops and request.only_file is None:
        stage.check_gap()
        plan = isinstance(stage.lake, OverlayLake)
        extraction = Extraction(stage.settings, stage.lake, source, stage.fence, stage.run_id, plan)
        extracted, report = _extract_drops(extraction, stage.drops, frontiers, reread=request.reread)
        drops |= extracted
        # a file of a later folder replaces the one of the same path in an earlier one
        folders += [extraction.into] if plan else []
    files = _list_files(source, folders, drops)
    if request.only_file is not None and not request.retract and request.only_file not in {f.path for f in files}:
        raise ParameterError(
            expected=f"a file of the drops of {source.name}, relative to the landing directory",
            found=repr(request.only_file),
            consequence="nothing was run",
            next_step=f"name one of {', '.join(f.path for f in files[:5]) or 'none'}",
        )
    return FilesToLand(files, report)


def _drops_to_list(
    source: Source, frontiers: SourceFrontiers, drops: range, *, takes_drops: bool, rereads: bool
) -> set[int]:
    """The drops of the interval, or the landed ones of them; and all landed drops if the run reads them anew."""
    listed = {n for n in drops if takes_drops or frontiers.has_landed(range(n, n + 1))}
    if rereads:
        landed = {n for first, past in frontiers.landed for n in range(first, past)}
        listed |= {n for n in landed if source.drops.interval(n)[1] > frontiers.horizon_us}
    return listed


def _list_files(source: Source, folders: Iterable[Path | str], drops: Iterable[int]) -> list[LandingFile]:
    by_path = {f.path: f for folder in folders for n in sorted(drops) for f in list_drop_files(folder, source, n)}
    return sorted(by_path.values(), key=lambda file: (file.seq_no, file.path))


def _extract_drops(
    extraction: Extraction, drops: range, frontiers: SourceFrontiers, *, reread: bool
) -> tuple[set[int], dict[str, int]]:
    """Read drops from their table or topic: those not read yet, or all if the run is asked to `reread`.

    Returns the drops whose files that changes, and the numbers of rows that were read, and that are gone.
    """
    landed = [n for n in drops if frontiers.has_landed(range(n, n + 1))]
    before = extraction.readings.committed
    changed = extraction.extract(drops, landed=landed, reread=reread)
    new = extraction.readings.all[before:]
    if not new:
        return changed, {}
    return changed, {"extracted_rows": sum(r.rows for r in new), "gone_rows": sum(r.gone for r in new)}
