"""Rows that say their operation: columns for op, indices, values, scalar, transform and parent, folded to states.

The row layout is the algebra's own (`ops.py`): what a column does not say is null. Deltas that the row or the chain
refuses are skipped and returned with their reason, never lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.kernels.deltas.fold import Transform, fold
from spark_jobs.kernels.deltas.ops import MalformedDeltasError, Op, Refusal
from spark_jobs.kernels.deltas.tables import Keys, encode_entities, one_chunk, required, states_of, states_table, ticks

Array = npt.NDArray[Any]

_UNKNOWN_OP = 255
_UNRESOLVED_PARENT = NO_PARENT + 1


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """Names of the columns that say what a delta does; None where the source has no such column.

    `op` holds the names of `Op` in lower case, `indices` and `values` lists of equal length, `scalar` the factor or
    term of Scale and Offset, `transform` a registered name. `parent` holds another delta's `delta_id`.
    """

    entity: str
    time: str
    row_id: str
    op: str
    indices: str | None = None
    values: str | None = None
    scalar: str | None = None
    transform: str | None = None
    delta_id: str | None = None
    parent: str | None = None


def fold_operations(
    table: pa.Table,
    columns: DeltaColumns,
    *,
    dtype: npt.DTypeLike,
    names: Sequence[str] | None = None,
    dims: int | None = None,
    transforms: Mapping[str, Transform] | None = None,
    prior: pa.Table | None = None,
    folded: pa.Table | None = None,
) -> tuple[pa.Table, pa.Table]:
    """States of all entities of `table` and `prior`, and the refused deltas (entity, event_time, row_id, reason).

    Args:
        table: deltas of many entities in any order, none before its entity's prior state.
        dtype: type of the vectors: float32, float64 or int64.
        names: names of the components, which also declare the vector's length.
        dims: the declared length of vectors without names; None lets Create and Dense decide per entity.
        prior: state table that this function returned for earlier deltas.
        folded: what went into `prior`, only to find declared parents: columns named as in `columns`.
    """
    keys = encode_entities(required(table, columns.entity), None if prior is None else one_chunk(prior, "entity"))
    length = dims if names is None else len(names)
    known = _folded_ids(folded, columns, keys)
    batch = delta_batch(table, columns, keys, dtype=dtype, dims=length, folded=folded)
    result = fold(batch, states_of(prior, keys, names, dtype), transforms=transforms, folded=known)
    time = table.schema.field(columns.time).type
    return states_table(result.states, keys, names, time), _refused(table, columns, result.refusal)


def delta_batch(
    table: pa.Table,
    columns: DeltaColumns,
    keys: Keys,
    *,
    dtype: npt.DTypeLike,
    dims: int | None = None,
    folded: pa.Table | None = None,
) -> DeltaBatch:
    """The rows as a batch over the entities of `keys`; lists of unequal length become a refusal of their row."""
    op = _op_codes(one_chunk(table, columns.op))
    whole = (op == Op.CREATE) | (op == Op.DENSE)
    indexed = (op == Op.SPARSE) | (op == Op.ADD)
    values, value_starts, value_lengths = _ragged(table, columns.values, _arrow_type(dtype))
    indices, index_starts, index_lengths = _ragged(table, columns.indices, pa.int64())
    unequal = indexed & (value_lengths != index_lengths)
    lengths = np.where(whole | (indexed & ~unequal), value_lengths, 0)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    cells = np.arange(offsets[-1]) + np.repeat(value_starts - offsets[:-1], lengths)
    transform = _encoded(table, columns.transform)
    payload = values.take(pa.array(cells))
    return DeltaBatch.from_columns(
        entity_count=len(keys),
        entity=keys.rows,
        event_time=ticks(required(table, columns.time)),
        row_id=ticks(required(table, columns.row_id)),
        op=op,
        offsets=offsets,
        indices=_gathered_indices(indices, index_starts, np.where(indexed, lengths, 0), whole, lengths),
        values=pc.fill_null(payload, 0).to_numpy(zero_copy_only=False),
        nulls=payload.is_null().to_numpy(zero_copy_only=False),
        scalar=_scalars(table, columns.scalar, dtype),
        transform=transform[0],
        transform_names=transform[1],
        parent=_parents(table, columns, folded),
        refusal=np.where(unequal, Refusal.UNEQUAL_LISTS, Refusal.NONE),
        dtype=dtype,
        dims=dims,
    )


def _op_codes(column: pa.Array) -> Array:
    names = pa.array([op.name.lower() for op in Op])
    return (
        pc.fill_null(pc.index_in(column, value_set=names), _UNKNOWN_OP).to_numpy(zero_copy_only=False).astype(np.uint8)
    )


def _ragged(table: pa.Table, name: str | None, element: pa.DataType) -> tuple[pa.Array, Array, Array]:
    """Elements of a list column, and per row where its own start and how many they are; a null list is empty."""
    if name is None:
        return pa.array([], element), np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    lists = _cast(one_chunk(table, name), pa.list_(element), name)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lists.values, lists.offsets.to_numpy(zero_copy_only=False)[:-1].astype(np.int64), lengths


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as refused:
        raise MalformedDeltasError(
            expected=f"column {name!r} that fits {kind}", found=str(refused), next_step="declare a wider type"
        ) from refused


def _gathered_indices(indices: pa.Array, starts: Array, lengths: Array, whole: Array, all_lengths: Array) -> Array:
    """Indices cell by cell; a whole vector has none, a null index becomes -1, which no vector has."""
    gathered = np.zeros(int(all_lengths.sum()), dtype=np.int64)
    ends = np.cumsum(lengths)
    cells = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
    found = pc.fill_null(indices.take(pa.array(cells)), -1).to_numpy(zero_copy_only=False)
    gathered[~np.repeat(whole, all_lengths)] = np.clip(found, -1, np.iinfo(np.int32).max)
    return gathered


def _scalars(table: pa.Table, name: str | None, dtype: npt.DTypeLike) -> Array | None:
    if name is None:
        return None
    return pc.fill_null(_cast(one_chunk(table, name), _arrow_type(dtype), name), 0).to_numpy(zero_copy_only=False)


def _encoded(table: pa.Table, name: str | None) -> tuple[Array, list[str]]:
    if name is None:
        return np.full(len(table), -1), []
    encoded = one_chunk(table, name).dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _parents(table: pa.Table, columns: DeltaColumns, folded: pa.Table | None) -> Array | None:
    """Row ids of the declared parents; a parent that is nowhere gets a row id that no row has."""
    if columns.parent is None:
        return None
    if columns.delta_id is None:
        raise MalformedDeltasError(
            expected="a delta_id column where parents are declared", found="none", next_step="name the delta_id column"
        )
    parent = one_chunk(table, columns.parent)
    ids, row_ids = one_chunk(table, columns.delta_id), ticks(one_chunk(table, columns.row_id))
    if folded is not None:
        ids = pa.concat_arrays([ids, one_chunk(folded, columns.delta_id)])
        row_ids = np.concatenate((row_ids, ticks(one_chunk(folded, columns.row_id))))
    position = pc.fill_null(pc.index_in(parent, value_set=ids), -1).to_numpy(zero_copy_only=False)
    resolved = np.append(row_ids, _UNRESOLVED_PARENT)[position]
    return np.where(parent.is_valid().to_numpy(zero_copy_only=False), resolved, NO_PARENT)


def _folded_ids(folded: pa.Table | None, columns: DeltaColumns, keys: Keys) -> tuple[Array, Array] | None:
    if folded is None:
        return None
    codes = pc.index_in(one_chunk(folded, columns.entity).cast(keys.values.type), value_set=keys.values)
    return pc.fill_null(codes, -1).to_numpy(zero_copy_only=False), ticks(one_chunk(folded, columns.row_id))


def _refused(table: pa.Table, columns: DeltaColumns, refusal: Array) -> pa.Table:
    rows = pa.array(np.flatnonzero(refusal))
    picked = [one_chunk(table, name).take(rows) for name in (columns.entity, columns.time, columns.row_id)]
    reasons = pa.array([reason.code for reason in Refusal]).take(pa.array(refusal[refusal != Refusal.NONE]))
    return pa.Table.from_arrays([*picked, reasons], names=["entity", "event_time", "row_id", "reason"])


def _arrow_type(dtype: npt.DTypeLike) -> pa.DataType:
    return pa.from_numpy_dtype(np.dtype(dtype))
