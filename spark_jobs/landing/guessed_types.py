"""The type of a column guessed from its cells: the first type with which the product's own reader reads most of them.

A value that does not read with the type is later quarantined, and `init` reports it. Nearly all texts have to read as
numbers or truth values, since a column of text would read them all. For times, and for numbers of JSON, more than half
have to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.engine.records import LITERAL, NULL, TEXT, Cell, ColumnSpec
from spark_jobs.landing.guessed_kinds import Kind, read_by
from spark_jobs.landing.guessed_times import DATE_LIKE, epoch_of, pattern_of

NULLS = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "\\N")
"""Texts that mean no value, in columns whose other values are not text."""
_NEARLY_ALL, _MOST = 0.95, 0.5
_CODE = re.compile(r"[+-]?0\d+.*")
"""Pattern of a code that begins with 0, which is no number."""
_LONG_FLOAT = re.compile(r"[+-]?\d{16,}(\.\d*)?")


def kind_of(name: str, cells: Sequence[Cell], spec: ColumnSpec) -> Kind:
    """The type of a column; `spec` describes how its values are written, and which texts mean no value."""
    filled_cells = [cell for cell in cells if cell[0] != NULL and not (cell[0] == TEXT and cell[1] in spec.null_values)]
    if not filled_cells:
        return Kind("string")
    share = _NEARLY_ALL if any(kind == TEXT for kind, _ in filled_cells) else _MOST
    literal = sum(kind == LITERAL for kind, _ in filled_cells)
    if literal > len(filled_cells) / 2:
        share = _MOST
    codes = sum(kind == TEXT and _is_code(text) for kind, text in filled_cells)
    words = sum(text.lower() in ("true", "false", "t", "f", "yes", "no", "y", "n") for _, text in filled_cells)

    def reads(kind: str, least: float, formats: tuple[str, ...] = ("iso",)) -> bool:
        if kind == "float" and any(_LONG_FLOAT.fullmatch(text) for _, text in filled_cells if _ == TEXT):
            return False
        tried = replace(spec, type=kind, time_formats=formats)  # type: ignore[arg-type]
        return float(read_by(tried, filled_cells).mean()) > least

    if words >= share * len(filled_cells) and reads("bool", share - 0.01):
        return Kind("bool")
    if not codes:
        for kind in ("int", "float"):
            is_epoch = reads(kind, _MOST) and epoch_of(name, Kind(kind), filled_cells, spec) is not None
            if is_epoch or reads(kind, share - 0.01):
                return Kind(kind)
    if reads("date", _MOST):
        return Kind("date")
    if reads("timestamp", _MOST):
        return Kind("timestamp")
    return pattern_of(filled_cells, spec) or Kind("string")


def _is_code(text: str) -> bool:
    """True if a text begins with a zero like a code, which makes its column one of codes. Decimal numbers and dates
    such as 0000-00-00 do not count."""
    return bool(_CODE.fullmatch(text)) and "." not in text and not DATE_LIKE.fullmatch(text)
