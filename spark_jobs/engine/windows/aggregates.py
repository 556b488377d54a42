"""The built-in aggregates. Each is a value that describes one output column, and returns the same bits for any order of
rows.

| constructor | result | notes |
| --- | --- | --- |
| `count()` | int64 | number of rows |
| `count(c)` | int64 | number of values |
| `sum_(c)` | int64, float64, decimal | exact, beyond its type an overflow; doubles exact, rounded once |
| `avg(c)` | float64, decimal | the exact sum divided by the number of values, rounded once |
| `min_(c)`, `max_(c)` | as `c` | NaN above every number, as in Spark; -0.0 below 0.0; strings by code point |
| `first(c)`, `last(c)` | as `c` | by (time, arrival, value): at one time the greater value is later |
| `variance(c)`, `stddev(c)` | float64 | of the sample, of the nearest doubles; null for fewer than two values |
| `count_distinct(c)` | int64 | exact; NaN is one value |

Nulls are passed over; a window with no value has null (`count`, `count_distinct`: 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows import decimals
from spark_jobs.engine.windows.exact import float_sums, integer_means, variances
from spark_jobs.engine.windows.monoid import Aggregate, WindowRows
from spark_jobs.engine.windows.rows import encode, order_keys, writable
from spark_jobs.engine.windows.spans import Spans
from spark_jobs.engine.windows.sweeps import distinct_counts, greatest_any_order, greatest_in_order, integer_sums
from spark_jobs.errors import TidemarkError

Ints = npt.NDArray[np.int64]


_NUMBER = "a number of at most 64 bits, or a decimal of at most 38 digits,"


class IntegerOverflow(TidemarkError):
    """A window's integer sum does not fit into int64; nothing is rounded or wrapped."""

    code: ClassVar[str] = "integer_overflow"


def _is_number(values: pa.DataType) -> bool:
    return (pa.types.is_integer(values) and not pa.types.is_uint64(values)) or pa.types.is_floating(values)


