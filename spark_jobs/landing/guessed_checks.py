"""Checks that a sample suggests. They only warn: the next file may break a rule that all rows of a sample meet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

MOST_CHECKS = 12
"""The most checks that are suggested: nobody reads through more."""
_MOST_VALUES = 12
_LONGEST_NAME = 50
"""The most characters of a column's name, so that a check can be named after it."""
_ROWS_A_VALUE = 10
"""Rows that must share a value of a column on average, so that its values look like a list."""


def guessed_checks(kinds: Mapping[str, str], values: Mapping[str, Sequence[Any]], n_rows: int) -> list[str]:
    """The lines of `checks:`; none if nothing is suggested.

    Args:
        kinds: the type of each column as the source file declares it.
        values: its values in the sample, without the texts for missing values.
        n_rows: the sample's records.
    """
    lines = [
        line
        for guess in (_list_check, _range_check, _not_null_check)
        for column, kind in kinds.items()
        if len(column) <= _LONGEST_NAME and (line := guess(column, kind, values[column], n_rows)) is not None
    ]
    if not lines:
        return []
    comment = "# Guesses from the sample, which only warn: correct them, then say `treatment: fail` or `quarantine`."
    return [comment, "checks:", *lines[:MOST_CHECKS], ""]


def _list_check(column: str, kind: str, values: Sequence[Any], n_rows: int) -> str | None:
    """The check of a text column that has few values."""
    distinct = sorted({*values})
    few = 1 < len(distinct) <= _MOST_VALUES and len(values) >= _ROWS_A_VALUE * len(distinct)
    if kind != "string" or not few:
        return None
    listed = ", ".join(json.dumps(value, ensure_ascii=False) for value in distinct)
    return _line(f"{column}_known", f"kind: in, column: {column}, values: [{listed}]")


def _range_check(column: str, kind: str, values: Sequence[Any], n_rows: int) -> str | None:
    """The check of a column of numbers. Its bounds are the sample's, widened by the range of the sample on each side,
    but not below 0 if no value is negative."""
    if kind not in ("int", "float") or len(values) < _ROWS_A_VALUE:
        return None
    numbers = [Decimal(value.partition(".")[0] if kind == "int" else value) for value in values]
    least, greatest = min(numbers), max(numbers)
    if least == greatest or not abs(least) + abs(greatest) < 2**53:
        return None
    reach = greatest - least
    low, high = (_bound_text(Decimal(0) if least >= 0 else least - reach), _bound_text(greatest + reach))
    return _line(f"{column}_in_range", f"kind: between, column: {column}, min: {low}, max: {high}")


def _bound_text(number: Decimal) -> str:
    """The shortest text of a bound, without an exponent, which YAML would read as text."""
    whole = number == number.to_integral_value()
    return f"{number.to_integral_value() if whole else Decimal(repr(float(number))):f}"


def _not_null_check(column: str, kind: str, values: Sequence[Any], n_rows: int) -> str | None:
    """The check of a column that no record lacks."""
    del kind
    every = n_rows >= _ROWS_A_VALUE and len(values) >= n_rows
    return _line(f"{column}_given", f"kind: not_null, column: {column}") if every else None


def _line(name: str, check: str) -> str:
    return f"  {name}: {{{check}, treatment: warn}}   # guess"
