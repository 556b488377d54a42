"""Sums, means and variances without rounding on the way.

Definition: a sum is the exact sum of the doubles, rounded once (half to even); a mean, of doubles or of integers, is
the exact sum divided by the number of values, rounded once; a variance is the exact rational
`(n * sum(x*x) - sum(x)**2) / (n * (n - 1))` with one rounding of its numerator and one of its division.

Guarantee: the result is a function of the multiset of values alone. It does not depend on the order of rows, on
batches, tasks or slices. A value that leaves a window is subtracted exactly as it was added: a window of tiny values
right after one of 1e16 is as exact as any other. `-0.0` counts as `0.0`; NaN, and infinities of both signs together,
give NaN.

A double is `mantissa * 2**(place - 1074)` with a mantissa below 2**53. An accumulator holds signed limbs of 32 bits
in int64 words, so that 2**30 values fit before a carry is needed; `base` is the lowest limb that any value of the
column reaches. Cost: three additions a row, and one pass over the limbs (four to six for everyday data) a window; a
mean takes a division of each limb.

The primitives and the loops that use them are in one file because numba's cache only notices changes of the file
itself.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

_MASK = 0xFFFFFFFF
_EXPONENT = 0x7FF
_FRACTION = (1 << 52) - 1
_HIDDEN = 1 << 52
_LOWEST = -1074
_GUARD = 3
"""Limbs below the sum's lowest one into which a quotient is continued, so that at least 54 of its bits are exact."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def limb_range(bits: Ints) -> tuple[int, int]:
    """The lowest limb, and the number of limbs, that sums of these doubles (given as their bits) need."""
    least, greatest = 2048, 0
    for word in bits:
        exponent = (word >> 52) & _EXPONENT
        if exponent == _EXPONENT or (word & 0x7FFFFFFFFFFFFFFF) == 0:
            continue
        place = max(exponent, 1) - 1
        least, greatest = min(least, place), max(greatest, place)
    if least > greatest:
        return 0, 4
    return least >> 5, (greatest >> 5) - (least >> 5) + 4


@njit(cache=True, nogil=True)
def _decode(word: int) -> tuple[int, int]:
    """The mantissa and the place of a finite double, given as its bits."""
    exponent = (word >> 52) & _EXPONENT
    if exponent == 0:
        return word & _FRACTION, 0
    return (word & _FRACTION) | _HIDDEN, exponent - 1


@njit(cache=True, nogil=True)
def _add(limbs: Ints, base: int, word: int, sign: int) -> None:
    """Add a finite double, given as its bits, to `limbs` (`sign` 1), or subtract it (-1)."""
    mantissa, place = _decode(word)
    if mantissa == 0:
        return
    if word < 0:
        sign = -sign
    index, shift = (place >> 5) - base, place & 31
    low, high = (mantissa & _MASK) << shift, (mantissa >> 32) << shift
    limbs[index] += sign * (low & _MASK)
    limbs[index + 1] += sign * ((low >> 32) + (high & _MASK))
    limbs[index + 2] += sign * (high >> 32)


@njit(cache=True, nogil=True)
def _add_square(limbs: Ints, base: int, word: int, sign: int) -> None:
    """Add the square of a finite double (`sign` 1), or subtract it (-1). Limb 0 has the weight
    `2**(2 * (32 * base - 1074))`."""
    mantissa, place = _decode(word)
    if mantissa == 0:
        return
    distance = 2 * (place - 32 * base)
    index, shift = distance >> 5, distance & 31
    low, high = mantissa & _MASK, mantissa >> 32
    middle = 2 * low * high  # below 2**54
    # low**2 may exceed 2**63, so it is computed from halves
    low_a, low_b = low & 0xFFFF, low >> 16
    cross = 2 * low_a * low_b
    square = low_a * low_a + ((cross & 0xFFFF) << 16)
    piece_0 = square & _MASK
    piece_1 = (square >> 32) + (cross >> 16) + low_b * low_b + (middle & _MASK)
    piece_2 = (middle >> 32) + high * high + (piece_1 >> 32)
    piece_1 &= _MASK
    piece_3 = piece_2 >> 32
    piece_2 &= _MASK
    carry = 0
    for offset, piece in enumerate((piece_0, piece_1, piece_2, piece_3, 0)):
        shifted = (piece << shift) + carry
        limbs[index + offset] += sign * (shifted & _MASK)
        carry = shifted >> 32


