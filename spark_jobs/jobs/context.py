"""The context of a stage: the source, the interval, the lake and the attempt's fence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import LANDED_PARTS, changed_parts
from spark_jobs.jobs.base import Base
from spark_jobs.jobs.beginning import gap_of, initial_frontiers
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.judging.gate import JudgedRun
from spark_jobs.landing.files import LandingFile
from spark_jobs.model import FIRST, ReportStep, report_nothing
from spark_jobs.restatement.misread import is_misread
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake, RunLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.gap import SealGap


@dataclass
class Stage:
    """One attempt of one stage of one run.

    `drops` are the drops of the run's interval `[lo_us, hi_us)`, and `request` is the run's task with them. `lease`
    keeps the source for this attempt and has the notes of the run's earlier stages.
    """

    name: str
    settings: Settings
    source: Source
    lo_us: int
    hi_us: int
    run_id: str
    lake: Lake
    lease: Lease
    request: Request = ALL

    @property
    def fence(self) -> Fence:
        """The attempt's right to write."""
        return self.lease.fence

    @property
    def drops(self) -> range:
        """The sequence numbers of the interval's drops."""
        return self.source.drops.drops_spanned(self.lo_us, self.hi_us)

    @property
    def gap(self) -> SealGap | None:
        """The error for a run that would move the seal past drops that were never run; None if this run would not."""
        return gap_of(self.lake, self.source, self.frontiers, self.drops) if self.request.takes_drops else None

    def check_gap(self) -> None:
        """Refuse the run if it would move the seal past drops that were never run, unless it is asked to (`pass_gap`).

        Raises:
            SealGap: names the drops.
        """
        if not self.request.pass_gap and (gap := self.gap) is not None:
            raise gap

    @property
    def frontiers(self) -> SourceFrontiers:
        """The frontiers with which this stage begins.

        The first stage of a run begins with those of the publication: a seal that an earlier run did not publish is
        withdrawn.
        """
        return self._frontiers[1]

    @property
    def publication(self) -> Publication:
        """The publication in force when the stage began."""
        return self._in_force[1]

    def withdraw(self) -> None:
        """Commit the frontiers with which the run begins, if those in the lake are others."""
        current, initial = self._frontiers
        if initial != current:
            frontiers.commit(self.lake, self.source, self.fence, self.run_id, initial)

    @cached_property
    def _in_force(self) -> tuple[SourceFrontiers, Publication]:
        # the first stage compares the tables for all stages; a run that mends damaged ones would always differ
        compares = self.name == FIRST and not self.request.anew
        return in_force(self.lake, self.source, near=self.fence.token, compares=compares)

    @cached_property
    def _frontiers(self) -> tuple[SourceFrontiers, SourceFrontiers]:
        """The frontiers in the lake, and those with which the stage begins."""
        current, published = self._in_force
        if self.name != FIRST:
            return current, current
        return current, initial_frontiers(self.lake, self.source, current, published, self.fence.token)

    @cached_property
    def scope(self) -> Scope:
        """The scope of this run: the rows that it has to publish, compared with the publication in force."""
        if is_misread(self.lake, self.source, self.publication):
            return Scope(self.source, self.frontiers, self.publication, everything=True)
        changed = self.request.anew.union(changed_parts(self.source, self.publication))
        return Scope(self.source, self.frontiers, self.publication, bool(changed), changed)

    @property
    def judged(self) -> JudgedRun:
        """The run of this stage as its judges know it."""
        return JudgedRun(
            self.settings,
            self.source,
            self.run_id,
            self.lease,
            (self.lo_us, self.hi_us),
            self.request.overrides,
            self.request.asked_by,
            # a lake without Spark is for trying and for tests, which nobody keeps reports of
            plainly=self.lake.spark is None,
        )

    def base(self, files: Iterable[LandingFile]) -> Base:
        """The base of this run over these files; a plan with another base is stale."""
        return self.request.base(self.source, (self.lo_us, self.hi_us), files, self.frontiers, self.publication)

    @property
    def rereads(self) -> bool:
        """True if the definition reads records otherwise than the published one: then landed files are read anew."""
        return bool({*changed_parts(self.source, self.publication)} & {*LANDED_PARTS})


@dataclass
class RunStage(Stage):
    """A stage of a run, which also replaces rows of the lake. A plan has none: its lake keeps its writes apart.

    `report_step` is called with the longer steps within the stage.
    """

    lake: RunLake
    report_step: ReportStep = report_nothing
