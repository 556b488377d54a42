"""Conversions from and to Arrow: the columns of a partition's rows as numpy, and states as the table that gold stores.

A state table has one row per entity: `entity`, `timestamp` (the event time of the last delta folded), `at_delta` (its
row id), `delta_count`, `names` (null for vectors without names), `vector` (an element is null if it is a null or was
never seen), `seen` (false if it was never seen), `deleted` (a tombstone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas.ops import MalformedDeltasError, Status
from spark_jobs.engine.deltas.states import NO_DELTA, States

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Keys:
    """The entities of a partition by code; `rows` and `prior` are the codes of the rows and of the prior states."""

    values: pa.Array
    rows: Array
    prior: Array

    def __len__(self) -> int:
        return len(self.values)


def state_schema(entity: pa.DataType, time: pa.DataType, value: pa.DataType) -> pa.Schema:
    """The schema of a state table for these types of entity, time and component."""
    return pa.schema(
        [
            pa.field("entity", entity, nullable=False),
            pa.field("timestamp", time),
            pa.field("at_delta", pa.int64()),
            pa.field("delta_count", pa.int64(), nullable=False),
            pa.field("names", pa.list_(pa.string())),
            pa.field("vector", pa.list_(value), nullable=False),
            pa.field("seen", pa.list_(pa.bool_()), nullable=False),
            pa.field("deleted", pa.bool_(), nullable=False),
        ]
    )


def one_chunk(table: pa.Table, name: str) -> pa.Array:
    """A column as one array. Raises MalformedDeltasError if the table lacks it."""
    if name not in table.column_names:
        raise MalformedDeltasError(
            expected=f"a column {name!r}", found=", ".join(table.column_names), next_step="name a column of the table"
        )
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def required_column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array. Raises MalformedDeltasError if the table lacks it, or if it has nulls."""
    column = one_chunk(table, name)
    if column.null_count:
        raise MalformedDeltasError(
            expected=f"column {name!r} without nulls",
            found=f"{column.null_count} nulls",
            next_step="quarantine such rows when they land",
        )
    return column


def ticks(column: pa.Array) -> Array:
    """Times as int64: integers as they are, timestamps in microseconds; null is 0."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def component_matrix(
    table: pa.Table, components: Mapping[str, str | int | float], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """The values of the components, and where they are null: arrays of one row for each row and a column for each.

    `components` maps a component to its column, or to a constant for every row. Values are rounded to a float type;
    those that are no whole numbers of an integer type are refused by Arrow.
    """
    values = np.zeros((len(table), len(components)), dtype)
    nulls = np.zeros((len(table), len(components)), np.bool_)
    for position, source in enumerate(components.values()):
        if not isinstance(source, str):
            values[:, position] = source
            continue
        column = one_chunk(table, source)
        nulls[:, position] = column.is_null().to_numpy(zero_copy_only=False)
        typed = column.cast(pa.from_numpy_dtype(dtype), safe=dtype.kind == "i")
        values[:, position] = pc.fill_null(typed, 0).to_numpy(zero_copy_only=False)
    return values, nulls


def encode_entities(rows: pa.Array, prior: pa.Array | None) -> Keys:
    """Number the entities of the rows and of the prior states, in order of first appearance."""
    earlier = pa.array([], rows.type) if prior is None else prior.cast(rows.type)
    encoded = pa.concat_arrays([rows, earlier]).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Keys(encoded.dictionary, codes[: len(rows)], codes[len(rows) :])


def states_table(states: States, keys: Keys, names: Sequence[str] | None, time: pa.DataType) -> pa.Table:
    """The states as a table, without absent entities."""
    kept = np.flatnonzero(states.status != Status.ABSENT)
    lengths = states.dims[kept]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    cells = np.arange(offsets[-1]) + np.repeat(states.offsets[:-1][kept] - offsets[:-1], lengths)
    value_type = pa.from_numpy_dtype(states.values.dtype)
    has_value = states.seen[cells] & ~states.nulls[cells]
    untouched = states.delta_count[kept] == 0
    bounds = pa.array(offsets, pa.int32())
    columns = [
        keys.values.take(pa.array(kept)),
        pa.array(states.event_time[kept], pa.int64(), mask=untouched).cast(time),
        pa.array(states.row_id[kept], pa.int64(), mask=untouched),
        pa.array(states.delta_count[kept]),
        _repeated_names(names, len(kept)),
        pa.ListArray.from_arrays(bounds, pa.array(states.values[cells], value_type, mask=~has_value)),
        pa.ListArray.from_arrays(bounds, pa.array(states.seen[cells])),
        pa.array(states.status[kept] == Status.DELETED),
    ]
    return pa.Table.from_arrays(columns, schema=state_schema(keys.values.type, time, value_type))


def states_of(prior: pa.Table | None, keys: Keys, names: Sequence[str] | None, dtype: npt.DTypeLike) -> States:
    """Read a state table back: each state is at the code of its entity; `prior` None: all entities are absent.

    Raises MalformedDeltasError if the table has other component names."""
    if prior is None or not len(prior):
        return States.absent(len(keys), dtype)
    _check_names(prior, names)
    order = np.argsort(keys.prior)
    table = prior.take(pa.array(order))
    codes = keys.prior[order]
    vector, seen = one_chunk(table, "vector"), one_chunk(table, "seen")
    cells, flags = vector.flatten(), seen.flatten().to_numpy(zero_copy_only=False).astype(np.bool_)
    unknown = cells.is_null().to_numpy(zero_copy_only=False)
    lengths = np.zeros(len(keys), dtype=np.int64)
    lengths[codes] = vector.value_lengths().to_numpy(zero_copy_only=False)
    placed = States.absent(len(keys), dtype)
    placed.status[codes] = np.where(
        one_chunk(table, "deleted").to_numpy(zero_copy_only=False), Status.DELETED, Status.LIVE
    )
    placed.event_time[codes] = _or_no_delta(one_chunk(table, "timestamp"))
    placed.row_id[codes] = _or_no_delta(one_chunk(table, "at_delta"))
    placed.delta_count[codes] = one_chunk(table, "delta_count").to_numpy()
    return States(
        status=placed.status,
        offsets=np.concatenate(([0], np.cumsum(lengths))),
        values=pc.fill_null(cells, 0).to_numpy(zero_copy_only=False).astype(dtype),
        seen=flags,
        nulls=unknown & flags,
        event_time=placed.event_time,
        row_id=placed.row_id,
        delta_count=placed.delta_count,
    )


def _repeated_names(names: Sequence[str] | None, count: int) -> pa.Array:
    if names is None:
        return pa.nulls(count, pa.list_(pa.string()))
    values = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), count)))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * len(names), pa.int32()), values)


def _check_names(prior: pa.Table, names: Sequence[str] | None) -> None:
    column = one_chunk(prior, "names")
    if names is None:
        same = column.null_count == len(column)
    else:
        same = column.null_count == 0 and column.equals(_repeated_names(names, len(column)))
    if not same:
        raise MalformedDeltasError(
            expected=f"prior states with the components {names if names is None else list(names)}",
            found=f"{column[0]}",
            next_step="fold from the rows when a source's components change",
        )


def _or_no_delta(column: pa.Array) -> Array:
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), ticks(column), NO_DELTA)