@njit(cache=True, nogil=True)
def _normalise(limbs: Ints, scratch: Ints) -> int:
    """Write the magnitude of `limbs` into `scratch` as limbs of 0 .. 2**32-1; returns the sign (-1, 0, 1)."""
    size = limbs.size
    sign = 1
    carry = 0
    for i in range(size):
        total = limbs[i] + carry
        scratch[i] = total & _MASK
        carry = total >> 32
    if carry < 0:
        sign = -1
        carry = 0
        for i in range(size):
            total = carry - limbs[i]
            scratch[i] = total & _MASK
            carry = total >> 32
    for i in range(size):
        if scratch[i] != 0:
            return sign
    return 0


@njit(cache=True, nogil=True)
def _lead(scratch: Ints, size: int) -> tuple[int, bool, int]:
    """`(kept, below, exponent)` of normalised limbs: their leading 54 bits, True if a bit below those is set, and the
    exponent of the 53rd bit. All 0 for zero."""
    top = size - 1
    while top > 0 and scratch[top] == 0:
        top -= 1
    head = scratch[top]
    if head == 0:
        return 0, False, 0
    width = 0
    while head >> width:
        width += 1
    second = scratch[top - 1] if top >= 1 else 0
    third = scratch[top - 2] if top >= 2 else 0
    kept = head << (54 - width)
    if width > 22:
        kept |= second >> (width - 22)
        below = (second & ((1 << (width - 22)) - 1)) != 0 or third != 0
    else:
        kept |= (second << (22 - width)) | (third >> (width + 10))
        below = (third & ((1 << (width + 10)) - 1)) != 0
    i = top - 3
    while not below and i >= 0:
        below = scratch[i] != 0
        i -= 1
    return kept, below, 32 * top + width - 53


@njit(cache=True, nogil=True)
def _half_even(kept: int, below: bool) -> float:
    """`kept` without its last bit, rounded half to even by that bit and `below` (True: a lower bit is set)."""
    rounded = kept >> 1
    if kept & 1 and (below or rounded & 1):
        rounded += 1
    return float(rounded)


@njit(cache=True, nogil=True)
def _round(scratch: Ints, size: int) -> tuple[float, int]:
    """`(fraction, exponent)` of normalised limbs: an integer of 53 bits, rounded half to even, times 2**exponent."""
    kept, below, exponent = _lead(scratch, size)
    return _half_even(kept, below), exponent


@njit(cache=True, nogil=True)
def _nearest(scratch: Ints, weight: int, remainder: bool) -> float:
    """The double nearest to normalised limbs, the lowest of weight `2**weight`. With `remainder`, the number is greater
    than the limbs by less than a unit of the lowest one."""
    kept, below, exponent = _lead(scratch, scratch.size)
    below, exponent = below or remainder, exponent + weight
    lost = _LOWEST - exponent
    if lost >= 54:
        return 0.0
    if lost > 0:
        # a subnormal has fewer bits: it is rounded once, where they end
        below = below or (kept & ((1 << lost) - 1)) != 0
        kept, exponent = kept >> lost, _LOWEST
    return math.ldexp(_half_even(kept, below), exponent)


@njit(cache=True, nogil=True)
def _mean(limbs: Ints, count: int, weight: int, wide: Ints) -> float:
    """The double nearest to `limbs / count`, the lowest limb of weight `2**weight`. `wide` is scratch space for the
    limbs and _GUARD more. `count` is below 2**30."""
    wide[:_GUARD] = 0
    sign = _normalise(limbs, wide[_GUARD:])
    if sign == 0:
        return 0.0
    remainder = 0
    for i in range(wide.size - 1, -1, -1):
        total = (remainder << 32) | wide[i]
        wide[i] = total // count
        remainder = total - wide[i] * count
    return sign * _nearest(wide, weight - 32 * _GUARD, remainder != 0)


@njit(cache=True, nogil=True)
def _special(word: int) -> int:
    """0 for a finite double, 1 for +inf, 2 for -inf, 3 for NaN."""
    if (word >> 52) & _EXPONENT != _EXPONENT:
        return 0
    if word & _FRACTION:
        return 3
    return 2 if word < 0 else 1


@njit(cache=True, nogil=True)
def _special_sum(specials: Ints) -> float:
    if specials[3] or (specials[1] and specials[2]):
        return math.nan
    return math.inf if specials[1] else -math.inf


