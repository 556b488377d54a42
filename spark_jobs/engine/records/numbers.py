"""Compiled readers of numbers and truth values in cells: exact, or marked for the slow reader.

Grammar (blanks and tabs around a value are allowed): int `[+-]?digits[.zeros]`, `digits.` too; float
`[+-]?(digits[.digits]|.digits)[e[+-]digits]`, `digits.` too; bool `true`, `t`, `yes`, `y`, `1` and `false`, `f`, `no`,
`n`, `0`, in any case. A float is the double nearest to the decimal, ties to even, as in IEEE 754. NaN, Infinity and
numbers too great for a double are refused.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

READ, BAD, OVERFLOW, SLOW = 0, 1, 2, 3
"""Outcomes of reading a cell: fine, not of the grammar, beyond int64, or (floats) left to the slow reader."""

_POWERS = 10.0 ** np.arange(23)  # powers of ten that a double holds exactly
_LEAST = np.int64(-(2**63))
_LEAST_TENTH = np.int64(-922_337_203_685_477_580)
_EXACT = np.uint64(1) << np.uint64(53)


@numba.njit(cache=True, nogil=True)
def trim(buf: Bytes, start: int, end: int) -> tuple[int, int]:
    """The bounds of the text in `[start, end)` without the blanks and tabs around it."""
    while start < end and (buf[start] == 32 or buf[start] == 9):
        start += 1
    while end > start and (buf[end - 1] == 32 or buf[end - 1] == 9):
        end -= 1
    return start, end


@numba.njit(cache=True, nogil=True)
def read_int(buf: Bytes, start: int, end: int) -> tuple[int, int]:
    """`(value, how)` of the whole number in `[start, end)`."""
    start, end = trim(buf, start, end)
    negative = start < end and buf[start] == 45
    if negative or (start < end and buf[start] == 43):
        start += 1
    if start == end:
        return 0, BAD
    value, how = 0, READ
    point = end
    for pos in range(start, end):
        digit = int(buf[pos]) - 48
        if pos > start and point == end and digit == -2:
            point = pos
            continue
        if point < end and digit != 0:
            return 0, BAD
        if point < end:
            continue
        if digit < 0 or digit > 9:
            return 0, BAD
        # collect the negative value: int64 has one negative number more
        if value < _LEAST_TENTH or (value == _LEAST_TENTH and digit > 8):
            how = OVERFLOW
        else:
            value = value * 10 - digit
    if how == READ and not negative:
        if value == _LEAST:
            return 0, OVERFLOW
        value = -value
    return value, how


@numba.njit(cache=True, nogil=True)
def read_ints(buf: Bytes, starts: Ints, ends: Ints, live: Flags, values: Ints, how: Bytes) -> None:
    """Read the whole numbers in the cells that are `live` into `values`, and the outcomes into `how`."""
    for i in range(len(starts)):
        if live[i]:
            values[i], how[i] = read_int(buf, starts[i], ends[i])


@numba.njit(cache=True, nogil=True)
def plain_numbers(
    buf: Bytes,
    starts: Ints,
    ends: Ints,
    live: Flags,
    decimal: int,
    thousands: int,
    offsets: Ints,
    out: Bytes,
    sizes: Ints,
) -> None:
    """Copy the cells that are `live` to their `offsets` in `out`, with a point for the mark `decimal` and without the
    mark `thousands` (-1: none), which must be between groups of three digits. `sizes` gets the lengths of the copies.

    For a cell that breaks this, a single point is copied, which is not a number. Blanks around a number are left out.
    """
    for i in range(len(starts)):
        if live[i]:
            sizes[i] = _plain_number(buf, starts[i], ends[i], decimal, thousands, offsets[i], out)


@numba.njit(cache=True, nogil=True)
def _plain_number(buf: Bytes, start: int, end: int, decimal: int, thousands: int, at: int, out: Bytes) -> int:
    start, end = trim(buf, start, end)
    size, digits, groups, good, whole = 0, 0, 0, start < end, True
    for pos in range(start, end):
        byte = int(buf[pos])
        if whole and byte == thousands:
            # the first group has one to three digits, every other one three
            good = good and 1 <= digits <= 3 and (groups == 0 or digits == 3)
            groups, digits = groups + 1, 0
            continue
        if 48 <= byte <= 57:
            digits += 1
        elif whole and byte in (decimal, 101, 69):
            good = good and (groups == 0 or digits == 3)
            whole = False
            byte = 46 if byte == decimal else byte
        elif byte in (46, decimal):
            good = False
        out[at + size] = byte
        size += 1
    good = good and not (whole and groups > 0 and digits != 3)
    if not good and start < end:
        out[at] = 46
        size = 1
    return size


@numba.njit(cache=True, nogil=True)
def find_digits(buf: Bytes, starts: Ints, ends: Ints, live: Flags, how: Bytes) -> None:
    """Set `how` to `READ` for the cells that are `live` and have the form `-?digits`."""
    for i in range(len(starts)):
        if live[i]:
            pos = starts[i] + (1 if starts[i] < ends[i] and buf[starts[i]] == 45 else 0)
            digits = pos < ends[i]
            while pos < ends[i]:
                digits = digits and 48 <= buf[pos] <= 57
                pos += 1
            if digits:
                how[i] = READ


@numba.njit(cache=True, nogil=True)
def read_floats(buf: Bytes, starts: Ints, ends: Ints, live: Flags, values: Floats, how: Bytes) -> None:
    """Read the floats in the cells that are `live` into `values`, and the outcomes into `how`. `SLOW`: the nearest
    double needs the slow reader.
    """
    for i in range(len(starts)):
        if live[i]:
            values[i], how[i] = _read_float(buf, starts[i], ends[i])


@numba.njit(cache=True, nogil=True)
def _read_float(buf: Bytes, start: int, end: int) -> tuple[float, int]:
    pos, end = trim(buf, start, end)
    negative = pos < end and buf[pos] == 45
    if negative or (pos < end and buf[pos] == 43):
        pos += 1
    mantissa, digits, exponent, seen = np.uint64(0), 0, 0, 0
    point = False
    while pos < end and (48 <= buf[pos] <= 57 or (buf[pos] == 46 and not point)):
        if buf[pos] == 46:
            point = True
        else:
            seen += 1
            if digits > 0 or buf[pos] != 48:
                digits += 1
            if digits <= 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(buf[pos] - 48)
            exponent -= 1 if point else 0
        pos += 1
    if seen == 0:
        return 0.0, BAD
    if pos < end and (buf[pos] == 101 or buf[pos] == 69):
        power, pos = read_exponent(buf, pos + 1, end)
        if pos < 0:
            return 0.0, BAD
        exponent += power
    if pos != end:
        return 0.0, BAD
    # both operands are exact, so one rounding gives the nearest double (Clinger's fast path)
    if digits > 19 or mantissa > _EXACT or exponent < -22 or exponent > 22:
        return 0.0, SLOW
    value = np.float64(mantissa)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return (-value if negative else value), READ


@numba.njit(cache=True, nogil=True)
def read_exponent(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """`(power, position after it)` of the exponent whose sign or digits are at `pos`; position -1 if there is none."""
    negative = pos < end and buf[pos] == 45
    if negative or (pos < end and buf[pos] == 43):
        pos += 1
    first, power = pos, 0
    while pos < end and 48 <= buf[pos] <= 57:
        power = min(power * 10 + int(buf[pos]) - 48, 100_000)
        pos += 1
    return (-power if negative else power), (pos if pos > first else -1)


@numba.njit(cache=True, nogil=True)
def read_bools(buf: Bytes, starts: Ints, ends: Ints, live: Flags, values: Flags, how: Bytes) -> None:
    """Read the truth values in the cells that are `live` into `values` (0 or 1), and the outcomes into `how`."""
    for i in range(len(starts)):
        if live[i]:
            start, end = trim(buf, starts[i], ends[i])
            values[i], how[i] = 0, BAD
            if end - start == 1 and (buf[start] == 48 or buf[start] == 49):
                values[i], how[i] = buf[start] - 48, READ
            elif _is_word(buf, start, end, _TRUE) or _is_word(buf, start, end, _YES):
                values[i], how[i] = 1, READ
            elif _is_word(buf, start, end, _FALSE) or _is_word(buf, start, end, _NO):
                how[i] = READ


@numba.njit(cache=True, nogil=True)
def _is_word(buf: Bytes, start: int, end: int, word: Bytes) -> bool:
    """True if the text in `[start, end)` is `word`, or its first letter, in any case."""
    if end - start != len(word) and end - start != 1:
        return False
    for index in range(end - start):
        byte = buf[start + index]
        if 65 <= byte <= 90:
            byte += 32
        if byte != word[index]:
            return False
    return True


_TRUE, _YES, _FALSE, _NO = (np.frombuffer(word, np.uint8) for word in (b"true", b"yes", b"false", b"no"))
