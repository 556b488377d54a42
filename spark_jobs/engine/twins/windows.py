"""The slow, obvious twin of the window kernels: integers, fractions and quadratic loops, straight from definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

LEAST, GREATEST = -(2**63), 2**63 - 1
_DECIMALS = Context(prec=200, rounding=ROUND_HALF_UP)
"""Enough digits that no sum of decimals is rounded, and that the rounding of a quotient never changes a result."""


@dataclass(frozen=True)
class NaiveRow:
    """One row: its key, its time, and the least last instant of a window that it counts in."""

    key: Hashable
    time: int
    min_end: int = LEAST


@dataclass(frozen=True, order=True)
class Window:
    """One window of one key."""

    key: Any
    start: int
    end: int


Content = dict[Window, list[int]]
"""The numbers of the rows that count in each window."""


def _saturate(bound: int) -> int:
    return min(max(bound, LEAST), GREATEST)


def _fill(rows: Sequence[NaiveRow], windows: set[Window]) -> Content:
    """The rows that count in each of these closed windows; windows without a row are left out."""
    content = {
        window: [
            number
            for number, row in enumerate(rows)
            if row.key == window.key and window.start <= row.time <= window.end and row.min_end <= window.end
        ]
        for window in windows
    }
    return {window: numbers for window, numbers in content.items() if numbers}


def sliding_windows(rows: Sequence[NaiveRow], *, size: int, clip_at_zero: bool, tick: int = 1) -> Content:
    """Every left window whose own row counts in it, and every right window that contains a row; both bounds are
    inclusive. Times are multiples of `tick`."""
    windows = set()
    for row in rows:
        start, end = row.time - size, row.time
        if clip_at_zero and start < 0:
            start, end = 0, size
        if row.min_end <= end:
            windows.add(Window(row.key, _saturate(start), end))
        if row.min_end <= _saturate(row.time + size) and row.time <= GREATEST - tick:
            windows.add(Window(row.key, row.time + tick, _saturate(row.time + tick + size)))
    return _fill(rows, windows)


def session_windows(rows: Sequence[NaiveRow], *, gap: int) -> Content:
    """The rows of a key in time order, cut where the distance to the row before is greater than `gap`."""
    content: Content = {}
    for key in {row.key for row in rows}:
        numbers = [n for n, row in enumerate(rows) if row.key == key and row.min_end <= row.time + gap]
        pieces: list[list[int]] = []
        for number in sorted(numbers, key=lambda n: rows[n].time):
            if pieces and rows[number].time - rows[pieces[-1][-1]].time <= gap:
                pieces[-1].append(number)
            else:
                pieces.append([number])
        for piece in pieces:
            content[Window(key, rows[piece[0]].time, rows[piece[-1]].time)] = sorted(piece)
    return content


def hopping_windows(rows: Sequence[NaiveRow], *, size: int, advance: int, offset: int) -> Content:
    """Every window `[k*advance + offset, k*advance + offset + size)` over a row that ends after the row's `min_end`."""
    content: Content = {}
    for number, row in enumerate(rows):
        start = (row.time - offset) // advance * advance + offset
        while start + size > row.time:
            if start + size - 1 >= row.min_end:
                window = Window(row.key, _saturate(start), _saturate(start + size))
                content.setdefault(window, []).append(number)
            start -= advance
    return content


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def exact_sum(values: Sequence[Any]) -> Any:
    """The exact sum; for doubles rounded once, at the end."""
    if any(isinstance(value, Decimal) for value in values):
        with localcontext(_DECIMALS):
            return sum(values)
    if not any(isinstance(value, float) for value in values):
        return sum(values)
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    return _round(sum(map(Fraction, values), Fraction()))


def _round(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def exact_variance(values: Sequence[Any]) -> float | None:
    """The variance of the sample, computed in fractions; None for fewer than two values."""
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    numbers = [Fraction(float(value)) for value in values]
    n = len(numbers)
    return _round((n * sum((x * x for x in numbers), Fraction()) - sum(numbers, Fraction()) ** 2) / (n * (n - 1)))


def _by_value(value: Any) -> tuple[bool, Any]:
    """A sort key for values: NaN is last, and -0.0 before 0.0."""
    if _is_nan(value):
        return (True, 0)
    return (False, (value, math.copysign(1, value)) if isinstance(value, float) else value)


def mean(values: Sequence[Any], digits: tuple[int, int] | None = None) -> Any:
    """The exact mean, rounded once, to the nearest double. With `digits` (precision and scale of decimals), rounded to
    four more places, halves away from zero."""
    if digits is not None:
        scale = min(digits[1] + 4, 38)
        with localcontext(_DECIMALS):
            return Decimal(sum(values) / len(values)).quantize(Decimal(1).scaleb(-scale))
    if not all(map(math.isfinite, values)):
        return exact_sum(values)
    return _round(sum(map(Fraction, values), Fraction()) / len(values))


VALUE_AGGREGATES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sum": lambda values: exact_sum(values) if values else None,
    "avg": lambda values: mean(values) if values else None,
    "min": lambda values: min(values, key=_by_value) if values else None,
    "max": lambda values: max(values, key=_by_value) if values else None,
    "variance": exact_variance,
    "count_distinct": lambda values: len({"nan" if _is_nan(value) else value for value in values}),
}
"""Functions of the values of one window, in any order and without nulls, by the names of aggregates."""


def edge(values: Sequence[Any], order: Sequence[tuple[Any, ...]], *, last: bool) -> Any:
    """The first or last value by (`order`, value), without nulls; None if there is no value."""
    ordered = [
        (*place, _by_value(value), value) for place, value in zip(order, values, strict=True) if value is not None
    ]
    if not ordered:
        return None
    chosen = max(ordered, key=lambda entry: entry[:-1]) if last else min(ordered, key=lambda entry: entry[:-1])
    return chosen[-1]
