"""Aggregates over vectors, lists and quantiles.

| constructor | result | notes |
| --- | --- | --- |
| `vector_sum(c)`, `vector_mean(c)` | list of float64 | component by component, exact as `sum_` and `avg` of doubles |
| `collect(c, limit)` | list of `c` | the first `limit` values by (time, arrival, value) |
| `approx_quantile(c, fraction, accuracy)` | float64 | the value at place floor(fraction*(n-1)) of n sorted values |

A quantile is read off a histogram whose buckets keep the leading bits of each double (the log-linear buckets of
HdrHistogram). Its relative error is at most `accuracy`. Counts of buckets add and subtract exactly, so the result
depends on the values alone. Sketches that sample or merge clusters (KLL, t-digest) depend on the order of rows.
`accuracy=0` returns the exact value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from spark_jobs.engine.columns.shares import floor_of_share
from spark_jobs.engine.windows.aggregates import doubles
from spark_jobs.engine.windows.decimals import is_decimal
from spark_jobs.engine.windows.exact import float_sums
from spark_jobs.engine.windows.monoid import Aggregate, WindowRows
from spark_jobs.engine.windows.rows import encode, writable
from spark_jobs.engine.windows.spans import Spans
from spark_jobs.engine.windows.sweeps import greatest_any_order, greatest_in_order, ranked_codes
from spark_jobs.errors import ParameterError, TidemarkError

Ints = npt.NDArray[np.int64]


class DimensionMismatch(TidemarkError):
    """Vectors of one window differ in length. Facts: `column`, `lengths`, two of them."""

    code: ClassVar[str] = "dimension_mismatch"


def _is_list(values: pa.DataType) -> bool:
    return pa.types.is_list(values) or pa.types.is_large_list(values) or pa.types.is_fixed_size_list(values)


def _is_real(values: pa.DataType) -> bool:
    return pa.types.is_floating(values) or (pa.types.is_integer(values) and not pa.types.is_uint64(values))


@dataclass(frozen=True)
class VectorSum(Aggregate):
    """The sum or mean of each component of vectors; a null is passed over in its own component only."""

    column: str
    mean: bool

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """A list of float64."""
        if not _is_list(values) or not _is_real(values.value_type):
            raise self.refuse(values, "an array of integers or floats")
        return pa.list_(pa.float64())

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The sum or mean of each window's vectors. Raises DimensionMismatch if vectors of one window differ in
        length."""
        spans, vectors, _ = rows.values(self.column)
        vectors = vectors.cast(pa.list_(pa.float64()), safe=False)  # whole numbers past 2**53 are rounded
        starts, ends = np.asarray(vectors.offsets)[:-1], np.asarray(vectors.offsets)[1:]
        lengths = self._lengths(spans, (ends - starts).astype(np.int64))
        sums = np.zeros((spans.n_windows, int(lengths.max(initial=0))), np.float64)
        defined = np.zeros(sums.shape, np.bool_)
        for place in range(sums.shape[1]):
            long = ends - starts > place
            component = vectors.values.take(pa.array(starts[long] + place))
            long_spans = spans.select(long)
            if component.null_count:
                long_spans, component = long_spans.select(np.asarray(component.is_valid())), component.drop_null()
            bits = writable(component).view(np.int64)
            sums[:, place] = float_sums(
                bits, long_spans.first, long_spans.past, long_spans.entry, long_spans.n_windows, self.mean
            )
            defined[:, place] = long_spans.counts > 0
        kept = np.arange(sums.shape[1]) < lengths[:, None]
        flat = pa.array(sums[kept], mask=~defined[kept])
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        missing = spans.counts == 0
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=pa.array(missing))

    def _lengths(self, spans: Spans, lengths: Ints) -> Ints:
        """Per window, the length of its vectors; 0 without a vector."""
        longest = _extreme(spans, lengths)
        shortest = _extreme(spans, -lengths)
        has_rows = longest >= 0
        list_lengths = np.where(has_rows, lengths[longest] if lengths.size else 0, 0)
        if lengths.size and np.any(has_rows & (lengths[shortest] != list_lengths)):
            window = int(np.flatnonzero(has_rows & (lengths[shortest] != list_lengths))[0])
            raise DimensionMismatch(
                expected=f"vectors of one length in each window of {self.column}",
                found=f"lengths {lengths[shortest[window]]} and {list_lengths[window]} in one window",
                consequence="no window was computed",
                column=self.column,
                lengths=[int(lengths[shortest[window]]), int(list_lengths[window])],
            )
        return list_lengths


def _extreme(spans: Spans, keys: Ints) -> Ints:
    if spans.in_order:
        return greatest_in_order(keys, spans.first, spans.past, spans.n_windows)
    return greatest_any_order(keys, spans.first, spans.past, spans.entry, spans.n_windows)


