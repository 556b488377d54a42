"""Compiled readers of decimals in cells and in Parquet. A value is read exactly, or an outcome names the reason against
it; no value is rounded.

Grammar (blanks and tabs around a value are allowed): `[+-]?(digits[.digits]|.digits)`, `digits.` too. Exponents are not
allowed: a column of money that has them went through floats. A value of `decimal(p, s)` has at most `p - s` digits
before the point, without leading zeros, and at most `s` after it, without zeros at the end.

Values are whole numbers of units of the last place in 128 bits: two int64 words each, the lower one first.
"""

from __future__ import annotations

import numba
import numpy as np

from spark_jobs.engine.records.numbers import Bytes, Flags, Ints

READ, BAD, OVERFLOW, INEXACT = 0, 1, 2, 3
"""Outcomes of reading a value: fine, not of the grammar, too many digits before the point, too many after it."""
_MASK = 0xFFFFFFFF
_WORD_DIGITS = 18
"""The most digits of which every number is below 2**63."""
_CARRIED = 5
"""Limbs of 32 bits, one more than the 38 digits of a decimal need."""


@numba.njit(cache=True, nogil=True)
def read_decimals(
    buf: Bytes, starts: Ints, ends: Ints, live: Flags, precision: int, scale: int, values: Ints, how: Bytes
) -> None:
    """Read the cells that are `live` into the rows of `values` (two words each), and the outcomes into `how`."""
    limbs = np.zeros(_CARRIED, np.int64)
    for i in range(len(starts)):
        if live[i]:
            how[i] = _read(buf, starts[i], ends[i], precision, scale, limbs, values[i])


@numba.njit(cache=True, nogil=True)
def _read(buf: Bytes, start: int, end: int, precision: int, scale: int, limbs: Ints, value: Ints) -> int:
    while start < end and (buf[start] == 32 or buf[start] == 9):
        start += 1
    while end > start and (buf[end - 1] == 32 or buf[end - 1] == 9):
        end -= 1
    negative = start < end and buf[start] == 45
    if negative or (start < end and buf[start] == 43):
        start += 1
    point, how = _bounds(buf, start, end)
    if how != READ:
        return how
    while start < point and buf[start] == 48:
        start += 1
    while end > point + 1 and buf[end - 1] == 48:
        end -= 1
    places = max(end - point - 1, 0)
    if point - start > precision - scale:
        return OVERFLOW
    if places > scale:
        return INEXACT
    limbs[:] = 0
    word, whole = 0, point - start
    for place in range(whole + scale):
        pos = start + place if place < whole else point + 1 + place - whole
        digit = int(buf[pos]) - 48 if pos < end else 0
        if place < _WORD_DIGITS:
            word = word * 10 + digit
            limbs[0], limbs[1] = word & _MASK, word >> 32
        else:
            _append(limbs, digit)
    _store(limbs, negative, value)
    return READ


@numba.njit(cache=True, nogil=True)
def _bounds(buf: Bytes, start: int, end: int) -> tuple[int, int]:
    """The position of the point (`end` without one), and `READ`, or `BAD` if the rest is not all digits, at least
    one."""
    point, digits = end, 0
    for pos in range(start, end):
        if buf[pos] == 46 and point == end:
            point = pos
        elif 48 <= buf[pos] <= 57:
            digits += 1
        else:
            return 0, BAD
    return point, READ if digits else BAD


@numba.njit(cache=True, nogil=True)
def _append(limbs: Ints, digit: int) -> None:
    """Multiply the number in `limbs` by ten and add `digit`."""
    carry = digit
    for i in range(_CARRIED):
        carry += limbs[i] * 10
        limbs[i] = carry & _MASK
        carry >>= 32


@numba.njit(cache=True, nogil=True)
def _store(limbs: Ints, negative: bool, value: Ints) -> None:
    """Write the number with this magnitude and sign into the two words of `value`."""
    low, high = limbs[0] | (limbs[1] << 32), limbs[2] | (limbs[3] << 32)
    if negative:
        high = ~high + (1 if low == 0 else 0)
        low = ~low + 1
    value[0], value[1] = low, high


@numba.njit(cache=True, nogil=True)
def rescale(whole: Ints, n_digits: int, live: Flags, precision: int, scale: int, values: Ints, how: Bytes) -> None:
    """Read decimals with `n_digits` digits after the point (`whole`: two words each) as `decimal(precision, scale)`.

    The results are put into `values` and `how`."""
    limbs = np.zeros(_CARRIED, np.int64)
    most = np.zeros(_CARRIED, np.int64)
    most[0] = 1
    for _ in range(precision):
        _append(most, 0)
    for i in range(len(whole)):
        if not live[i]:
            continue
        low, high = whole[i, 0], whole[i, 1]
        negative = high < 0
        if negative:
            high = ~high + (1 if low == 0 else 0)
            low = ~low + 1
        limbs[0], limbs[1], limbs[2], limbs[3], limbs[4] = low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32, 0
        inexact = False
        for _ in range(n_digits - scale):
            inexact = _shorten(limbs) or inexact
        wide = False
        for _ in range(scale - n_digits):
            wide = wide or _reaches(limbs, most)
            if not wide:
                _append(limbs, 0)
        if wide or _reaches(limbs, most):
            how[i] = OVERFLOW
        elif inexact:
            how[i] = INEXACT
        else:
            _store(limbs, negative, values[i])


@numba.njit(cache=True, nogil=True)
def _shorten(limbs: Ints) -> bool:
    """Remove the last digit of the number in `limbs`. Returns True if that digit was not zero."""
    remainder = 0
    for i in range(_CARRIED - 1, -1, -1):
        piece = (remainder << 32) | limbs[i]
        limbs[i] = piece // 10
        remainder = piece % 10
    return remainder != 0


@numba.njit(cache=True, nogil=True)
def _reaches(limbs: Ints, most: Ints) -> bool:
    for i in range(_CARRIED - 1, -1, -1):
        if limbs[i] != most[i]:
            return limbs[i] > most[i]
    return True
