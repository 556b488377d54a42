"""What a run is asked to do with the drops of its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.jobs.base import Base
from spark_jobs.storage.kept_rows import KeptRows


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is about, beside its source and interval; the same for all of its stages.

    `only_file`: one file, relative to the landing directory; the interval's other files are left aside. `retract`: what
    the interval's drops, or that file, landed is taken back. `replay`: files to read again though their bytes are the
    same, and no others. `accept_definition`: what a changed source file affects is recomputed. `pass_gap`: the seal may
    move past drops that were never run. `planned`: what a plan was made on, which must still stand. `overrides`: checks
    that may fail without stopping it, each with the reason that somebody gives. `promotes`: rows of the changed
    definition that were worked out before, on the same `planned`. `reread`: drops of a table or topic are read once
    more, and what differs lands. `anew`: parts of the definition whose tables are damaged, and are worked out from the
    trace as if these parts had changed.
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

    @classmethod
    def of_plan(
        cls,
        planned: Base,
        *,
        pass_gap: bool = False,
        overrides: Mapping[str, str] | None = None,
        promotes: KeptRows | None = None,
    ) -> Request:
        """What a run does that applies a plan: whoever applies it has accepted the definition that it was made on."""
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
        )

    @property
    def takes_drops(self) -> bool:
        """Whether the interval's drops have landed once the run is done; else it is about landed files alone, to read
        them again or to take them back, and drops between them that have not landed still have not."""
        return not self.retract and self.replay is None

    @property
    def chosen_files(self) -> frozenset[str] | None:
        """The paths that the run is about; None: all."""
        return self.replay if self.only_file is None else frozenset({self.only_file})


ALL = Request()
"""To land and publish the interval's drops."""