def doubles(values: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers, without nulls, as the nearest doubles, in a new array."""
    return (
        decimals.nearest_doubles(values)
        if decimals.is_decimal(values.type)
        else writable(values.cast(pa.float64(), safe=False))
    )


def _bits(values: pa.Array) -> Ints:
    return doubles(values).view(np.int64)


def _nullable(results: npt.NDArray[Any], defined: npt.NDArray[np.bool_], dtype: pa.DataType) -> pa.Array:
    return pa.array(results, dtype, mask=None if defined.all() else ~defined)


def exact_totals(rows: WindowRows, column: str, values: Ints, spans: Spans) -> pa.Array:
    """Per window, the sum of its values, as int64. A sum beyond int64 is an overflow (`WindowRows.overflow`)."""
    sums, about, beyond = integer_sums(values, spans.first, spans.past, spans.entry, spans.n_windows)

    def refusal(size: float) -> IntegerOverflow:
        return IntegerOverflow(
            expected=f"every window's sum of {column} within int64",
            found=f"a sum of about {size:.4g}",
            consequence="no window was computed",
            next_step=f"make {column} a decimal, whose sum has ten more digits, or a float",
            column=column,
        )

    rows.overflow(beyond, about, refusal)
    return _nullable(sums, (spans.counts > 0) & ~beyond, pa.int64())


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows in a window."""

    column: None = None

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """int64."""
        return pa.int64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The number of rows that count in each window."""
        return pa.array(rows.spans.counts)


@dataclass(frozen=True)
class CountValues(Aggregate):
    """The number of rows in a window with a value in a column."""

    column: str

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """int64."""
        return pa.int64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The number of values in each window."""
        return pa.array(rows.values(self.column)[0].counts)


@dataclass(frozen=True)
class Sum(Aggregate):
    """The exact sum of a column's values."""

    column: str

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """int64 for integers, float64 for floats, ten more digits for decimals (as in Spark)."""
        if pa.types.is_floating(values):
            return pa.float64()
        if decimals.is_decimal(values):
            return decimals.sum_type(values)
        if not _is_number(values):
            raise self.refuse(values, _NUMBER)
        return pa.int64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The sum of each window's values. A sum beyond int64, or beyond a decimal's digits, is an overflow
        (`WindowRows.overflow`)."""
        spans, values, _ = rows.values(self.column)
        if pa.types.is_floating(values.type):
            sums = float_sums(_bits(values), spans.first, spans.past, spans.entry, spans.n_windows, False)
            return _nullable(sums, spans.counts > 0, pa.float64())
        if decimals.is_decimal(values.type):
            return decimals.sums(rows, self.column)
        return exact_totals(rows, self.column, writable(values.cast(pa.int64())), spans)


@dataclass(frozen=True)
class Average(Aggregate):
    """The mean: the exact sum divided by the number of values, rounded once."""

    column: str

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """float64; four more digits and places for decimals (as in Spark)."""
        if decimals.is_decimal(values):
            return decimals.mean_type(values)
        if not _is_number(values):
            raise self.refuse(values, _NUMBER)
        return pa.float64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The mean of each window's values. A mean beyond a decimal's digits is an overflow (`WindowRows.overflow`)."""
        spans, values, _ = rows.values(self.column)
        if decimals.is_decimal(values.type):
            return decimals.means(rows, self.column)
        placed = spans.first, spans.past, spans.entry, spans.n_windows
        if pa.types.is_floating(values.type):
            means = float_sums(_bits(values), *placed, True)
        else:
            means = integer_means(writable(values.cast(pa.int64())), *placed)
        return _nullable(means, spans.counts > 0, pa.float64())


@dataclass(frozen=True)
class Variance(Aggregate):
    """The variance of the sample, or with `deviation` its square root."""

    column: str
    deviation: bool

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """float64."""
        if not _is_number(values) and not decimals.is_decimal(values):
            raise self.refuse(values, _NUMBER)
        return pa.float64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The variance or deviation of each window's values, as doubles."""
        spans, values, _ = rows.values(self.column)
        results, defined = variances(
            _bits(values), spans.first, spans.past, spans.entry, spans.n_windows, self.deviation
        )
        return _nullable(results, defined, pa.float64())


def _pick(spans: Spans, keys: Ints, values: pa.Array) -> pa.Array:
    """Per window, the value of its row with the greatest key; null for a window without a row."""
    if spans.in_order:
        best = greatest_in_order(keys, spans.first, spans.past, spans.n_windows)
    else:
        best = greatest_any_order(keys, spans.first, spans.past, spans.entry, spans.n_windows)
    missing = best < 0
    return values.take(pa.array(best, mask=missing if missing.any() else None))


@dataclass(frozen=True)
class Extreme(Aggregate):
    """The least or the greatest value of a column."""

    column: str
    greatest: bool

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """The column's own type."""
        if pa.types.is_nested(values):
            raise self.refuse(values, "a type that has an order")
        return values

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The least or greatest of each window's values."""
        spans, values, _ = rows.values(self.column)
        keys = order_keys(values)
        return _pick(spans, keys if self.greatest else ~keys, values)


@dataclass(frozen=True)
class Edge(Aggregate):
    """The value of the first or last row."""

    column: str
    last: bool

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """The column's own type."""
        return values

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The first or last of each window's values, by (time, arrival, value)."""
        spans, values, taken = rows.values(self.column)
        position = rows.order_of(values, taken)
        return _pick(spans, position if self.last else ~position, values)


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    """The exact number of distinct values of a column."""

    column: str

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """int64."""
        return pa.int64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The number of distinct values in each window."""
        spans, values, _ = rows.values(self.column)
        codes, distinct = encode(values)
        numbers = distinct_counts(codes, len(distinct), spans.first, spans.past, spans.entry, spans.n_windows)
        return pa.array(numbers)


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of values in a column."""
    return Count() if column is None else CountValues(column)


def sum_(column: str) -> Sum:
    """The exact sum of a column."""
    return Sum(column)


def min_(column: str) -> Extreme:
    """The least value of a column."""
    return Extreme(column, greatest=False)


def max_(column: str) -> Extreme:
    """The greatest value of a column."""
    return Extreme(column, greatest=True)


def avg(column: str) -> Average:
    """The mean of a column."""
    return Average(column)


def first(column: str) -> Edge:
    """The value of the earliest row that has one."""
    return Edge(column, last=False)


def last(column: str) -> Edge:
    """The value of the latest row that has one."""
    return Edge(column, last=True)


def stddev(column: str) -> Variance:
    """The standard deviation of the sample; null for fewer than two values."""
    return Variance(column, deviation=True)


def variance(column: str) -> Variance:
    """The variance of the sample; null for fewer than two values."""
    return Variance(column, deviation=False)


def count_distinct(column: str) -> CountDistinct:
    """The exact number of distinct values of a column."""
    return CountDistinct(column)
