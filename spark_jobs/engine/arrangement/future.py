"""Buckets of time for updates that are not due yet. The range of a bucket grows with its distance from the seal.

Times are counted in units from a start. The level of an update is the number of the highest bit in which its unit
differs from that of the seal. Its bucket has all units that agree with its own in that bit and in all higher bits:

    seal in unit   5 = 0b101
    unit           5    6 7    8 … 15    16 … 31    32 … 63
    level          0    2      4         5          6

So a bucket is as wide as it is far away, and there are O(log range) buckets. A batch with the updates of one bucket is
not opened before the seal has come close to it. When the seal passes the first update of a batch, the updates that
are not due move into buckets of the new seal, all of lower levels: an update moves O(log range) times in all. FANOUT
batches of the same bucket and of similar size are merged, which moves each update O(log N) times more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.arrangement.batches import UnsealedBatch

LEVELS = 32
"""The number of levels that are told apart; times still farther away are in the bucket of the last level."""

FANOUT_BITS = 3
FANOUT = 1 << FANOUT_BITS
"""The number of batches of one bucket, of sizes within a factor of FANOUT, that are worth merging."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The units of time that make up buckets: unit `n` is `[start + n * unit, start + (n + 1) * unit)`."""

    start: int
    unit: int

    def levels(self, times: npt.NDArray[np.integer], seal: int) -> npt.NDArray[np.int64]:
        """The levels of times at or beyond the seal and the start; 0 within the unit of the seal."""
        as_time = times.dtype.type
        differing = (times - as_time(self.start)) // as_time(self.unit) ^ as_time(self._unit_of(seal))
        levels = np.zeros(times.shape, np.int64)
        for bit in range(LEVELS - 1):
            levels += differing >> as_time(bit) != 0
        return levels

    def bucket(self, time: int, seal: int) -> tuple[int, int]:
        """The bucket `[lo, hi)` of a time at or beyond the seal; its level may be beyond LEVELS."""
        below = max((self._unit_of(time) ^ self._unit_of(seal)).bit_length() - 1, 0)
        first = self._unit_of(time) >> below << below
        return self.start + first * self.unit, self.start + (first + (1 << below)) * self.unit

    def rewritten(self, unsealed: Sequence[UnsealedBatch], seal: int) -> tuple[UnsealedBatch, ...]:
        """The batches to rewrite when the seal moves to `seal`: those with due updates, and those of full buckets."""
        due = [batch for batch in unsealed if batch.least < seal]
        waiting = (batch for batch in unsealed if batch.least >= seal)
        alike: defaultdict[tuple[int, int, int], list[UnsealedBatch]] = defaultdict(list)
        for batch in waiting:
            lo, hi = self.bucket(batch.least, seal)
            # any other batch spans several buckets, as the seal has entered its old one: it waits until it is due
            if batch.greatest < hi:
                alike[lo, hi, batch.n_updates.bit_length() // FANOUT_BITS].append(batch)
        crowded = [batch for batches in alike.values() if len(batches) >= FANOUT for batch in batches]
        return tuple(_in_order(unsealed, [*due, *crowded]))

    def _unit_of(self, time: int) -> int:
        return (time - self.start) // self.unit


def _in_order(unsealed: Sequence[UnsealedBatch], chosen: Iterable[UnsealedBatch]) -> Iterable[UnsealedBatch]:
    handles = {batch.handle for batch in chosen}
    return (batch for batch in unsealed if batch.handle in handles)
