"""The type of a column guessed from its cells: the first type with which the product's own reader reads most of them.

A value that does not read with the type is later quarantined, and `init` reports it. Nearly all texts have to read as
numbers or truth values, since a column of text would read them all. For times, and for numbers of JSON, more than half
have to read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_jobs.kernels.records import ColumnSpec
from spark_jobs.kernels.records.slow import Cell
from spark_jobs.kernels.records.tokens import LITERAL, NULL, TEXT
from spark_jobs.kernels.records.values import read_column

NULLS = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "\\N")
"""Texts that mean no value, in columns whose other values are not text."""
_NEARLY_ALL, _MOST = 0.95, 0.5
_TRIED_PATTERNS = 500
"""The number of values with which each pattern of a time is tried."""
_CODE = re.compile(r"[+-]?0\d+.*")
"""Pattern of a code that begins with 0, which is no number."""
_LONG_FLOAT = re.compile(r"[+-]?\d{16,}(\.\d*)?")
_DATE_LIKE = re.compile(r".*\d.*[-/. :].*\d.*")
_EPOCH_NAME = re.compile(r"(^|_)(time|timestamp|ts|at|epoch|when)(_|$)")
_EPOCH_RANGE_S = 631_152_000, 4_102_444_800
"""The years 1990 to 2099, in seconds since 1970: if a column is named like a time and its numbers are in this range,
they count since 1970."""
_EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})*|\d+),\d+")
_TIMES = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S %z")
_DATES = (
    "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%b %d %Y", "%b %d, %Y", "%d %b %Y",
    "%d-%b-%Y", "%B %d %Y", "%B %d, %Y", "%d %B %Y",
)  # fmt: skip
_PATTERNS = (*(f"{date} {time}" for date in _DATES for time in _TIMES), "%d/%b/%Y:%H:%M:%S %z", "%Y%m%dT%H%M%S%z")


@dataclass(frozen=True, slots=True)
class Kind:
    """A guessed type: the type in a source file, the format of a time, and another format that fits as well."""

    type: str
    format: str = "iso"
    doubt: str = ""

    @property
    def is_time(self) -> bool:
        """True if the type is a timestamp or a date."""
        return self.type in ("timestamp", "date")


def read_by(spec: ColumnSpec, cells: Sequence[Cell]) -> np.ndarray:
    """Flags: true for each cell that the reader reads with `spec`. Cells without a value are false."""
    texts = [text.encode("utf-8", "replace") for _, text in cells]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    data.setflags(write=False)
    kinds = np.array([kind for kind, _ in cells], np.uint8)
    good = np.ones(len(cells), bool)
    values = read_column(spec, data, ends[:-1].copy(), ends[1:].copy(), kinds, good)
    return values.present & (values.rules == 0)


def writes_commas(columns: Iterable[Sequence[Cell]]) -> dict[str, str]:
    """The keys of a landing whose numbers have a decimal comma; empty for others. It has one if some column has only
    numbers, some of them with a comma."""
    for cells in columns:
        texts = {text.strip() for kind, text in cells if kind == TEXT and text} - {*NULLS}
        with_comma = {text for text in texts if _COMMA.fullmatch(text)}
        rest = texts - with_comma
        if with_comma and all(re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})*|[+-]?\d+", text) for text in rest):
            grouped = any("." in text for text in texts)
            return {"decimal": ",", "thousands": "."} if grouped else {"decimal": ","}
    return {}


def kind_of(name: str, cells: Sequence[Cell], spec: ColumnSpec) -> Kind:
    """The type of a column; `spec` describes how its values are written, and which texts mean no value."""
    given = [cell for cell in cells if cell[0] != NULL and not (cell[0] == TEXT and cell[1] in spec.null_values)]
    if not given:
        return Kind("string")
    share = _NEARLY_ALL if any(kind == TEXT for kind, _ in given) else _MOST
    literal = sum(kind == LITERAL for kind, _ in given)
    if literal > len(given) / 2:
        share = _MOST
    codes = sum(kind == TEXT and _is_code(text) for kind, text in given)
    words = sum(text.lower() in ("true", "false", "t", "f", "yes", "no", "y", "n") for _, text in given)

    def reads(kind: str, least: float, formats: tuple[str, ...] = ("iso",)) -> bool:
        if kind == "float" and any(_LONG_FLOAT.fullmatch(text) for _, text in given if _ == TEXT):
            return False
        tried = replace(spec, type=kind, time_formats=formats)  # type: ignore[arg-type]
        return float(read_by(tried, given).mean()) > least

    if words >= share * len(given) and reads("bool", share - 0.01):
        return Kind("bool")
    if not codes:
        for kind in ("int", "float"):
            is_epoch = reads(kind, _MOST) and epoch_of(name, Kind(kind), given, spec) is not None
            if is_epoch or reads(kind, share - 0.01):
                return Kind(kind)
    if reads("date", _MOST):
        return Kind("date")
    if reads("timestamp", _MOST):
        return Kind("timestamp")
    return _by_pattern(given, spec) or Kind("string")


def _is_code(text: str) -> bool:
    """True if a text begins with a zero like a code, which makes its column one of codes. Decimal numbers and dates
    such as 0000-00-00 do not count."""
    return bool(_CODE.fullmatch(text)) and "." not in text and not _DATE_LIKE.fullmatch(text)


def _by_pattern(given: Sequence[Cell], spec: ColumnSpec) -> Kind | None:
    """The pattern that reads the most values, which must be more than half of them; the first one if several read as
    many."""
    rows = Counter(text for kind, text in given if kind == TEXT)
    texts = sorted(rows)[:: max(1, len(rows) // _TRIED_PATTERNS)]
    tried, weights = [(TEXT, text) for text in texts], np.array([rows[text] for text in texts])
    date_like = np.array([bool(_DATE_LIKE.fullmatch(text)) or " " in text for text in texts], bool)
    if weights[date_like].sum() <= weights.sum() / 2:
        return None
    counts: dict[tuple[str, str], int] = {}
    for kind, pattern in [*(("timestamp", p) for p in _PATTERNS), *(("date", p) for p in _DATES)]:
        column = replace(spec, type=kind, time_formats=(pattern,))  # type: ignore[arg-type]
        counts[kind, pattern] = int(weights[read_by(column, tried)].sum())
    best = max(counts, key=counts.__getitem__)
    if counts[best] <= weights.sum() / 2:
        return None
    others = [p for (_, p), n in counts.items() if n == counts[best] and p != best[1]]
    return Kind(best[0], best[1], others[0] if others else "")


def epoch_of(name: str, kind: Kind, cells: Sequence[Cell], spec: ColumnSpec) -> Kind | None:
    """The unit of a column of numbers that is named like a time and lies in the years 1990 to 2099; None for other
    columns."""
    if kind.type not in ("int", "float") or not _EPOCH_NAME.search(name):
        return None
    read = read_by(replace(spec, type="float"), cells)
    numbers = [float(text) for (_, text), good in zip(cells, read, strict=True) if good]
    if not numbers:
        return None
    first_s, last_s = _EPOCH_RANGE_S
    least, greatest = min(numbers), max(numbers)
    fits = (unit for unit, n in _EPOCH_UNITS.items() if first_s * n <= least and greatest < last_s * n)
    unit = next(fits, None)
    return None if unit is None else Kind("timestamp", unit)
