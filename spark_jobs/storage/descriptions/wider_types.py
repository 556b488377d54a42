"""Comparison of column types: a column whose type becomes wider keeps its values."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_BIGINT_DIGITS = 19
MOST_EXACT = 1 << 53
"""Whole numbers up to it have exact doubles; not all greater ones do."""


def widens(stored: str, wanted: str) -> bool:
    """True if `wanted` is a wider type that can have each value of `stored`; types are named as in Spark.

    A bigint becomes a decimal with 19 or more digits before the point or, for values up to `MOST_EXACT`, a double. A
    decimal becomes one with no fewer digits on either side. Lists are compared by their elements.
    """
    if stored.startswith("array<") and wanted.startswith("array<"):
        return widens(_element(stored), _element(wanted))
    digits = _DECIMAL.fullmatch(wanted)
    if stored == "bigint":
        return wanted == "double" or (digits is not None and int(digits[1]) - int(digits[2]) >= _BIGINT_DIGITS)
    narrower = _DECIMAL.fullmatch(stored)
    if narrower is None or digits is None or stored == wanted:
        return False
    (precision, scale), (wide, wide_scale) = (tuple(map(int, match.groups())) for match in (narrower, digits))
    return wide_scale >= scale and wide - wide_scale >= precision - scale


def _element(kind: str) -> str:
    return kind.removeprefix("array<").removesuffix(">")


def beyond_exact(column: str, kind: str) -> str:
    """SQL condition: a value of a column of whole numbers, or of lists of them, is beyond `MOST_EXACT`."""
    if kind.startswith("array<"):
        return f"exists({column}, x -> x < -{MOST_EXACT} OR x > {MOST_EXACT})"
    return f"{column} < -{MOST_EXACT} OR {column} > {MOST_EXACT}"
