"""Sums and means of decimals without rounding on the way.

A decimal(p, s) is a whole number of units of its last place, below `10**p`, in 128 bits: two int64 words a value. The
types of results are Spark's: a sum has ten more digits, a mean four more places and digits, at most 38 of either. A
mean is rounded once, halves away from zero. A result that does not fit into its type is an overflow
(`WindowRows.overflow`), never a rounded number.

An accumulator holds limbs of 32 bits in int64 words, so that 2**30 values fit before a carry is needed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from spark_jobs.engine.windows.monoid import WindowRows
from spark_jobs.errors import TidemarkError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_MASK = 0xFFFFFFFF
_MOST_DIGITS = 38
_LIMBS = 6
"""Limbs of an accumulator: 160 bits for a sum, and room for the factor of a mean."""
_EXACT_POWERS = 10.0 ** np.arange(23)
"""The powers of ten that a double represents exactly."""


class DecimalOverflow(TidemarkError):
    """A window's sum or mean of decimals does not fit into its type; nothing is rounded or wrapped."""

    code: ClassVar[str] = "decimal_overflow"


def is_decimal(kind: pa.DataType) -> bool:
    """True for the decimal types that are supported: of at most 38 digits, as in Spark."""
    return bool(pa.types.is_decimal128(kind))


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum of decimals of this type."""
    return pa.decimal128(min(kind.precision + 10, _MOST_DIGITS), kind.scale)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """The type of a mean of decimals of this type."""
    return pa.decimal128(min(kind.precision + 4, _MOST_DIGITS), min(kind.scale + 4, _MOST_DIGITS))


def words(values: pa.Array) -> Ints:
    """The values as two int64 words each, the lower one first, in shape (values, 2); the words of a null are
    arbitrary."""
    if not len(values):
        return np.zeros((0, 2), np.int64)
    whole = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
    return whole[values.offset : values.offset + len(values)].copy()


def from_words(whole: Ints, present: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """The decimals with these words (two int64 a value, see `words`); null where not `present`."""
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(whole), [validity, pa.py_buffer(np.ascontiguousarray(whole))])


def nearest_doubles(values: pa.Array) -> Floats:
    """The double nearest to each decimal, as float64; `values` has no nulls."""
    scale, whole = values.type.scale, words(values)
    doubles, small = np.zeros(len(whole), np.float64), np.zeros(len(whole), np.bool_)
    if 0 <= scale < _EXACT_POWERS.size:
        # both operands are exact, so one rounding gives the nearest double
        small = (np.abs(whole[:, 0]) <= 1 << 53) & (whole[:, 1] == whole[:, 0] >> 63)
        doubles = whole[:, 0] / _EXACT_POWERS[scale]
    others = np.flatnonzero(~small)
    if others.size:
        encoded = values.take(pa.array(others)).dictionary_encode()
        numbers = np.array([float(value) for value in encoded.dictionary.to_pylist()], np.float64)
        doubles[others] = numbers[encoded.indices.to_numpy()]
    return doubles


def sums(rows: WindowRows, column: str) -> pa.Array:
    """Per window, the sum of its decimals; null if it has none. A sum beyond its type is an overflow
    (`WindowRows.overflow`)."""
    return _results(rows, column, sum_type(rows.values(column)[1].type), mean=False)


def means(rows: WindowRows, column: str) -> pa.Array:
    """Per window, the mean of its decimals; null if it has none. A mean beyond its type is an overflow
    (`WindowRows.overflow`)."""
    return _results(rows, column, mean_type(rows.values(column)[1].type), mean=True)


def _results(rows: WindowRows, column: str, kind: pa.DataType, *, mean: bool) -> pa.Array:
    spans, values, _ = rows.values(column)
    factor = 10 ** (kind.scale - values.type.scale)
    greatest = np.array([(10**kind.precision - 1) >> shift & _MASK for shift in range(0, 32 * _LIMBS, 32)], np.int64)
    results, beyond, about = _fold(
        words(values), spans.first, spans.past, spans.entry, spans.n_windows, factor if mean else 0, greatest
    )
    called = "mean" if mean else "sum"

    def refusal(size: float) -> DecimalOverflow:
        return DecimalOverflow(
            expected=f"every window's {called} of {column} within {kind}",
            found=f"a {called} of about {size:.4g}",
            consequence="no window was computed",
            next_step=f"give {column} a type of fewer digits (a sum has ten more, a mean four more, of 38 at most), or"
            " make it a float",
            column=column,
            type=str(kind),
        )

    rows.overflow(beyond, about / 10.0**kind.scale, refusal)
    return from_words(results, (spans.counts > 0) & ~beyond, kind)


@njit(cache=True, nogil=True)
def _fold(
    whole: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int, factor: int, greatest: Ints
) -> tuple[Ints, Flags, Floats]:
    """Per window, the sum of its rows' numbers. With a `factor` above 0, the sum is multiplied by it and divided by the
    number of rows.

    Returns:
        Two words a window; flags of the windows whose magnitude is above `greatest` (limbs), and their approximate
        results.
    """
    beyond, about = np.zeros(n_windows, np.bool_), np.zeros(n_windows, np.float64)
    results, total, size = np.zeros((n_windows, 2), np.int64), np.zeros(_LIMBS, np.int64), np.zeros(_LIMBS, np.int64)
    entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            _add(total, whole[entry[entered], 0], whole[entry[entered], 1], 1)
            entered += 1
        while left < past.size and past[left] <= window:
            _add(total, whole[left, 0], whole[left, 1], -1)
            left += 1
        negative = _magnitude(total, size)
        if factor and entered > left:
            _scaled_quotient(size, factor, entered - left)
        if _above(size, greatest):
            beyond[window] = True
            for i in range(_LIMBS - 1, -1, -1):
                about[window] = about[window] * 4294967296.0 + size[i]
            if negative:
                about[window] = -about[window]
            continue
        low, high = size[0] | (size[1] << 32), size[2] | (size[3] << 32)
        if negative:
            low, high = ~low + 1, ~high + (low == 0)
        results[window, 0], results[window, 1] = low, high
    return results, beyond, about


@njit(cache=True, nogil=True)
def _add(total: Ints, low: int, high: int, sign: int) -> None:
    total[0] += sign * (low & _MASK)
    total[1] += sign * ((low >> 32) & _MASK)
    total[2] += sign * (high & _MASK)
    total[3] += sign * (high >> 32)


@njit(cache=True, nogil=True)
def _magnitude(total: Ints, size: Ints) -> bool:
    """Write the magnitude of `total` into `size` as limbs of 0 .. 2**32-1. Returns True if `total` is negative."""
    for sign in (1, -1):
        carry = 0
        for i in range(_LIMBS):
            carry += sign * total[i]
            size[i] = carry & _MASK
            carry >>= 32
        if carry >= 0:
            return sign < 0
    return False


@njit(cache=True, nogil=True)
def _scaled_quotient(size: Ints, factor: int, count: int) -> None:
    """Replace `size` by `size * factor / count`, rounded half up; `factor` and `count` are below 2**30."""
    carry = 0
    for i in range(_LIMBS):
        carry += size[i] * factor
        size[i] = carry & _MASK
        carry >>= 32
    remainder = 0
    for i in range(_LIMBS - 1, -1, -1):
        piece = (remainder << 32) | size[i]
        size[i] = piece // count
        remainder = piece - size[i] * count
    i = 0
    carry = 1 if 2 * remainder >= count else 0
    while carry:
        size[i] += 1
        carry = size[i] >> 32
        size[i] &= _MASK
        i += 1


@njit(cache=True, nogil=True)
def _above(size: Ints, greatest: Ints) -> bool:
    for i in range(_LIMBS - 1, -1, -1):
        if size[i] != greatest[i]:
            return size[i] > greatest[i]
    return False
