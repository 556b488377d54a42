"""The stage: fresh updates, unordered, until they fill a chunk.

To make a chain takes a sort, an allocation and merges. If updates come one by one, that costs far more than a copy into
the stage.
"""

from __future__ import annotations

import numpy as np

from spark_jobs.engine.corrections.columns import BYTES_PER_UPDATE, Codes, Updates, concatenate


class UpdateStage:
    """Up to `capacity - 1` updates in columns of fixed size.

    Args:
        chunk_bytes: the size in bytes from which `capacity` follows: as many updates as fit, at least one.
    """

    __slots__ = ("capacity", "columns", "count")

    def __init__(self, chunk_bytes: int) -> None:
        self.capacity = max(1, chunk_bytes // BYTES_PER_UPDATE)
        self.columns = Updates.empty(self.capacity)
        self.count = 0

    def insert(self, updates: Updates) -> Updates | None:
        """Copy `updates` in. Once the stage is full, return as many whole capacities as there are, else None.

        The returned updates are not sorted. They share no memory with the stage, but may share memory with `updates`.
        """
        total = self.count + updates.size
        if total < self.capacity:
            self._append(updates)
            return None
        shipped = total // self.capacity * self.capacity
        everything = concatenate([self.columns.rows(0, self.count), updates]) if self.count else updates
        self.count = 0
        self._append(everything.rows(shipped, total))
        return everything.rows(0, shipped)

    def flush(self) -> Updates:
        """Empty the stage. Returns the updates that were in it, in memory of their own."""
        updates = self.updates().copy()
        self.count = 0
        return updates

    def updates(self) -> Updates:
        """The staged updates, without a copy: valid until the next call."""
        return self.columns.rows(0, self.count)

    def advance(self, since: int) -> None:
        """Move staged times up to `since`."""
        times = self.columns.times[: self.count]
        np.maximum(times, np.uint64(since), out=times)

    def recode(self, used: Codes) -> None:
        """Replace each staged code by its index in the ascending codes `used`."""
        data = self.columns.data[: self.count]
        data[:] = np.searchsorted(used, data)

    def _append(self, updates: Updates) -> None:
        start, stop = self.count, self.count + updates.size
        for column, values in zip(self.columns, updates, strict=True):
            column[start:stop] = values
        self.count = stop