@njit(cache=True, nogil=True)
def float_sums(bits: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int, mean: bool) -> Floats:
    """Per window, the exact sum of its rows' doubles, rounded once; 0.0 without rows. With `mean`, the sum is divided
    by the number of rows before it is rounded.

    Args:
        bits: the bits of the doubles, one double a row.
        first, past, entry, n_windows: the windows that each row counts in, see `spans.Spans`.
    """
    base, size = limb_range(bits)
    limbs, scratch = np.zeros(size, np.int64), np.zeros(size + _GUARD, np.int64)
    weight = 32 * base + _LOWEST
    specials = np.zeros(4, np.int64)
    sums = np.empty(n_windows, np.float64)
    entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            word = bits[entry[entered]]
            kind = _special(word)
            specials[kind] += 1
            if kind == 0:
                _add(limbs, base, word, 1)
            entered += 1
        while left < past.size and past[left] <= window:
            kind = _special(bits[left])
            specials[kind] -= 1
            if kind == 0:
                _add(limbs, base, bits[left], -1)
            left += 1
        if specials[1] or specials[2] or specials[3]:
            sums[window] = _special_sum(specials)
            continue
        if mean:
            sums[window] = _mean(limbs, max(entered - left, 1), weight, scratch)
            continue
        sign = _normalise(limbs, scratch)
        sums[window] = sign * _nearest(scratch[:size], weight, False) if sign else 0.0
    return sums


@njit(cache=True, nogil=True)
def integer_means(values: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int) -> Floats:
    """Per window, the exact mean of its rows' integers, rounded once; 0.0 without rows. Arguments as for
    `float_sums`."""
    limbs, wide = np.zeros(3, np.int64), np.zeros(3 + _GUARD, np.int64)
    means = np.empty(n_windows, np.float64)
    entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            value = values[entry[entered]]
            limbs[0] += value & _MASK
            limbs[1] += value >> 32
            entered += 1
        while left < past.size and past[left] <= window:
            limbs[0] -= values[left] & _MASK
            limbs[1] -= values[left] >> 32
            left += 1
        means[window] = _mean(limbs, max(entered - left, 1), 0, wide)
    return means


@njit(cache=True, nogil=True)
def _spread(squares: Ints, magnitude: Ints, count: int, size: int, wide: Ints, product: Ints) -> tuple[float, int]:
    """`count * sum(x*x) - sum(x)**2` as `(fraction, exponent)`, from the accumulators of squares and of values."""
    _normalise(squares, wide)
    product[:] = 0
    for i in range(size):
        for j in range(size):
            # both factors are below 2**32: the product is split before it can pass 2**63
            low, high = magnitude[j] & 0xFFFF, magnitude[j] >> 16
            lower, upper = magnitude[i] * low, magnitude[i] * high
            total = lower + ((upper & 0xFFFF) << 16)
            product[i + j] -= total & _MASK
            product[i + j + 1] -= (total >> 32) + (upper >> 16)
    for i in range(wide.size):
        total = wide[i] * count
        product[i] += total & _MASK
        product[i + 1] += total >> 32
    _normalise(product[: wide.size], wide)
    return _round(wide, wide.size)


@njit(cache=True, nogil=True)
def variances(
    bits: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int, deviation: bool
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Per window, the sample variance of its rows' doubles (with `deviation` its square root), and True if it is
    defined (for two or more rows).

    NaN if a value is NaN or infinite. Arguments as for `float_sums`.
    """
    base, size = limb_range(bits)
    limbs, magnitude = np.zeros(size, np.int64), np.zeros(size, np.int64)
    squares = np.zeros(2 * size + 4, np.int64)
    wide, product = np.zeros(2 * size + 4, np.int64), np.zeros(2 * size + 5, np.int64)
    results, defined = np.zeros(n_windows, np.float64), np.zeros(n_windows, np.bool_)
    count = special = entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            word = bits[entry[entered]]
            if _special(word):
                special += 1
            else:
                _add(limbs, base, word, 1)
                _add_square(squares, base, word, 1)
            count += 1
            entered += 1
        while left < past.size and past[left] <= window:
            if _special(bits[left]):
                special -= 1
            else:
                _add(limbs, base, bits[left], -1)
                _add_square(squares, base, bits[left], -1)
            count -= 1
            left += 1
        if count < 2:
            continue
        defined[window] = True
        if special:
            results[window] = math.nan
            continue
        _normalise(limbs, magnitude)
        fraction, exponent = _spread(squares, magnitude, count, size, wide, product)
        fraction /= count * (count - 1.0)
        exponent += 2 * (32 * base + _LOWEST)
        if deviation:
            if exponent & 1:
                fraction, exponent = fraction * 2.0, exponent - 1
            fraction, exponent = math.sqrt(fraction), exponent >> 1
        results[window] = math.ldexp(fraction, exponent)
    return results, defined
