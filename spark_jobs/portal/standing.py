"""How each drop of a source stands: whether it is published, how the last run over it went, what was warned of, and
which checks that do not hold for it a person let pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.portal.drops import Drop
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.runs import Run
from spark_jobs.sources import Source
from spark_jobs.storage.quality_tables import OVERRIDES
from spark_jobs.storage.times import micros

Row = dict[str, Any]
_OF_LANDINGS = "bronze"
"""The gate that judges what lands alone; those after it judge all that would be published, each time anew."""


@dataclass(frozen=True)
class Override:
    """A check that a person let pass in a run. `seq_nos`: the drops of which something still counts that it let
    through; `labels` names them."""

    source: str
    name: str
    because: str
    overridden_by: str
    recorded_at: datetime | None
    run_id: str
    seq_nos: tuple[int, ...]
    labels: str


@dataclass
class DropStanding:
    """How a drop stands: its last run, and the names of checks that warned, or were let pass."""

    is_published: bool = False
    last_run: Run | None = None
    warned: list[str] = field(default_factory=list)
    overridden: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether the last run over it failed."""
        return self.last_run is not None and self.last_run.has_failed


@dataclass(frozen=True)
class Standing:
    """How the drops stand, by number; also of drops that never landed, should a run over them have failed. Overrides
    are the newest first; `publications` are the token and the time of each, oldest first."""

    drops: Mapping[int, DropStanding]
    overrides: Sequence[Override]
    publications: Sequence[tuple[int, datetime]]

    def overrides_in(self, drops: Mapping[int, Drop], published: datetime | None = None) -> list[Override]:
        """The overrides of drops that a publication includes; of what is published now unless another is named."""
        tokens = [token for token, time in self.publications if published is None or time <= published]
        last = max(tokens, default=-1)
        return [
            override
            for override in self.overrides
            if any(n in drops and drops[n].landing <= last for n in override.seq_nos)
        ]


def standing(lake: HeldLake, source: Source, drops: Mapping[int, Drop], runs: Sequence[Run]) -> Standing:
    """How the drops of a source stand; `runs` are newest first."""
    published = sorted((run.published.token, run.published.published) for run in runs if run.published is not None)
    last = max((token for token, _ in published), default=-1)
    by_number = {n: DropStanding(drop.landing <= last) for n, drop in drops.items()}
    # the newest run comes last, and stays
    for run in reversed(runs):
        if run.ran_drops and run.state != "refused":
            for n in _numbers(source, run.span) | set(run.drops):
                by_number.setdefault(n, DropStanding()).last_run = run
    judged = _judged(source, drops, (row for run in runs for row in run.results))
    for n, of_drop in judged.items():
        by_number[n].warned = sorted({name for (_, name, _), row in of_drop.items() if row["verdict"] == "warned"})
    overrides = _overrides(lake, source, drops, judged)
    for override in overrides:
        for n in override.seq_nos:
            by_number[n].overridden.append(override.name)
    return Standing(by_number, overrides, published)


_Judged = dict[int, dict[tuple[str, str, str | None], Row]]


def _judged(source: Source, drops: Mapping[int, Drop], results: Iterable[Row]) -> _Judged:
    """By drop what checks found last of what counts of it: what did not hold, and of gates that judge anew what did."""
    judged: _Judged = {n: {} for n in drops}
    for row in sorted(results, key=lambda row: row["token"]):
        # tests of marts are about whole marts, and are shown with those
        if row["kind"] == "mart_test" or (row["gate"] == _OF_LANDINGS and row["verdict"] == "passed"):
            continue
        for n in _numbers(source, (row["drop_lo"], row["drop_hi"])):
            if n in drops and _counts(drops[n], row["token"]):
                judged[n][row["gate"], row["name"], row["relation"]] = row
    return judged


def _overrides(lake: HeldLake, source: Source, drops: Mapping[int, Drop], judged: _Judged) -> list[Override]:
    """What people let pass of what still counts; a check that they let pass in several runs is told once for a drop."""
    overrides: list[Override] = []
    listed: set[tuple[int, str]] = set()
    rows = lake.records(OVERRIDES, pc.field("source") == source.name)
    for row in sorted(rows, key=lambda row: -row["token"]):
        name, token = row["name"], row["token"]
        numbers = [
            n
            for n in sorted(_numbers(source, (row["drop_lo"], row["drop_hi"])))
            if n in drops
            and (n, name) not in listed
            and _counts(drops[n], token)
            # found to hold since, or to be a warning
            and not any(
                key[1] == name and later["token"] > token and later["verdict"] != "overridden"
                for key, later in judged[n].items()
            )
        ]
        listed |= {(n, name) for n in numbers}
        if numbers:
            said = (row["because"], row["overridden_by"], row["recorded_at"], row["run_id"])
            labels = [source.drops.label(n) for n in (numbers[0], numbers[-1])]
            named = labels[0] if len(numbers) == 1 else f"{len(numbers):,} from {labels[0]} to {labels[1]}"
            overrides.append(Override(source.name, name, *said, tuple(numbers), named))
    return overrides


def _counts(drop: Drop, token: int) -> bool:
    """Whether something counts of the drop that had landed when a stage took this token."""
    return drop.first_standing <= token


def _numbers(source: Source, span: tuple[datetime | None, datetime | None] | None) -> set[int]:
    """The drops of a span of time; none of one that an older version did not note, or from before the start."""
    lo, hi = span or (None, None)
    if lo is None or hi is None or hi <= lo or micros(lo) < source.drops.start_us:
        return set()
    return set(range(source.drops.seq_no_at(micros(lo)), source.drops.seq_no_at(micros(hi) - 1) + 1))
