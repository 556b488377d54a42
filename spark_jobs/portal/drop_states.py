"""The state of each drop of a source: whether it is published, its last run, and the warnings about it.

It also has the overrides: checks that do not hold for the drop, but that a person let pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.portal.drops import DropFigures
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.runs import Run, Runs
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


@dataclass(frozen=True, slots=True)
class DropState:
    """The state of a drop: its last run, and the names of the checks that warned or that a person let pass."""

    is_published: bool
    last_run: Run | None
    warned: Sequence[str]
    overridden: Sequence[str]

    @property
    def has_failed(self) -> bool:
        """True if the last run over the drop failed."""
        return self.last_run is not None and self.last_run.has_failed


@dataclass(frozen=True)
class DropStates:
    """The state of each drop, by number, also of a drop that never landed if a run was about it.

    `newest`: the place of the last run over each drop. `warned`: the names of the checks that warned of a drop.
    `overrides` are newest first. `publications` has the token and the time of each publication, oldest first.
    """

    drops: Mapping[int, DropFigures]
    runs: Runs
    newest: Mapping[int, int]
    warned: Mapping[int, Sequence[str]]
    overrides: Sequence[Override]
    publications: Sequence[tuple[int, datetime]]

    @property
    def numbers(self) -> set[int]:
        """The numbers of the drops."""
        return {*self.drops, *self.newest}

    def of(self, number: int) -> DropState:
        """The state of a drop."""
        drop, newest = self.drops.get(number), self.newest.get(number)
        last = self.publications[-1][0] if self.publications else -1
        overridden = [override.name for override in self.overrides if number in override.seq_nos]
        return DropState(
            drop is not None and drop.landing <= last,
            None if newest is None else self.runs[newest],
            self.warned.get(number, ()),
            overridden,
        )

    def overrides_in(self, published: datetime | None = None) -> list[Override]:
        """The overrides of drops that the publication of time `published` includes; if None, the newest one."""
        tokens = [token for token, time in self.publications if published is None or time <= published]
        last, drops = max(tokens, default=-1), self.drops
        return [
            override
            for override in self.overrides
            if any(n in drops and drops[n].landing <= last for n in override.seq_nos)
        ]


def drop_states(
    lake: HeldLake, source: Source, drops: Mapping[int, DropFigures], runs: Runs, results: Iterable[Row]
) -> DropStates:
    """The state of the drops of a source. `results`: `telling` of `Checks`."""
    published = sorted((each.token, each.published) for each in runs.publications.values())
    judged = _judge_drops(source, drops, results)
    warned = {
        n: sorted({name for (_, name, _), row in of_drop.items() if row["verdict"] == "warned"})
        for n, of_drop in judged.items()
    }
    overrides = _overrides(lake, source, drops, judged)
    return DropStates(drops, runs, runs.newest_over_drops(source), warned, overrides, published)


_Judged = dict[int, dict[tuple[str, str, str | None], Row]]


def _judge_drops(source: Source, drops: Mapping[int, DropFigures], results: Iterable[Row]) -> _Judged:
    """The last result of each check, by drop, if it was about files of the drop that still count.

    A result `passed` of the gate of landings is left out, as it is about the files of one landing only.
    """
    judged: _Judged = {}
    for row in sorted(results, key=lambda row: row["token"]):
        # tests of marts are about whole marts, and are shown with those
        if row["kind"] == "mart_test" or (row["gate"] == _OF_LANDINGS and row["verdict"] == "passed"):
            continue
        for n in _numbers(source, _span_us(row)):
            if n in drops and _counts(drops[n], row["token"]):
                judged.setdefault(n, {})[row["gate"], row["name"], row["relation"]] = row
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
            for n in _numbers(source, _span_us(row))
            if n in drops
            and (n, name) not in listed
            and _counts(drops[n], token)
            # a later run found that it holds, or only warned
            and not any(
                key[1] == name and later["token"] > token and later["verdict"] != "overridden"
                for key, later in judged.get(n, {}).items()
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


def _span_us(row: Row) -> tuple[int, int] | None:
    """The bounds of the drops that a row is about; None if it lacks one."""
    lo, hi = row["drop_lo"], row["drop_hi"]
    return None if lo is None or hi is None else (micros(lo), micros(hi))


def _numbers(source: Source, span_us: tuple[int, int] | None) -> Sequence[int]:
    """The numbers of the drops in a span of time; none if the span is missing, or begins before the source's start."""
    lo, hi = span_us or (0, 0)
    if hi <= lo or lo < source.drops.start_us:
        return ()
    return range(source.drops.number_at(lo), source.drops.number_at(hi - 1) + 1)