@njit(cache=True, nogil=True)
def _first_rows(first: Ints, past: Ints, offsets: Ints) -> Ints:
    """Per window, the numbers of its first rows, in order; window w gets `offsets[w+1] - offsets[w]` of them."""
    rows = np.empty(offsets[-1], np.int64)
    # the least `first` from each row on: where it is beyond a window, no further row is in that window
    others = np.empty(first.size, np.int64)
    least = np.int64(2**63 - 1)
    for row in range(first.size - 1, -1, -1):
        least = min(least, first[row])
        others[row] = least
    begin = 0
    for window in range(offsets.size - 1):
        while begin < past.size and past[begin] <= window:
            begin += 1
        row, place = begin, offsets[window]
        while place < offsets[window + 1] and row < first.size and others[row] <= window:
            if first[row] <= window:
                rows[place] = row
                place += 1
            row += 1
    return rows


@dataclass(frozen=True)
class Collect(Aggregate):
    """The first values as a list. A row that was moved to a later window is placed at the time it was moved to."""

    column: str
    limit: int

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """A list of the column's type."""
        return pa.list_(values)

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """A list of at most `limit` values for each window, in order; an empty list if there is no value."""
        spans, values, taken = rows.values(self.column)
        order = rows.places_of(spans, values, taken)
        spans, values = Spans(spans.first[order], spans.past[order], spans.n_windows), values.take(pa.array(order))
        offsets = np.concatenate(([0], np.cumsum(np.minimum(spans.counts, self.limit))))
        listed = values.take(pa.array(_first_rows(spans.first, spans.past, offsets)))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), listed)


@dataclass(frozen=True)
class Quantile(Aggregate):
    """The value at a rank, given by `fraction`, in a window's sorted values."""

    column: str
    fraction: float
    accuracy: float

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """float64."""
        if not _is_real(values) and not is_decimal(values):
            raise self.refuse(values, "an integer, a float or a decimal")
        return pa.float64()

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The quantile of each window's values; NaN is greater than every number."""
        spans, values, _ = rows.values(self.column)
        numbers = doubles(values)
        codes, buckets = encode(pa.array(_lead(numbers, self.accuracy)))
        ranks = floor_of_share(self.fraction, np.maximum(spans.counts - 1, 0))
        ranked = ranked_codes(codes, len(buckets), ranks, spans.first, spans.past, spans.entry, spans.n_windows)
        missing = ranked < 0
        return buckets.take(pa.array(ranked, mask=missing if missing.any() else None))


def _lead(numbers: npt.NDArray[np.float64], accuracy: float) -> npt.NDArray[np.float64]:
    """The middle of each number's bucket: all doubles that share their sign, exponent and leading bits."""
    if accuracy == 0:
        return numbers
    kept = max(math.ceil(-math.log2(accuracy)) - 1, 0)
    cut = np.int64(52 - kept)
    bits = numbers.view(np.int64)
    middle = ((bits >> cut) << cut) | (np.int64(1) << (cut - 1))
    plain = np.isfinite(numbers) & (np.abs(numbers) >= np.finfo(np.float64).tiny)
    return np.where(plain, middle, bits).view(np.float64)


def vector_sum(column: str) -> VectorSum:
    """The exact sum of each component of an array column."""
    return VectorSum(column, mean=False)


def vector_mean(column: str) -> VectorSum:
    """The mean of each component of an array column."""
    return VectorSum(column, mean=True)


def collect(column: str, limit: int) -> Collect:
    """The first `limit` values (1 .. 1,000,000) of a column as a list, by (time, arrival, value)."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1_000_000:
        raise ParameterError(expected="limit: 1 .. 1000000", found=repr(limit), parameter="limit", value=limit)
    return Collect(column, limit)


def approx_quantile(column: str, fraction: float, accuracy: float = 0.01) -> Quantile:
    """The quantile at `fraction` (0 .. 1) of a column. Its relative error is at most `accuracy`: 0, or 2**-50 .. 0.5.

    Raises ParameterError for other values.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise ParameterError(expected="fraction: 0 .. 1", found=repr(fraction), parameter="fraction", value=fraction)
    if (
        isinstance(accuracy, bool)
        or not isinstance(accuracy, (int, float))
        or not (accuracy == 0 or 2**-50 <= accuracy <= 0.5)
    ):
        raise ParameterError(
            expected="accuracy: 0, or 2**-50 .. 0.5", found=repr(accuracy), parameter="accuracy", value=accuracy
        )
    return Quantile(column, float(fraction), float(accuracy))
