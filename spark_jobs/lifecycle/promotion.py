"""Promotion: production takes over an environment's source file, and publishes the rows that its build computed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import changed_parts
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.base import StalePlan
from spark_jobs.jobs.lake_reads import lake_for_reads
from spark_jobs.jobs.pipeline import RunReport
from spark_jobs.jobs.request import Request
from spark_jobs.lifecycle.environments import Build, require_build
from spark_jobs.model import FIRST
from spark_jobs.sources import Environment, find_source
from spark_jobs.sources.folder import find_source_file, source_files
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.descriptions.times import instant


def promote(
    settings: Settings,
    environment: Environment,
    source: str,
    run: Callable[..., RunReport],
    on_stage: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Publish the environment's build of `source`, in one publication, and take over its source file.

    If the run fails before it publishes, production's source file is as before. A promotion that was killed, or failed
    after its publication, goes on if it is started again.
    `run` does a run of the source in its turn: `run(lo, hi, request=…, on_stage=…)`.

    Raises:
        ParameterError: the environment has no tables of the source.
        StalePlan: production has landed or published something since, or the environment's file was changed.
    """
    build = require_build(environment, source)
    swap = _Swap.of(settings, environment, source)

    def begin(stage: str) -> None:
        # the file is swapped in the run's turn, so that no other run of the source reads the new file
        if stage == FIRST:
            swap.do()
        on_stage(stage)

    try:
        lo, hi = instant(build.base.lo_us), instant(build.base.hi_us)
        report = run(lo, hi, request=_request(build), on_stage=begin)
    except StalePlan as refusal:
        if not _is_published(settings, environment, build):
            swap.undo()
            raise _stale(refusal, build) from None
        # an earlier promotion has published it, and did not end
        report = run(lo, hi, request=Request(), on_stage=on_stage)
    except BaseException:
        # the file follows the publication: a run may fail after its publication, as on a full disk
        if not _is_published(settings, environment, build):
            swap.undo()
        raise
    swap.end()
    return report


def _is_published(settings: Settings, environment: Environment, build: Build) -> bool:
    """True if production has published since the build, and by the environment's file.

    False, too, if nobody can tell: the error of the run is the one to report, and the next promotion asks again.
    """
    source = find_source(environment.folder, build.source)
    try:
        with lake_for_reads(settings, f"{build.source}:promote") as lake:
            in_force = publication.load(lake, source)
    except TidemarkError:
        return False
    return in_force.published_us != build.base.published_us and not changed_parts(source, in_force)


@dataclass(frozen=True)
class _Swap:
    """The paths of production's source file, of the file that replaces it, and of a copy of the former meanwhile."""

    present: Path
    comes: Path
    kept: Path

    @classmethod
    def of(cls, settings: Settings, environment: Environment, source: str) -> _Swap:
        comes = find_source_file(environment.folder, source)
        present = source_files(settings.sources).get(source, Path(settings.sources) / comes.name)
        return cls(present, comes, environment.folder / f"{source}.before")

    @property
    def is_done(self) -> bool:
        """True if production has the file that comes: a promotion was killed, or somebody has copied the file."""
        return self.present.exists() and self.present.read_bytes() == self.comes.read_bytes()

    def do(self) -> None:
        # the copy that a killed promotion left is of the former file; production's is the new one already
        if not (self.is_done and self.kept.exists()):
            shutil.copyfile(self.present, self.kept)
        _put(self.comes, self.present)

    def undo(self) -> None:
        if self.kept.exists():
            _put(self.kept, self.present)
            self.kept.unlink()

    def end(self) -> None:
        self.kept.unlink(missing_ok=True)


def _put(file: Path, place: Path) -> None:
    """Replace the file at `place` by a copy of `file`, in one step."""
    beside = place.with_name(f".{place.name}.new")
    shutil.copyfile(file, beside)
    beside.replace(place)


def _request(build: Build) -> Request:
    return Request.of_plan(build.base, pass_gap=True, promotes=build.kept)


def _stale(refusal: StalePlan, build: Build) -> StalePlan:
    return StalePlan(
        expected=f"{build.source} as it was when {build.environment} was built",
        found=refusal.found,
        consequence="nothing was promoted, and production's source file is as it was",
        next_step=f"`tidemark env build {build.environment} {build.source}`, look at `tidemark env diff`, and promote",
        **refusal.facts,
    )
