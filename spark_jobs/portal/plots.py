"""Plots and calendars as numbers that the templates draw, without any HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.times import instant

WIDTH, HEIGHT = 720.0, 90.0


@dataclass(frozen=True)
class Bar:
    """A bar of a plot, in units of its view box; `title` has its drop and its value in words."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Plot:
    """Values over drops as bars, in a view box of WIDTH by HEIGHT. `summary` describes it in words."""

    title: str
    bars: list[Bar]
    first: str
    last: str
    most: int
    unit: str
    summary: str


def bars(title: str, values: Mapping[int, int], source: Source, unit: str) -> Plot | None:
    """The plot of `values` by drop number, with gaps for drops without a value; None if there are no values."""
    if not values:
        return None
    numbers = range(min(values), max(values) + 1)
    most = max(1, *values.values())
    step = WIDTH / len(numbers)
    drawn = []
    for place, number in enumerate(numbers):
        value = values.get(number)
        if value:
            height = max(1.0, HEIGHT * value / most)
            label = f"{source.drops.label(number)}: {value:,} {unit}"
            drawn.append(
                Bar(round(place * step, 2), round(HEIGHT - height, 2), round(step * 0.82, 2), round(height, 2), label)
            )
    first, last = source.drops.label(numbers[0]), source.drops.label(numbers[-1])
    total, top = sum(values.values()), max(values, key=lambda number: values[number])
    span = f"{len(numbers):,} drops from {first} to {last}"
    summary = f"{title}: {span}, {total:,} {unit}, most {most:,} in {source.drops.label(top)}"
    return Plot(title, drawn, first, last, most, unit, summary)


@dataclass(frozen=True)
class Day:
    """A day of the calendar: the verdict on the drops that start on it, in words and as a mark, and a linked run."""

    number: int
    verdict: str
    mark: str
    label: str
    run_id: str | None


@dataclass(frozen=True)
class Month:
    """A month of the calendar: `before` empty cells, Monday first, then its days."""

    title: str
    before: int
    days: list[Day]


VERDICTS = {
    "failed": "✗",
    "quarantine": "!",
    "missing": "?",
    "overridden": "≠",
    "warned": "~",
    "waiting": "…",
    "empty": "–",
    "ok": "✓",
}
"""The verdicts on a drop, the worst first, each with its mark: colour is never the only sign."""


def calendar(cells: Sequence[tuple[int, str, str, str | None]], source: Source) -> list[Month]:
    """Months of days, from `(seq_no, verdict, sentence, run_id)` of each drop.

    A day has the verdict of its worst drop.
    """
    order = list(VERDICTS)
    by_day: dict[datetime, list[tuple[int, str, str, str | None]]] = {}
    for cell in cells:
        lo = instant(source.drops.interval(cell[0])[0])
        by_day.setdefault(lo.replace(hour=0, minute=0), []).append(cell)
    months: dict[str, Month] = {}
    for day, of_day in sorted(by_day.items()):
        _, verdict, sentence, run_id = min(of_day, key=lambda cell: order.index(cell[1]))
        more = f" (and {len(of_day) - 1} more drops)" if len(of_day) > 1 else ""
        title = f"{day:%B %Y}"
        if title not in months:
            months[title] = Month(title, day.weekday(), [])
        days = months[title].days
        missing = range(days[-1].number + 1, day.day) if days else ()
        days.extend(Day(number, "none", "", "", None) for number in missing)
        days.append(Day(day.day, verdict, VERDICTS[verdict], f"{day:%Y-%m-%d}: {sentence}{more}", run_id))
    return list(months.values())
