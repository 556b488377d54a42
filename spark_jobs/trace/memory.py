"""The in-memory data plane: one Arrow table per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

import numpy as np
import pyarrow as pa

from spark_jobs.engine.arrangement import AdvanceRequest, Description, StoredBatch, check_trace_batch
from spark_jobs.engine.corrections import DIFF_LIMIT, Updates, greatest_magnitude, greatest_sums
from spark_jobs.engine.updates import (
    DIFF,
    TIME,
    DiffOverflow,
    accumulate,
    consolidate,
    data_columns,
    dense_ranks,
    forward,
)
from spark_jobs.model import Frontier
from spark_jobs.trace.plane import Examined, Placed, Slice, SteppedPlane, malformed_updates

UPDATE_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), (TIME, pa.int64()), (DIFF, pa.int64())])
"""The schema of keyed updates as in the pipeline: times are int64 microseconds."""


def updates_table(updates: Iterable[Sequence[object]], schema: pa.Schema = UPDATE_SCHEMA) -> pa.Table:
    """A table of updates from rows in the schema's column order; integers stay exact over the column type's range.

    Raises MalformedUpdates for values that are not of a column's type.
    """
    try:
        columns = list(zip(*updates, strict=True)) or [()] * len(schema)
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise malformed_updates(f"rows of {_describe_schema(schema)}", str(error)) from None
    return pa.table(arrays, schema)


class ArrowPlane(SteppedPlane[pa.Table]):
    """Batches as Arrow tables of one schema, in a dictionary.

    Args:
        schema: data columns, and `time` (an integer type, signed or not) and `diff` (int64).
        size_of: a function that returns a batch's size, by which its level is chosen; by default its bytes in memory.
        handles: names that are not in use; by default 0, 1, 2, … as strings.
    """

    def __init__(
        self,
        schema: pa.Schema = UPDATE_SCHEMA,
        *,
        size_of: Callable[[pa.Table], int] = lambda updates: updates.nbytes,
        handles: Iterable[str] | None = None,
    ) -> None:
        _require_order(schema)
        self._schema = schema
        self._size_of = size_of
        self._handles = iter(handles) if handles is not None else map(str, count())
        self._batches: dict[str, pa.Table] = {}
        self._magnitude = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return self._schema

    @property
    def greatest_time(self) -> int:
        """The greatest integer of the type of `time`."""
        return int(np.iinfo(self._schema.field(TIME).type.to_pandas_dtype()).max)

    def stored(self) -> dict[str, StoredBatch]:
        """See `DataPlane.stored`; batches without updates are included."""
        return {handle: self._describe(handle, updates) for handle, updates in self._batches.items()}

    def check(self, handle: str, description: Description) -> None:
        """See `DataPlane.check`: a batch is sorted by all of its data, then time, and consolidated."""
        check_trace_batch(description, self._batches[handle])

    def examine(self, updates: pa.Table, frontiers: Sequence[Frontier]) -> Examined:
        """See `SteppedPlane.examine`; `first_below` has the first time below each frontier in the table's order."""
        typed = self._cast_updates(updates)
        times = typed.column(TIME).to_numpy()
        below = tuple(_first_below(times, frontier) for frontier in frontiers)
        return Examined(len(times), below, _magnitude(typed))

    def check_sums(self, updates: pa.Table, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """See `DataPlane.check_sums`. Exact: updates are refused only if the sum of a read at some time is beyond
        int64."""
        if magnitude + self._magnitude < DIFF_LIMIT:
            return
        everything = _code(pa.concat_tables([self.read(beside()), self._cast_updates(updates)]))
        positive, negative = greatest_sums(everything, Updates.empty())
        # the least int64 is one further from 0 than the greatest
        if positive >= DIFF_LIMIT or negative > DIFF_LIMIT:
            raise DiffOverflow

    def put(self, updates: pa.Table) -> StoredBatch:
        """See `SteppedPlane.put`. Columns are taken by name; raises MalformedUpdates as `examine` does."""
        return self._store(self._cast_updates(updates))

    def drain(self, handles: Sequence[str], lower: Frontier, upper: Frontier) -> StoredBatch | None:
        """See `SteppedPlane.drain`."""
        raw = self.read([Slice(handle, lower, upper) for handle in handles])
        return self._store(consolidate(raw)) if raw.num_rows else None

    def place(self, updates: pa.Table | None, request: AdvanceRequest) -> Placed:
        """See `DataPlane.place`."""
        new = self._schema.empty_table() if updates is None else self._cast_updates(updates)
        examined = self.examine(new, [request.door])
        moving = self.read([Slice(batch.handle, request.lower) for batch in request.moving])
        rows = pa.concat_tables([moving, new])
        due = _not_at_or_beyond(rows.column(TIME).to_numpy(), Frontier.at(request.seal))
        later = rows.filter(pa.array(~due))
        levels = request.buckets.levels(later.column(TIME).to_numpy(), request.seal)
        buckets = [consolidate(later.filter(pa.array(levels == level))) for level in np.unique(levels)]
        drained = consolidate(rows.filter(pa.array(due))) if due.any() else None
        # all sums are made before the first batch is stored: an overflow leaves no batch
        stored = None if drained is None else self._store(drained)
        waiting = tuple(self._store(bucket) for bucket in buckets if bucket.num_rows)
        return Placed(examined, int(due.sum()), stored, waiting)

    def trim(self, handle: str, lower: Frontier) -> StoredBatch:
        """See `SteppedPlane.trim`."""
        return self._store(self.read([Slice(handle, lower)]))

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """See `DataPlane.merge`."""
        return self._store(consolidate(self.read([Slice(earlier), Slice(later)], since)))

    def read(self, slices: Sequence[Slice], since: Frontier | None = None) -> pa.Table:
        """See `SteppedPlane.read`. Raises KeyError for an unknown handle."""
        parts = [_cut(self._batches[part.handle], part) for part in slices]
        updates = pa.concat_tables([self._schema.empty_table(), *parts])
        return updates if since is None else forward(updates, since.time)

    def accumulate(self, slices: Sequence[Slice]) -> pa.Table:
        """See `DataPlane.accumulate`."""
        return accumulate(self.read(slices))

    def delete(self, handles: Sequence[str]) -> None:
        """See `DataPlane.delete`."""
        for handle in handles:
            gone = self._batches.pop(handle, None)
            self._magnitude -= 0 if gone is None else _magnitude(gone)

    def _cast_updates(self, updates: pa.Table) -> pa.Table:
        """The updates cast to this plane's schema without loss. Raises MalformedUpdates."""
        if not isinstance(updates, pa.Table):
            raise malformed_updates("a table of Arrow", type(updates).__name__)
        columns = []
        for field in self._schema:
            if updates.column_names.count(field.name) != 1:
                raise malformed_updates(f"one column {field.name}", f"{updates.column_names}", field.name)
            column = updates.column(field.name)
            if column.type != field.type:
                column = _cast(column, field)
            if column.null_count and field.name in (TIME, DIFF):
                raise malformed_updates(f"a {field.name} in every row", f"{column.null_count} nulls", field.name)
            columns.append(column)
        return pa.table(columns, self._schema)

    def _store(self, updates: pa.Table) -> StoredBatch:
        handle = next(self._handles)
        self._batches[handle] = updates
        self._magnitude += _magnitude(updates)
        return self._describe(handle, updates)

    def _describe(self, handle: str, updates: pa.Table) -> StoredBatch:
        times = updates.column(TIME).to_numpy()
        least, greatest = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        return StoredBatch(handle, len(times), self._size_of(updates), least, greatest)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The column cast to the field's type. Raises MalformedUpdates if a value could change its meaning."""
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    alike = plain == field.type or any(of(plain) and of(field.type) for of in (pa.types.is_integer, _is_text))
    alike |= pa.types.is_null(plain) and field.name not in (TIME, DIFF)
    try:
        if alike:
            return column.cast(field.type)
        finding = f"a column of {column.type}"
    except pa.ArrowException as error:
        finding = str(error)
    raise malformed_updates(f"{field.name} as {field.type}", finding, field.name)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _require_order(schema: pa.Schema) -> None:
    """Raise MalformedUpdates for a schema without a usable time or diff, or with a data column whose type has no
    order."""
    for name, of in ((TIME, pa.types.is_integer), (DIFF, pa.types.is_int64)):
        if schema.names.count(name) != 1 or not of(schema.field(name).type):
            raise malformed_updates(
                f"one column {name} of {'an integer type' if name == TIME else 'int64'}", _describe_schema(schema), name
            )
    for name in data_columns(schema):
        try:
            dense_ranks(pa.array([], schema.field(name).type))
        except (pa.ArrowException, TypeError) as error:
            raise malformed_updates(f"{name} of a type that has an order", str(error), name) from None


def _describe_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _magnitude(updates: pa.Table) -> int:
    """A bound that no sum of the updates' diffs exceeds."""
    return updates.num_rows * greatest_magnitude(updates.column(DIFF).to_numpy()) if updates.num_rows else 0


def _code(updates: pa.Table) -> Updates:
    """The updates with each value of the data replaced by a number."""
    names = data_columns(updates.schema)
    ranks = np.array([dense_ranks(updates.column(name)) for name in names]).reshape(len(names), updates.num_rows)
    codes = np.unique(ranks, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    times, diffs = (updates.column(name).to_numpy() for name in (TIME, DIFF))
    return Updates(times.astype(np.uint64), codes, diffs)


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
