"""The standing of each drop of a source: whether it is published, its last run, and the warnings about it.

It also has the overrides: checks that do not hold for the drop, but that a person let pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.portal.drops import DropFigures
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.runs import Run
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.quality_tables import OVERRIDES
from spark_jobs.storage.descriptions.times import micros

Row = dict[str, Any]
_OF_LANDINGS = "bronze"
"""The gate that judges only what lands. The gates after it judge all that would be published, in every run anew."""


@dataclass(frozen=True)
class Override:
    """A check that a person let pass in a run.

    `seq_nos`: the drops of which it let files through that still count; `labels` names these drops.
    """

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
    """The standing of a drop: its last run, and the names of the checks that warned or that a person let pass."""

    is_published: bool = False
    last_run: Run | None = None
    warned: list[str] = field(default_factory=list)
    overridden: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """True if the last run over the drop failed."""
        return self.last_run is not None and self.last_run.has_failed


@dataclass(frozen=True)
class Standing:
    """The standing of each drop, by number, also of a drop that never landed if a run was about it.

    `overrides` are newest first. `publications` has the token and the time of each publication, oldest first.
    """

    drops: Mapping[int, DropStanding]
    overrides: Sequence[Override]
    publications: Sequence[tuple[int, datetime]]

    def overrides_in(self, drops: Mapping[int, DropFigures], published: datetime | None = None) -> list[Override]:
        """The overrides of drops that the publication of time `published` includes; if None, the newest one."""
        tokens = [token for token, time in self.publications if published is None or time <= published]
        last = max(tokens, default=-1)
        return [
            override
            for override in self.overrides
            if any(n in drops and drops[n].landing <= last for n in override.seq_nos)
        ]


def standing(lake: HeldLake, source: Source, drops: Mapping[int, DropFigures], runs: Sequence[Run]) -> Standing:
    """The standing of the drops of a source; `runs` are newest first."""
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


def _judged(source: Source, drops: Mapping[int, DropFigures], results: Iterable[Row]) -> _Judged:
    """The last result of each check, by drop, if it was about files of the drop that still count.

    A result `passed` of the gate of landings is left out, as it is about the files of one landing only.
    """
    judged: _Judged = {n: {} for n in drops}
    for row in sorted(results, key=lambda row: row["token"]):
        # tests of marts are about whole marts, and are shown with those
        if row["kind"] == "mart_test" or (row["gate"] == _OF_LANDINGS and row["verdict"] == "passed"):
            continue
        for n in _numbers(source, (row["drop_lo"], row["drop_hi"])):
            if n in drops and _counts(drops[n], row["token"]):
                judged[n][row["gate"], row["name"], row["relation"]] = row
    return judged


def _overrides(lake: HeldLake, source: Source, drops: Mapping[int, DropFigures], judged: _Judged) -> list[Override]:
    """The overrides that still count, newest first. A check let pass in several runs counts once for a drop."""
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
            # a later run found that it holds, or only warned
            and not any(
                key[1] == name and later["token"] > token and later["verdict"] != "overridden"
                for key, later in judged[n].items()
            )
        ]
        listed |= {(n, name) for n in numbers}
        if numbers:
            reason = (row["because"], row["overridden_by"], row["recorded_at"], row["run_id"])
            labels = [source.drops.label(n) for n in (numbers[0], numbers[-1])]
            named = labels[0] if len(numbers) == 1 else f"{len(numbers):,} from {labels[0]} to {labels[1]}"
            overrides.append(Override(source.name, name, *reason, tuple(numbers), named))
    return overrides


def _counts(drop: DropFigures, token: int) -> bool:
    """True if a file of the drop that had landed when a stage took this token still counts."""
    return drop.first_standing <= token


def _numbers(source: Source, span: tuple[datetime | None, datetime | None] | None) -> set[int]:
    """The numbers of the drops in a span of time; none if the span is missing, or begins before the source's start."""
    lo, hi = span or (None, None)
    if lo is None or hi is None or hi <= lo or micros(lo) < source.drops.start_us:
        return set()
    return set(range(source.drops.seq_no_at(micros(lo)), source.drops.seq_no_at(micros(hi) - 1) + 1))
