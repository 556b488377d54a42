"""The order of day and month in columns whose dates read both ways: that of another column, or of the files' names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from spark_jobs.engine.records import Cell
from spark_jobs.landing.guessed_kinds import Kind

_FIRST = re.compile(r"%([dm])[-/.]%[dm]")
_NEAR = timedelta(days=3)
"""The most days between an event and the date of its file that speak for an order: most events come within them."""
_NEARLY_ALL = 0.9
_WORDS = {"d": "day before month", "m": "month before day"}


def settled_orders(
    kinds: Mapping[str, Kind], cells: Mapping[str, Sequence[Sequence[Cell]]], dates: Sequence[date | None]
) -> dict[str, Kind]:
    """The columns of `kinds` whose order of day and month something outside of the column settles, with their types.

    Args:
        kinds: the type of each column by its name.
        cells: its cells in each file.
        dates: the date in each file's name.
    """
    sure = {column: order for column, kind in kinds.items() if not kind.doubt and (order := _order(kind.format))}
    settled = {}
    for column, kind in kinds.items():
        if not kind.doubt or not _order(kind.format) or not _order(kind.doubt):
            continue
        by_order = {_order(pattern): pattern for pattern in (kind.format, kind.doubt)}
        order, reason = _order_of_names(by_order, cells[column], dates)
        if not order and len({*sure.values()}) == 1:
            like, order = next(iter(sure.items()))
            reason = f"as in `{like}`"
        if order in by_order:
            evidence = f"{_WORDS[order]}, {reason}: its own dates read both ways"
            settled[column] = replace(kind, format=by_order[order], doubt="", evidence=evidence)
    return settled


def _order(pattern: str) -> str:
    """The first of day and month in a pattern that begins with both as numbers, `d` or `m`; else empty."""
    match = _FIRST.match(pattern)
    return "" if match is None else match[1]


def _order_of_names(
    by_order: Mapping[str, str], cells: Sequence[Sequence[Cell]], dates: Sequence[date | None]
) -> tuple[str, str]:
    """The order with which nearly all dates are near that of their file's name, and few with the other one, and the
    numbers; both are empty if there is none."""
    near, n_dates = Counter[str](), 0
    for of_file, named in zip(cells, dates, strict=True):
        if named is None:
            continue
        for text, n in Counter(text for _, text in of_file).items():
            read = {order: _day(text, pattern) for order, pattern in by_order.items()}
            if None in read.values():
                continue  # no date, or one that reads one way alone
            n_dates += n
            near.update({order: n for order, day in read.items() if day is not None and abs(day - named) <= _NEAR})
    if not n_dates:
        return "", ""
    order, most = max(((order, near[order]) for order in by_order), key=lambda each: each[1])
    if most < _NEARLY_ALL * n_dates or near.total() - most > (1 - _NEARLY_ALL) * n_dates:
        return "", ""
    return order, f"so that {most:,} of {n_dates:,} dates are near the date in their file's name"


def _day(text: str, pattern: str) -> date | None:
    try:
        return datetime.strptime(text.strip(), pattern).date()  # noqa: DTZ007 (days are compared alone)
    except ValueError:
        return None
