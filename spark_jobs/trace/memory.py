"""The in-memory data plane: one Arrow table per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

import numpy as np
import pyarrow as pa

from spark_jobs.kernels.arrangement import StoredBatch
from spark_jobs.kernels.consolidate import DIFF, TIME, accumulate, consolidate, forward
from spark_jobs.model import Frontier
from spark_jobs.trace.plane import DataPlane, Examined, Slice

UPDATE_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), (TIME, pa.int64()), (DIFF, pa.int64())])
"""Keyed updates as the pipeline has them: times are int64 microseconds."""


def updates_table(updates: Iterable[Sequence[object]], schema: pa.Schema = UPDATE_SCHEMA) -> pa.Table:
    """A table of updates from rows in the schema's column order; integers stay exact over the column type's range."""
    columns = list(zip(*updates, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)], schema)


class ArrowPlane(DataPlane[pa.Table]):
    """Batches as Arrow tables of one schema, in a dictionary.

    Args:
        schema: data columns, and `time` (an integer type, signed or not) and `diff` (int64).
        size_of: the size of a batch, which decides about levels; by default its bytes in memory.
        handles: gives names that are not in use; by default 0, 1, 2, … as strings.
    """

    def __init__(
        self,
        schema: pa.Schema = UPDATE_SCHEMA,
        *,
        size_of: Callable[[pa.Table], int] = lambda updates: updates.nbytes,
        handles: Iterable[str] | None = None,
    ) -> None:
        self._schema = schema
        self._size_of = size_of
        self._handles = iter(handles) if handles is not None else map(str, count())
        self._batches: dict[str, pa.Table] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return self._schema

    def stored_handles(self) -> frozenset[str]:
        """Handles of all batches held, orphans too."""
        return frozenset(self._batches)

    def examine(self, updates: pa.Table, frontiers: Sequence[Frontier]) -> Examined:
        """See `DataPlane.examine`; the offender is the first one in the table's order."""
        times = updates.column(TIME).to_numpy()
        return Examined(len(times), tuple(_first_below(times, frontier) for frontier in frontiers))

    def put(self, updates: pa.Table) -> StoredBatch:
        """See `DataPlane.put`. Columns are taken by name; raises ValueError if one is missing or of another type."""
        return self._store(updates.select(self._schema.names).cast(self._schema))

    def drain(self, handles: Sequence[str], lower: Frontier, upper: Frontier) -> StoredBatch | None:
        """See `DataPlane.drain`."""
        raw = self.read([Slice(handle, lower, upper) for handle in handles])
        return self._store(consolidate(raw)) if raw.num_rows else None

    def trim(self, handle: str, lower: Frontier) -> StoredBatch:
        """See `DataPlane.trim`."""
        return self._store(self.read([Slice(handle, lower)]))

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """See `DataPlane.merge`."""
        return self._store(consolidate(self.read([Slice(earlier), Slice(later)], since)))

    def read(self, slices: Sequence[Slice], since: Frontier | None = None) -> pa.Table:
        """See `DataPlane.read`. Raises KeyError for a handle that is not held."""
        parts = [_cut(self._batches[part.handle], part) for part in slices]
        updates = pa.concat_tables([self._schema.empty_table(), *parts])
        return updates if since is None else forward(updates, since.time)

    def accumulate(self, slices: Sequence[Slice]) -> pa.Table:
        """See `DataPlane.accumulate`."""
        return accumulate(self.read(slices))

    def delete(self, handles: Sequence[str]) -> None:
        """See `DataPlane.delete`."""
        for handle in handles:
            self._batches.pop(handle, None)

    def _store(self, updates: pa.Table) -> StoredBatch:
        handle = next(self._handles)
        self._batches[handle] = updates
        times = updates.column(TIME).to_numpy()
        least, greatest = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        return StoredBatch(handle, len(times), self._size_of(updates), least, greatest)


def _first_below(times: np.ndarray, frontier: Frontier) -> int | None:
    below = _not_at_or_beyond(times, frontier)
    return int(times[np.argmax(below)]) if below.any() else None


def _cut(updates: pa.Table, part: Slice) -> pa.Table:
    if part.lower == Frontier.at(0) and part.upper == Frontier.empty():
        return updates
    times = updates.column(TIME).to_numpy()
    return updates.filter(pa.array(~_not_at_or_beyond(times, part.lower) & _not_at_or_beyond(times, part.upper)))


def _not_at_or_beyond(times: np.ndarray, frontier: Frontier) -> np.ndarray:
    return np.ones(len(times), dtype=bool) if frontier.time is None else times < frontier.time
