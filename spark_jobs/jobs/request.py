"""The request of a run: its task with the drops of its interval."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_jobs.definitions.versions import version
from spark_jobs.jobs.base import Base
from spark_jobs.landing.files import LandingFile
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.lakes.kept_rows import KeptRows
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import landing_horizon


@dataclass(frozen=True, slots=True)
class Request:
    """The task of a run, beside its source and interval; the same for all of its stages.

    `only_file`: the path of the one file to read, relative to the landing directory; other files are left out.
    `retract`: take back all rows that the interval's drops, or that file, landed. `replay`: the only files to read,
    although their bytes are the same. `accept_definition`: recompute all rows that a changed source file affects.
    `pass_gap`: the seal may move past drops that were never run. `planned`: the base of a plan, which must not have
    changed. `overrides`: checks that may fail without stopping the run, each with a person's reason. `promotes`: rows
    of the changed definition that were computed before, on the same base. `reread`: read drops of a table or topic once
    more, and land the rows that differ. `anew`: parts of the definition whose tables are damaged; they are computed
    from the trace as if these parts had changed. `asked_by`: the person who asked for the run, as records of overrides
    name them; by default the account of this process.
    """

    only_file: str | None = None
    retract: bool = False
    replay: frozenset[str] | None = None
    accept_definition: bool = False
    pass_gap: bool = False
    planned: Base | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    promotes: KeptRows | None = None
    reread: bool = False
    anew: frozenset[str] = frozenset()
    asked_by: str = field(default_factory=getpass.getuser)

    @classmethod
    def of_plan(
        cls,
        planned: Base,
        *,
        pass_gap: bool = False,
        overrides: Mapping[str, str] | None = None,
        promotes: KeptRows | None = None,
        asked_by: str | None = None,
    ) -> Request:
        """The request of a run that applies a plan; it accepts the definition on which the plan was made."""
        replay = None if planned.replay is None else frozenset(planned.replay)
        return cls(
            only_file=planned.only_file,
            retract=planned.retract,
            replay=replay,
            accept_definition=True,
            pass_gap=pass_gap,
            planned=planned,
            overrides=overrides or {},
            promotes=promotes,
            asked_by=asked_by or getpass.getuser(),
        )

    @property
    def takes_drops(self) -> bool:
        """True if all drops of the interval have landed after the run.

        Otherwise the run reads landed files again or takes them back; drops that have not landed stay so.
        """
        return not self.retract and self.replay is None

    @property
    def chosen_files(self) -> frozenset[str] | None:
        """The paths of the files that the run is about; None: all."""
        return self.replay if self.only_file is None else frozenset({self.only_file})

    def base(
        self,
        source: Source,
        interval_us: tuple[int, int],
        files: Iterable[LandingFile],
        frontiers: SourceFrontiers,
        published: Publication,
    ) -> Base:
        """The base of this request for the interval `[lo, hi)` (microseconds), whose drops have these files."""
        chosen = self.chosen_files
        return Base(
            source.name,
            *interval_us,
            self.only_file,
            self.retract,
            None if self.replay is None else tuple(sorted(self.replay)),
            version(source),
            {file.path: (file.seq_no, file.checksum) for file in files if chosen is None or file.path in chosen},
            frontiers.seal_us,
            frontiers.reached_us,
            landing_horizon(source, frontiers),
            frontiers.landed,
            frontiers.landed_through,
            published.published_us,
            published.reached_us,
            published.definition,
        )


ALL = Request()
"""The request to land and publish all drops of the interval."""
