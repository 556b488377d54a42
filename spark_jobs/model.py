"""Definitions that every layer shares: the stages of a run, findings, frontiers, the tick, and numbers with nouns.

The module imports only the standard library, so that kernels, Spark adapters and DAG files can all import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Result = TypeVar("Result")

STAGES = ("land", "seal", "window", "compact", "publish")
"""The stages of a run, in their order; each ends with its gate."""
FIRST, LAST = STAGES[0], STAGES[-1]
STAGED = ("window", "compact")
"""The stages whose rows a publication makes visible. Rows not yet published are void once the trace moves again."""

NOTED_READS = "reads/statements.log"
"""The file below the home in which the lake server notes reads of states; no source's name has a dot."""

Report = dict[str, Any]
"""The report of a stage: names with plain JSON values."""


class ReportStep(Protocol):
    """A function that takes the step of work that begins, or the progress of a step: `n_done` of `total` things."""

    def __call__(self, step: str, n_done: int = 0, total: int = 0) -> None:
        """Take note of the step; `total` is 0 if its things are not counted."""


def report_nothing(step: str, n_done: int = 0, total: int = 0) -> None:
    """The `ReportStep` of work whose progress nobody looks at."""


def report_within(report_step: ReportStep, work: str) -> ReportStep:
    """The `ReportStep` of a part of some work: `report_step`, with the name of the part before each step."""

    def report(step: str, n_done: int = 0, total: int = 0) -> None:
        report_step(f"{work}, {step}", n_done, total)

    return report


def report_each(results: Iterable[Result], report_step: ReportStep, step: str, total: int) -> Iterator[Result]:
    """Yield the results of a step, and report after each how many of `total` there are."""
    report_step(step, 0, total)
    for n_done, result in enumerate(results, 1):
        yield result
        report_step(step, n_done, total)


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, `one`; the plural is `many`, or `one` with an `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One examined thing: its name, the finding, and the next step if the verdict is not ok."""

    what: str
    verdict: Verdict
    found: str
    do: str = ""


TICKS_PER_SECOND = 1_000_000
"""The ticks of a second. Pipeline times are int64 microseconds since 1970-01-01T00:00:00Z; a tick is a microsecond."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """A frontier over integer times: `[t]`, or `[]`, which is greater than every time.

    A time is *at or beyond* `[f]` iff `f <= time`; nothing is at or beyond `[]`. `a <= b` iff every element of `b` is
    at or beyond `a`, so `Frontier.empty()` is the greatest frontier. (Definition: timely dataflow antichains, in one
    dimension.)
    """

    time: int | None

    @classmethod
    def at(cls, time: int) -> Frontier:
        """The frontier `[time]`."""
        return cls(time)

    @classmethod
    def empty(cls) -> Frontier:
        """The frontier `[]`: no time is at or beyond it."""
        return cls(None)

    @classmethod
    def from_json(cls, elements: Iterable[int]) -> Frontier:
        """Read `[t]` or `[]`; raises ValueError for more than one element."""
        times = list(elements)
        if len(times) > 1:
            raise ValueError(f"expected a frontier [t] or [], found {times}")
        return cls(times[0] if times else None)

    def to_json(self) -> list[int]:
        """The frontier as a list: `[t]` or `[]`."""
        return [] if self.time is None else [self.time]

    def admits(self, time: int) -> bool:
        """True if `time` is at or beyond this frontier."""
        return self.time is not None and self.time <= time

    def forward(self, time: int) -> int:
        """`time` forwarded to this frontier: the greater of the two; `time` itself if the frontier is empty."""
        return time if self.time is None else max(time, self.time)

    def __le__(self, other: Frontier) -> bool:
        return other.time is None or self.admits(other.time)

    def __lt__(self, other: Frontier) -> bool:
        return self != other and self <= other

    def __ge__(self, other: Frontier) -> bool:
        return other <= self

    def __gt__(self, other: Frontier) -> bool:
        return other < self


RANGE_RUN = "drops__"
"""The prefix of the ids of the Airflow runs that `tidemark backfill` starts; the range and the backfill follow it."""


def is_backfill(run_id: str) -> bool:
    """True if a run in Airflow is part of a backfill, either of `tidemark backfill` or of Airflow's own."""
    return run_id.startswith((RANGE_RUN, "backfill__"))


ERASED = "erased"
"""The rule of a record of an erased entity, and its state in quarantine."""

ACTIONS = "tidemark-actions"
"""The DAG of what people do beside runs, such as closing records in quarantine. No source's name has a hyphen."""
