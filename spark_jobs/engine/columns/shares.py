"""Shares of whole numbers, exactly: of 100 bytes the share 0.07 is 7, where the product of doubles is more than 7.

A share is the decimal that people wrote: the shortest one that reads as its double.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_GREATEST = np.iinfo(np.int64).max


def as_written(share: float) -> Fraction:
    """The share as an exact number; raises ValueError for one that is not finite."""
    return Fraction(repr(float(share)))


def floor_of_share(share: float, numbers: Ints) -> Ints:
    """For each number, the greatest whole number that is at most this share of it. Numbers and share are 0 or more."""
    exact = as_written(share)
    if max(int(numbers.max(initial=0)) * exact.numerator, exact.denominator) <= _GREATEST:
        return numbers * exact.numerator // exact.denominator
    wide = numbers.astype(object) * exact.numerator // exact.denominator
    return np.minimum(wide, _GREATEST).astype(np.int64)
