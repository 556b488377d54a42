"""The ids that have occurred so far in one cell of a key, exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.rows import order_keys


@dataclass
class Seen:
    """A growing set of ids.

    Whole numbers and timestamps take 8 bytes each. They are in sorted runs, each at least twice as long as the next.
    Other ids are Python objects.
    """

    in_runs: bool
    runs: list[npt.NDArray[np.int64]] = field(default_factory=list)
    others: set[Any] = field(default_factory=set)

    @classmethod
    def of(cls, kind: pa.DataType) -> Seen:
        """An empty set for ids of this type."""
        numbers = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
        return cls(numbers or pa.types.is_timestamp(kind))

    def add(self, ids: pa.Array) -> None:
        """Add ids, which have no nulls and are not in the set yet."""
        if not self.in_runs:
            self.others.update(ids.to_pylist())
        elif len(ids):
            run = np.sort(order_keys(ids))
            while self.runs and self.runs[-1].size < 2 * run.size:
                run = np.sort(np.concatenate((self.runs.pop(), run)), kind="stable")
            self.runs.append(run)

    def holds(self, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Flags of the ids that are in the set."""
        if not self.in_runs:
            return np.fromiter((one in self.others for one in ids.to_pylist()), np.bool_, len(ids))
        keys, there = order_keys(ids), np.zeros(len(ids), np.bool_)
        for run in self.runs:
            place = np.searchsorted(run, keys)
            there |= (place < run.size) & (run[np.minimum(place, run.size - 1)] == keys)
        return there
