"""Rows as JSON, in this process: the texts that `row_json` has Spark make and read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spark_jobs.storage.descriptions.column_types import arrow_type
from spark_jobs.storage.descriptions.schema import Column

_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7
"""Java writes numbers from the first up to the second without an exponent."""
_DAYS = date(1970, 1, 1).toordinal()


def row_texts(rows: pa.Table, columns: Sequence[Column]) -> list[str]:
    """Each row as JSON: its values in the order of the columns, without nulls. Times are microseconds since 1970, dates
    are days, decimals are texts: so no digit is lost."""
    texts: list[list[str]] = [[] for _ in range(rows.num_rows)]
    for column in columns:
        name, value_text = f"{_quote(column.name)}:", _text_of(column)
        values = rows[column.name]
        plain = values.cast(pa.int64()) if column.type == "TIMESTAMP" else values
        for parts, value in zip(texts, plain.to_pylist(), strict=True):
            if value is not None:
                parts.append(f"{name}{value_text(value)}")
    return ["{" + ",".join(parts) + "}" for parts in texts]


def _text_of(column: Column) -> Callable[[Any], str]:
    """The text of a column's values."""
    if column.type == "DATE":
        return lambda day: str(day.toordinal() - _DAYS)
    if column.type == "DOUBLE":
        return _of_double
    if column.type.startswith("DECIMAL"):
        return lambda decimal: f'"{decimal:f}"'
    if column.type.startswith("MAP"):
        return lambda pairs: "{" + ",".join(f"{_quote(key)}:{_quote(value)}" for key, value in pairs) + "}"
    return _quote


def _quote(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _of_double(value: float) -> str:
    """A double as Java writes it: the fewest digits that distinguish it from all others."""
    if not math.isfinite(value):
        return _quote("NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity")
    if value == 0 or _LEAST_PLAIN <= abs(value) < _LEAST_SCIENTIFIC:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "it is finite"
    first, fraction = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{fraction}E{exponent + len(digits) - 1}"


def rows_of_texts(texts: Sequence[str], columns: Sequence[Column]) -> pa.Table:
    """The rows of which `row_texts`, or Spark, made these texts."""
    rows = [json.loads(text) for text in texts]
    arrays = []
    for column in columns:
        kind, read = arrow_type(column.type), _reader_of(column)
        values = [None if (value := row.get(column.name)) is None else read(value) for row in rows]
        # times and days were written as numbers
        plain = pa.int64() if column.type == "TIMESTAMP" else pa.int32() if column.type == "DATE" else kind
        arrays.append(pa.array(values, plain).cast(kind))
    return pa.table(arrays, names=[column.name for column in columns])


def _reader_of(column: Column) -> Callable[[Any], Any]:
    """The function that converts a value of JSON to a value of a column."""
    if column.type == "DOUBLE":
        return float
    if column.type.startswith("DECIMAL"):
        return Decimal
    return (lambda pairs: list(pairs.items())) if column.type.startswith("MAP") else lambda value: value
