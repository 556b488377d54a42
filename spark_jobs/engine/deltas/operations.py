"""Rows with columns for op, indices, values, scalar and transform, read into a batch of deltas.

The row layout is that of the algebra (`ops.py`); a column that an operation does not use is null. A fault that the row
alone shows becomes its refusal; the row stays in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.ops import MalformedDeltasError, Op, Refusal
from spark_jobs.engine.deltas.tables import Keys, one_chunk, required_column, ticks

Array = npt.NDArray[Any]

_UNKNOWN_OP = 255


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The names of the columns that describe a delta; None if the source has no such column.

    `op` has the names of `Op` in lower case; `indices` and `values` have lists of equal length; `scalar` has the factor
    of Scale or the term of Offset; `transform` has a registered name. `parent` has the `delta_id` of another delta.
    `unreadable` is true for rows whose lists could not be read.
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
    unreadable: str | None = None


def delta_batch(
    table: pa.Table,
    columns: DeltaColumns,
    keys: Keys,
    *,
    dtype: npt.DTypeLike,
    dims: int | None = None,
) -> DeltaBatch:
    """The rows as a batch over the entities of `keys`.

    A row with lists of unequal length, or a Scale or Offset without its scalar, gets a refusal. Parents are not looked
    up here, as that needs the chain (`packing.with_parents`).
    """
    op = _op_codes(one_chunk(table, columns.op))
    whole = (op == Op.CREATE) | (op == Op.DENSE)
    indexed = np.isin(op, (Op.SPARSE, Op.ADD, Op.UPSERT))
    values, value_starts, value_lengths = _list_elements(table, columns.values, _arrow_type(dtype))
    indices, index_starts, index_lengths = _list_elements(table, columns.indices, pa.int64())
    unequal = indexed & (value_lengths != index_lengths)
    refusal = np.where(unequal, Refusal.UNEQUAL_LISTS, Refusal.NONE)
    scalar, unsaid = _scalars(table, columns.scalar, dtype)
    refusal[unsaid & ((op == Op.SCALE) | (op == Op.OFFSET))] = Refusal.NULL_OPERAND
    if columns.unreadable is not None:
        broken = pc.fill_null(one_chunk(table, columns.unreadable), False).to_numpy(zero_copy_only=False)
        refusal[broken] = Refusal.UNREADABLE_LIST
    lengths = np.where((whole | indexed) & (refusal == Refusal.NONE), value_lengths, 0)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    transform = _encode(table, columns.transform)
    payload = _gather(values, value_starts, lengths)
    return DeltaBatch.from_columns(
        entity_count=len(keys),
        entity=keys.rows,
        event_time=ticks(required_column(table, columns.time)),
        row_id=ticks(required_column(table, columns.row_id)),
        op=op,
        offsets=offsets,
        indices=_gathered_indices(indices, index_starts, np.where(indexed, lengths, 0), whole, lengths),
        values=_fill(payload, 0),
        nulls=payload.is_null().to_numpy(zero_copy_only=False) if payload.null_count else None,
        scalar=scalar,
        transform=transform[0],
        transform_names=transform[1],
        refusal=refusal,
        dtype=dtype,
        dims=dims,
    )


def _op_codes(column: pa.Array) -> Array:
    names = pa.array([op.name.lower() for op in Op])
    return (
        pc.fill_null(pc.index_in(column, value_set=names), _UNKNOWN_OP).to_numpy(zero_copy_only=False).astype(np.uint8)
    )


def _list_elements(table: pa.Table, name: str | None, element: pa.DataType) -> tuple[pa.Array, Array, Array]:
    """The elements of a list column, and per row the start and the number of its elements; a null list is empty."""
    if name is None:
        return pa.array([], element), np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    lists = one_chunk(table, name)
    if lists.type != pa.list_(pa.int32()) or element != pa.int64():
        lists = _cast(lists, pa.list_(element), name)
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
    """The indices, cell by cell: 0 for the cells of a whole vector, and -1, which no vector has, for a null index."""
    filled_indices = _fill(_gather(indices, starts, lengths), -1)
    if filled_indices.dtype != np.int32:
        filled_indices = np.clip(filled_indices, -1, np.iinfo(np.int32).max).astype(np.int32)
    if len(filled_indices) == all_lengths.sum():
        return filled_indices
    gathered = np.zeros(int(all_lengths.sum()), dtype=np.int32)
    gathered[~np.repeat(whole, all_lengths)] = filled_indices
    return gathered


def _gather(elements: pa.Array, starts: Array, lengths: Array) -> pa.Array:
    """The elements of lists that start at `starts`, list after list."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    filled = np.flatnonzero(lengths)
    first = int(starts[filled[0]]) if total else 0
    if np.array_equal(starts[filled], first + ends[filled] - lengths[filled]):
        return elements.slice(first, total)
    return elements.take(pa.array(np.arange(total) + np.repeat(starts - ends + lengths, lengths)))


def _fill(elements: pa.Array, default: int) -> Array:
    """A copy of the elements with `default` for null; a copy, because compiled code accepts only writable arrays."""
    filled = pc.fill_null(elements, default) if elements.null_count else elements
    return np.array(filled.to_numpy(zero_copy_only=False))


def _scalars(table: pa.Table, name: str | None, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """The scalars, 0 for a row without one, and a mask of the rows without one."""
    if name is None:
        return np.zeros(len(table), dtype), np.ones(len(table), np.bool_)
    given = one_chunk(table, name)
    # a whole number that is declared as a float is rounded
    typed = (
        given.cast(_arrow_type(dtype), safe=False) if np.dtype(dtype).kind == "f" else _cast(given, pa.int64(), name)
    )
    return pc.fill_null(typed, 0).to_numpy(zero_copy_only=False), given.is_null().to_numpy(zero_copy_only=False)


def _encode(table: pa.Table, name: str | None) -> tuple[Array, list[str]]:
    if name is None:
        return np.full(len(table), -1), []
    encoded = one_chunk(table, name).dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _arrow_type(dtype: npt.DTypeLike) -> pa.DataType:
    return pa.from_numpy_dtype(np.dtype(dtype))
