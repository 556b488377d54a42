"""The format of a column of times: a pattern, or a unit since 1970, each with the numbers that speak for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from spark_jobs.engine.records import TEXT, Cell, ColumnSpec
from spark_jobs.landing.guessed_kinds import Kind, read_by

DATE_LIKE = re.compile(r".*\d.*[-/. :].*\d.*")
_TRIED_PATTERNS = 500
"""The number of values with which each pattern of a time is tried."""
_PROBED_TEXTS = 30
"""The number of values of which a pattern has to read one before it is tried with more."""
_NEARLY_ALL = 0.95
_EPOCH_NAME = re.compile(r"(^|_)(time|timestamp|ts|at|epoch|when)(_|$)")
_EPOCH_RANGE_S = 631_152_000, 4_102_444_800
"""The years 1990 to 2099, in seconds since 1970: if a column is named like a time and its numbers are in this range,
they count since 1970."""
_EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}
_UNIT_NAMES = {
    "epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds", "epoch_ns": "nanoseconds",
}  # fmt: skip
_TIMES = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S %z")
_DATES = (
    "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%b %d %Y", "%b %d, %Y", "%d %b %Y",
    "%d-%b-%Y", "%B %d %Y", "%B %d, %Y", "%d %B %Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%b-%y",
)  # fmt: skip
_PATTERNS = (*(f"{date} {time}" for date in _DATES for time in _TIMES), "%d/%b/%Y:%H:%M:%S %z", "%Y%m%dT%H%M%S%z")
_COMPACT = {14: ("timestamp", "%Y%m%d%H%M%S"), 12: ("timestamp", "%Y%m%d%H%M"), 8: ("date", "%Y%m%d")}
"""Patterns of times in digits alone, by their number of digits."""
_COMPACT_TEXT = re.compile(r"(199\d|20\d\d)\d{4}(\d{4}(\d{2})?)?")
"""A time of the years 1990 to 2099 in digits alone."""
_TWO_NUMBERS = re.compile(r"%([dm])([-/.])%([dm])\2")
"""The two numbers with which a date begins: day and month, or month and day."""


def pattern_of(cells: Sequence[Cell], spec: ColumnSpec) -> Kind | None:
    """The pattern that reads the most values, which must be more than half of them; the first one if several read as
    many. Texts that look like times and that no pattern reads give a column of text with the best patterns as evidence;
    other texts give None."""
    rows = Counter(text for kind, text in cells if kind == TEXT)
    texts = sorted(rows)[:: max(1, len(rows) // _TRIED_PATTERNS)]
    date_like = sum(rows[text] for text in texts if DATE_LIKE.fullmatch(text) or " " in text)
    if date_like <= sum(rows[text] for text in texts) / 2:
        return None
    sample = {text: rows[text] for text in texts}
    candidates = [*(("timestamp", p) for p in _PATTERNS), *(("date", p) for p in _DATES)]
    # a pattern that reads more than half of the texts reads some of a few
    few = dict.fromkeys(texts[:: max(1, len(texts) // _PROBED_TEXTS)], 1)
    candidates = [each for each in candidates if _reads(each, few, spec)]
    if not candidates:
        return None
    counts = {each: _reads(each, sample, spec) for each in candidates}
    best = max(counts, key=counts.__getitem__)
    others = [p for (_, p), n in counts.items() if n == counts[best] and p != best[1]]
    doubt = others[0] if others else ""
    twin = (best[0], _swap_day_and_month(best[1]))
    if twin in counts:
        # a few first numbers above 12 decide it, and the sample may have none of them
        counts |= {each: _reads(each, rows, spec) for each in (best, twin)}
        best, twin = sorted((best, twin), key=lambda each: -counts[each])
        doubt = twin[1] if counts[best] == counts[twin] else ""
    total = sum(sample.values()) if twin not in counts else rows.total()
    if counts[best] <= total / 2:
        tried = f"{counts[best]:,} of {total:,} values read as {best[1]}"
        tried += f" and {counts[twin]:,} as {twin[1]}" if twin in counts else ""
        return Kind("string", evidence=f"{tried}, so no format reads most of them")
    # a date that no order reads, such as 31/06, says nothing about it
    good = Counter(dict(compress(rows.items(), _flags(best, rows, spec)))) if twin in counts else Counter[str]()
    return Kind(*best, doubt, _evidence(best[1], good) if good else "")


def _reads(kind_and_pattern: tuple[str, str], rows: Mapping[str, int], spec: ColumnSpec) -> int:
    """The number of rows whose text reads; `rows`: number of rows by text."""
    return int(np.fromiter(rows.values(), np.int64, len(rows))[_flags(kind_and_pattern, rows, spec)].sum())


def _flags(kind_and_pattern: tuple[str, str], texts: Iterable[str], spec: ColumnSpec) -> np.ndarray:
    """A flag for each text: True if it reads."""
    kind, pattern = kind_and_pattern
    column = replace(spec, type=kind, time_formats=(pattern,))  # type: ignore[arg-type]
    return read_by(column, [(TEXT, text) for text in texts])


def _swap_day_and_month(pattern: str) -> str:
    """The pattern with day and month in the other order; empty for a pattern that doesn't begin with both as
    numbers."""
    match = _TWO_NUMBERS.match(pattern)
    return "" if match is None else f"%{match[3]}{match[2]}%{match[1]}{match[2]}{pattern[match.end() :]}"


def _evidence(pattern: str, rows: Counter[str]) -> str:
    """The numbers that say whether a date begins with the day or the month."""
    first, second = 0, 0
    for text, n in rows.items():
        numbers = re.match(r"\s*(\d+)\D(\d+)", text)
        if numbers is not None:
            first += n * (int(numbers[1]) > 12)
            second += n * (int(numbers[2]) > 12)
    order, n, which = (
        ("day before month", first, "first") if pattern[1] == "d" else ("month before day", second, "second")
    )
    if not first and not second:
        return f"{order} is a guess: none of {rows.total():,} dates has a first or second number above 12"
    return f"{order}: {n:,} of {rows.total():,} dates have a {which} number above 12"


def compact_of(cells: Sequence[Cell], spec: ColumnSpec) -> Kind | None:
    """The pattern of a column whose values are nearly all times in digits alone, such as 20240301; None for others."""
    filled_cells = [cell for cell in cells if cell[1] and cell[1] not in spec.null_values]
    likely = [cell for cell in filled_cells if _COMPACT_TEXT.fullmatch(cell[1])]
    if not likely or len(likely) < _NEARLY_ALL * len(filled_cells):
        return None
    # strptime also takes numbers of one digit, so that the length decides
    (length, _), *_ = Counter(len(text) for _, text in likely).most_common(1)
    kind, pattern = _COMPACT[length]
    read = int(read_by(replace(spec, type=kind, time_formats=(pattern,)), likely).sum())  # type: ignore[arg-type]
    if read < _NEARLY_ALL * len(filled_cells):
        return None
    return Kind(kind, pattern, evidence=f"{read:,} of {len(filled_cells):,} values read as {pattern}")


def epoch_of(name: str | None, kind: Kind, cells: Sequence[Cell], spec: ColumnSpec) -> Kind | None:
    """The unit of a column of numbers that lies in the years 1990 to 2099; None for other columns. `name`: its name,
    which must be like that of a time; None: any name will do."""
    if kind.type not in ("int", "float") or (name is not None and not _EPOCH_NAME.search(name)):
        return None
    read = read_by(replace(spec, type="float"), cells)
    numbers = np.array([float(text) for (_, text), good in zip(cells, read, strict=True) if good])
    if not numbers.size:
        return None
    first_s, last_s = _EPOCH_RANGE_S
    fits = {u: int(((first_s * n <= numbers) & (numbers < last_s * n)).sum()) for u, n in _EPOCH_UNITS.items()}
    unit = max(fits, key=fits.__getitem__)
    evidence = (
        f"{fits[unit]:,} of {numbers.size:,} numbers are {_UNIT_NAMES[unit]} since 1970 in the years 1990 to 2099"
    )
    if fits[unit] >= _NEARLY_ALL * numbers.size:
        return Kind("timestamp", unit, evidence=evidence)
    mixed = [f"{n:,} of {numbers.size:,} numbers fit {u}" for u, n in fits.items() if n]
    if sum(fits.values()) >= _NEARLY_ALL * numbers.size:
        units = f"; `format: [{', '.join(u for u, n in fits.items() if n)}]` reads several units"
        return replace(kind, evidence=" and ".join(mixed) + units)
    return None
