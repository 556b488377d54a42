"""Where updates wait that are not due yet: in buckets of time whose ranges grow with their distance from the seal.

Times are counted in units from a start. An update's level is the number of the highest bit in which its unit differs
from the seal's; its bucket holds the units that agree with its own in that bit and in all higher ones:

    seal in unit   5 = 0b101
    unit           5    6 7    8 … 15    16 … 31    32 … 63
    level          0    2      4         5          6

So a bucket is as wide as it is far away, there are O(log range) of them, and a batch that holds one bucket's updates is
not opened before the seal has come close to it. When the seal passes a batch's first update, what of the batch is not
due goes into the buckets of the new seal, all of lower levels: an update moves O(log range) times in all. Batches of
one bucket that are FANOUT of about one size become one, which moves each update O(log N) times more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.arrangement.batches import UnsealedBatch

LEVELS = 32
"""Levels that are told apart; what is still farther away lies in the bucket of the last one."""

FANOUT_BITS = 3
FANOUT = 1 << FANOUT_BITS
"""So many batches of one bucket, each at most FANOUT times as large as another, are worth to be written together."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The units of time that buckets are made of: unit `n` is `[start + n * unit, start + (n + 1) * unit)`."""

    start: int
    unit: int

    def levels(self, times: npt.NDArray[np.integer], seal: int) -> npt.NDArray[np.int64]:
        """The levels of times at or beyond the seal, all at or beyond the start; 0 within the seal's own unit."""
        as_time = times.dtype.type
        differing = (times - as_time(self.start)) // as_time(self.unit) ^ as_time(self._unit_of(seal))
        levels = np.zeros(times.shape, np.int64)
        for bit in range(LEVELS - 1):
            levels += differing >> as_time(bit) != 0
        return levels

    def bucket(self, time: int, seal: int) -> tuple[int, int]:
        """`[lo, hi)` of the bucket of a time at or beyond the seal, however many levels there are."""
        below = max((self._unit_of(time) ^ self._unit_of(seal)).bit_length() - 1, 0)
        first = self._unit_of(time) >> below << below
        return self.start + first * self.unit, self.start + (first + (1 << below)) * self.unit

    def rewritten(self, unsealed: Sequence[UnsealedBatch], seal: int) -> tuple[UnsealedBatch, ...]:
        """The batches to write anew when the seal moves to `seal`: those with something due, and the crowded ones."""
        due = [batch for batch in unsealed if batch.least < seal]
        waiting = (batch for batch in unsealed if batch.least >= seal)
        alike: defaultdict[tuple[int, int, int], list[UnsealedBatch]] = defaultdict(list)
        for batch in waiting:
            lo, hi = self.bucket(batch.least, seal)
            # the seal has entered the bucket of any other: it holds several of today's buckets, and waits to be due
            if batch.greatest < hi:
                alike[lo, hi, batch.n_updates.bit_length() // FANOUT_BITS].append(batch)
        crowded = [batch for batches in alike.values() if len(batches) >= FANOUT for batch in batches]
        return tuple(_in_order(unsealed, [*due, *crowded]))

    def _unit_of(self, time: int) -> int:
        return (time - self.start) // self.unit


def _in_order(unsealed: Sequence[UnsealedBatch], chosen: Iterable[UnsealedBatch]) -> Iterable[UnsealedBatch]:
    handles = {batch.handle for batch in chosen}
    return (batch for batch in unsealed if batch.handle in handles)
