"""A bucket chain: the time domain cut into buckets whose ranges grow with their distance.

    offset  0 1 2   4       8               16                              32 …
    bits    0 0 1   2       3               4                               5  …      bucket (o, b) holds [o, o + 2^b)

A bucket is *well placed* if its bits are at most those of the previous bucket plus 2; before the first bucket there is
an imaginary one of `min_bits - 2`. A chain of well placed buckets has O(domain_bits) buckets. To take away the lowest
times splits O(1) buckets, amortised: times far ahead are in few, wide buckets, which operations on near times leave
closed.

A chain with badly placed buckets is correct, too: `peel` only has to split more of them. `restore` splits buckets ahead
of time, as long as it has fuel. Peeled buckets are gone: times below `lower()` have no bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from spark_jobs.engine.corrections.columns import Times
from spark_jobs.engine.corrections.errors import MinBitsTooLarge, NoBucket
from spark_jobs.model import Frontier


class Splittable(Protocol):
    """The methods that a bucket chain needs of the content of a bucket."""

    @property
    def count(self) -> int:
        """The number of items, which is the cost of splitting them."""

    def split(self, time: int) -> tuple[Self, Self]:
        """The items before `time`, and those at or beyond it."""


Content = TypeVar("Content", bound=Splittable)


class BucketChain(Generic[Content]):
    """Buckets over the times `0 .. 2^domain_bits - 1`, at first a single bucket with `content`.

    Args:
        content: the content of the first bucket; the contents of all others are made by splitting it.
        domain_bits: the width of the time domain, in bits.
        min_bits: buckets of `2^min_bits` times are never split; raises MinBitsTooLarge beyond `domain_bits`.
    """

    def __init__(self, content: Content, *, domain_bits: int = 64, min_bits: int = 0) -> None:
        if min_bits > domain_bits:
            raise MinBitsTooLarge(min_bits, domain_bits)
        self.domain_bits = domain_bits
        self.min_bits = min_bits
        self.offsets: list[int] = [0]
        self._bits: list[int] = [domain_bits]
        self.contents: list[Content] = [content]
        self._unsettled = 1
        """The number of first buckets that may be badly placed: `restore` need not look at the others every time."""

    def layout(self) -> list[tuple[int, int]]:
        """`(offset, bits)` of every bucket, ascending."""
        return list(zip(self.offsets, self._bits, strict=True))

    def items(self) -> list[tuple[tuple[int, int], Content]]:
        """`((offset, bits), content)` of every bucket, ascending."""
        return list(zip(self.layout(), self.contents, strict=True))

    def lower(self) -> int | None:
        """The least time that has a bucket; None when all are peeled."""
        return self.offsets[0] if self.offsets else None

    def require_bucket(self, times: Sequence[int]) -> None:
        """Raise NoBucket for the first of `times` that is below every bucket."""
        lower = self.lower()
        for time in times:
            if lower is None or time < lower:
                raise NoBucket(time, lower)

    def spans(self, times: Times) -> Iterator[tuple[Content, int, int]]:
        """For each bucket that ascending `times` fall into: its content, and the first and the end index of its times.

        Times below `lower()` are in no span.
        """
        starts = np.searchsorted(times, np.array(self.offsets, np.uint64)).tolist()
        starts.append(times.shape[0])
        for index, content in enumerate(self.contents):
            if starts[index] < starts[index + 1]:
                yield content, starts[index], starts[index + 1]

    def is_well_formed(self) -> bool:
        """True if every bucket is well placed: its bits are at most those of the previous bucket plus 2."""
        allowed = self.min_bits
        for bits in self._bits:
            if bits > allowed:
                return False
            allowed = bits + 2
        return True

    def peel(self, frontier: Frontier) -> list[Content]:
        """Remove all buckets that start below `frontier` and return their contents, ascending.

        A bucket that straddles the frontier is halved until no half does, or until it has the least width. A bucket of
        the least width is removed as a whole. So the last content may have items at or beyond `frontier`, and
        `lower()` may pass the frontier.
        """
        peeled: list[Content] = []
        while self.offsets and not frontier.admits(self.offsets[0]):
            end = self.offsets[0] + (1 << self._bits[0])
            straddles = frontier.time is not None and frontier.time < end
            if straddles and self._bits[0] > self.min_bits:
                self._halve(0)
            else:
                del self.offsets[0], self._bits[0]
                peeled.append(self.contents.pop(0))
                self._unsettled = max(self._unsettled - 1, 1)
        return peeled

    def restore(self, fuel: int) -> int:
        """Split badly placed buckets from left to right while there is fuel; returns the fuel left, perhaps below zero.

        Splitting costs one unit of fuel per item in the bucket. If fuel is left (above zero), the chain is well formed.
        """
        index, allowed = 0, self.min_bits
        while fuel > 0 and index < min(self._unsettled, len(self.offsets)):
            if self._bits[index] > allowed:
                fuel -= self.contents[index].count
                self._halve(index)
            else:
                allowed = self._bits[index] + 2
                index += 1
        if index >= min(self._unsettled, len(self.offsets)):
            self._unsettled = 0
        return fuel

    def _halve(self, index: int) -> None:
        bits = self._bits[index] - 1
        middle = self.offsets[index] + (1 << bits)
        low, high = self.contents[index].split(middle)
        self.offsets.insert(index + 1, middle)
        self._bits[index : index + 1] = [bits, bits]
        self.contents[index : index + 1] = [low, high]
        # both halves, and the bucket after them, as the bucket before that one has become narrower
        self._unsettled = max(self._unsettled + 1, index + 3)
