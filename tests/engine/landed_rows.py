"""Random histories of landings that bring rows and take some back, and what the rows that stand answer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.engine.chunks import Row

TIMELINES = ("seen", "sent")


@dataclass(frozen=True)
class Landed:
    """Rows that one landing brought (diff 1) or took back (diff -1) as one chunk."""

    diff: int
    landing: int
    rows: list[Row]


def landed_rows(chance: random.Random, components: Sequence[str]) -> tuple[list[Landed], list[Row]]:
    """A history of a few landings as chunks in no order, and the rows that stand in the end."""
    landed: list[Landed] = []
    standing: dict[int, Row] = {}
    gone: dict[int, Row] = {}
    unused = chance.sample(range(40), 40)
    for landing in range(1, chance.randint(2, 7)):
        back = [row for row in standing.values() if chance.random() < 0.35]
        again = [row for row in gone.values() if chance.random() < 0.2]
        new = [_row(chance, unused.pop(), components) for _ in range(chance.randint(0, 4))]
        gone |= {row.row_id: standing.pop(row.row_id) for row in back}
        standing |= {row.row_id: row for row in [*again, *new]}
        gone = {row_id: row for row_id, row in gone.items() if row_id not in standing}
        landed += [Landed(-1, landing, rows) for rows in _pieces(chance, back)]
        landed += [Landed(1, landing, rows) for rows in _pieces(chance, [*again, *new])]
    chance.shuffle(landed)
    return landed or [Landed(1, 1, [Row(99, {"seen": 50}, {})])], list(standing.values())


def latest_of(
    rows: Iterable[Row], timeline: str, at: int, components: Sequence[str]
) -> dict[str, tuple[int, int, int]]:
    """(time, row id, value) per component of the row with a value that is the last one at or before `at`."""
    latest = {}
    for name in components:
        cells = [
            (row.times[timeline], row.row_id, row.data[name])
            for row in rows
            if row.times.get(timeline, at + 1) <= at and row.data.get(name) is not None
        ]
        if cells:
            latest[name] = max(cells)
    return latest


def range_of(
    rows: Iterable[Row], timeline: str, lo: int, hi: int, components: Sequence[str]
) -> list[tuple[int | None, ...]]:
    """(row id, time, values) by (time, row id) of the rows in `[lo, hi]` that have a value of any component."""
    inside = [
        row
        for row in rows
        if lo <= row.times.get(timeline, hi + 1) <= hi and any(row.data.get(name) is not None for name in components)
    ]
    inside.sort(key=lambda row: (row.times[timeline], row.row_id))
    return [(row.row_id, row.times[timeline], *(row.data.get(name) for name in components)) for row in inside]


def _row(chance: random.Random, row_id: int, components: Sequence[str]) -> Row:
    timelines = chance.choice([("seen",), ("sent",), TIMELINES, TIMELINES])
    values = {name: chance.choice([None, None, chance.randint(0, 9)]) for name in components}
    return Row(row_id, {timeline: chance.randint(0, 12) for timeline in timelines}, values)


def _pieces(chance: random.Random, rows: Sequence[Row]) -> list[list[Row]]:
    """The rows as chunks: one set of timelines and ascending ids each, cut at random."""
    pieces: list[list[Row]] = []
    for timelines in {tuple(row.times): None for row in rows}:
        alike = sorted((row for row in rows if tuple(row.times) == timelines), key=lambda row: row.row_id)
        while alike:
            size = chance.randint(1, len(alike))
            pieces, alike = [*pieces, alike[:size]], alike[size:]
    return pieces
