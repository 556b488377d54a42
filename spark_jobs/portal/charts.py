"""Charts as numbers: `portal.js` draws them, and the page has the same numbers as a sentence and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from spark_jobs.sources import Source

MOST_POINTS = 2_000
"""The most drops that a chart has: the newest ones."""


@dataclass(frozen=True)
class Series:
    """Values by drop number, with their title and unit."""

    title: str
    unit: str
    values: Mapping[int, int]


@dataclass(frozen=True)
class Chart:
    """A chart.

    `kind`: the function of `portal.js` that draws it, from `data`, which is JSON. `summary`: the chart in words.
    `columns` and `rows`: the same numbers as a table.
    """

    title: str
    kind: str
    summary: str
    data: dict[str, Any]
    columns: list[str] = field(default_factory=list)
    rows: Sequence[Sequence[Any]] = ()


def drops_chart(title: str, series: Sequence[Series], source: Source) -> Chart | None:
    """Values over drops as panels above one axis of drops; None if there are no values.

    A drop without a value is a gap. The table has the newest drop first.
    """
    drawn = [each for each in series if each.values]
    if not drawn:
        return None
    last = max(max(each.values) for each in drawn)
    first = max(min(min(each.values) for each in drawn), last - MOST_POINTS + 1)
    numbers = range(first, last + 1)
    labels = [source.drops.label(number) for number in numbers]
    summary = ". ".join(_summary(each, source, numbers) for each in drawn)
    data = {
        "labels": labels,
        "series": [
            {"title": each.title, "unit": each.unit, "values": [each.values.get(n) for n in numbers]} for each in drawn
        ],
    }
    with_values = [n for n in reversed(numbers) if any(n in each.values for each in drawn)]
    rows = [[source.drops.label(n), *(each.values.get(n, 0) for each in drawn)] for n in with_values]
    return Chart(title, "drops", summary, data, ["drop", *(f"{each.title} ({each.unit})" for each in drawn)], rows)


def _summary(series: Series, source: Source, numbers: range) -> str:
    """A series in words."""
    inside = {number: value for number, value in series.values.items() if number in numbers}
    if not inside:
        return f"{series.title} per drop: none"
    top = max(inside, key=lambda number: inside[number])
    span = f"{len(numbers):,} drops from {source.drops.label(numbers[0])} to {source.drops.label(numbers[-1])}"
    most = f"most {inside[top]:,} in {source.drops.label(top)}"
    return f"{series.title} per drop: {span}, {sum(inside.values()):,} {series.unit}, {most}"


def heat_chart(
    title: str,
    unit: str,
    classes: Sequence[str],
    counts: Mapping[tuple[int, int], int],
    source: Source,
    lacking: int | None = 0,
) -> Chart | None:
    """Counts by drop number and class as a heat map; None if there are no counts.

    Args:
        title: the chart's title.
        unit: the noun of a count.
        classes: the names of the classes, from the bottom up.
        counts: each count by the drop's number and the place of the class.
        source: the source of the drops.
        lacking: the table's value where there is no count; None if the count is unknown.
    """
    if not counts:
        return None
    numbers = range(min(n for n, _ in counts), max(n for n, _ in counts) + 1)[-MOST_POINTS:]
    labels = [source.drops.label(number) for number in numbers]
    cells = [[n - numbers[0], place, count] for (n, place), count in sorted(counts.items()) if n in numbers]
    by_class = [sum(count for (_, of), count in counts.items() if of == place) for place in range(len(classes))]
    words = ", ".join(f"{count:,} {name}" for name, count in zip(classes, by_class, strict=True) if count)
    rows = [
        [source.drops.label(n), *(counts.get((n, place), lacking) for place in range(len(classes)))]
        for n in reversed(numbers)
        if any((n, place) in counts for place in range(len(classes)))
    ]
    data = {"labels": labels, "classes": list(classes), "cells": cells, "unit": unit}
    return Chart(title, "heat", f"{title}: {words} {unit}", data, ["drop", *classes], rows)


def planned_chart(changes: Sequence[Any], plan: Mapping[str, Any] | None) -> Chart | None:
    """The rows that a plan predicted, beside those that the run changed; None without a plan.

    Args:
        changes: the changes of the run, each with `table` and `rows`.
        plan: the kept plan with its `counts` by table.
    """
    if plan is None or not changes:
        return None
    labels = [change.table for change in changes]
    planned = [sum(plan["counts"].get(label, {}).values()) for label in labels]
    changed = [change.rows for change in changes]
    series = [{"title": "planned", "values": planned}, {"title": "done", "values": changed}]
    data = {"labels": labels, "unit": "rows", "series": series}
    summary = f"planned {sum(planned):,} rows, changed {sum(changed):,}"
    rows = [list(row) for row in zip(labels, planned, changed, strict=True)]
    return Chart(
        "Rows that the plan predicted, and rows that the run changed",
        "groups",
        summary,
        data,
        ["table", "planned", "done"],
        rows,
    )


def finite(value: Any) -> Any:
    """A number as JSON has it: a decimal as a float, None for a number without a finite value."""
    value = float(value) if isinstance(value, Decimal) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
