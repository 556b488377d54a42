"""The calendar of a source's drops: months of days, each with a verdict. The templates draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.sources import Source


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

    A day is one of the source's time zone, and has the verdict of its worst drop.
    """
    order = list(VERDICTS)
    by_day: dict[date, list[tuple[int, str, str, str | None]]] = {}
    for cell in cells:
        by_day.setdefault(source.drops.local_start(cell[0]).date(), []).append(cell)
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
