"""The encodings of a segment's payloads: by index or by dimension, whichever takes fewer bytes; without loss.

==========  ==================================================  ================================================
encoding    a delta's cells                                     bytes
==========  ==================================================  ================================================
`sparse`    values, each with an index if the operation has     value + 4 a cell, value a cell of a whole vector
            indices
`dense`     a value per dimension, and a flag if it was given   value a dimension, a bit each if not all given
`changes`   of full rows: the cells that differ from the row    as `sparse`
            before, bit for bit
==========  ==================================================  ================================================

Sources whose every row has the whole vector use `changes` or `dense`; all others use `sparse` or `dense`. Sizes are
those of the Arrow buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.ops import Op, Refusal, Status
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import States

Array = npt.NDArray[Any]

SPARSE, DENSE, CHANGES = "sparse", "dense", "changes"
_INDEXED = (Op.SPARSE, Op.ADD, Op.UPSERT)
_WHOLE = (Op.CREATE, Op.DENSE)
_INDEX_BYTES = 4


@dataclass(frozen=True, slots=True)
class Encoded:
    """Payloads in their stored form.

    `op` and `sizes` (the number of cells) are per delta; `values`, `nulls`, `indices` and `given` are per cell.
    `indexed` marks the cells that have an index, `flagged` those that have a `given` flag. `encoding` and
    `saved_bytes` (against the other encoding) are per segment.
    """

    op: Array
    sizes: Array
    values: Array
    nulls: Array
    indices: Array
    indexed: Array
    given: Array
    flagged: Array
    encoding: Array
    saved_bytes: Array


def encode(segments: Segments, *, full_rows: bool) -> Encoded:
    """The payloads in the smaller of two encodings per segment.

    `full_rows` is True if every delta is a whole row or a Delete."""
    return _encode_rows(segments) if full_rows else _encode_operations(segments)


def _encode_rows(segments: Segments) -> Encoded:
    whole, changes = segments.deltas, _changes(segments)
    size_whole, size_changes = (_sparse_bytes(batch, segments) for batch in (whole, changes))
    takes_changes = size_changes < size_whole
    by_delta = np.repeat(takes_changes, segments.lengths)
    both = whole.concat(changes)
    mixed = both.take(np.arange(len(whole)) + by_delta * len(whole))
    return _encode(
        mixed, np.zeros(len(segments), np.bool_), segments, np.where(takes_changes, CHANGES, DENSE),
        np.abs(size_whole - size_changes),
    )  # fmt: skip


def _encode_operations(segments: Segments) -> Encoded:
    batch = segments.deltas
    sparse = _sparse_bytes(batch, segments)
    if batch.dims is None:
        never = np.zeros(len(segments), np.bool_)
        return _encode(batch, never, segments, np.full(len(segments), SPARSE), np.zeros(len(segments), np.int64))
    payloads = _per_segment(np.isin(batch.op, _INDEXED + _WHOLE), segments)
    cells = payloads * batch.dims
    partial = _per_segment(np.diff(batch.offsets), segments) < cells
    dense = cells * batch.dtype.itemsize + np.where(partial, -(-cells // 8), 0)
    fits = _per_segment(~_fits_dimensions(batch), segments) == 0
    takes_dense = fits & (dense < sparse)
    saved = np.where(fits, np.abs(sparse - dense), 0)
    return _encode(batch, takes_dense, segments, np.where(takes_dense, DENSE, SPARSE), saved)


def _sparse_bytes(batch: DeltaBatch, segments: Segments) -> Array:
    cells = np.diff(batch.offsets)
    indexed = np.isin(batch.op, _INDEXED)
    return _per_segment(cells * (batch.dtype.itemsize + indexed * _INDEX_BYTES), segments)


def _per_segment(values: Array, segments: Segments) -> Array:
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return sums[segments.bounds[1:]] - sums[segments.bounds[:-1]]


def _fits_dimensions(batch: DeltaBatch) -> Array:
    """Mask of the deltas whose indices ascend within the vector, so that a value per dimension can represent them."""
    cells = np.diff(batch.offsets)
    owner = np.repeat(np.arange(len(batch)), cells)
    outside = (batch.indices < 0) | (batch.indices >= batch.dims)
    repeated = np.zeros(len(owner), np.bool_)
    repeated[1:] = (owner[1:] == owner[:-1]) & (batch.indices[1:] <= batch.indices[:-1])
    unfit = np.bincount(owner[outside | repeated], minlength=len(batch)) > 0
    fits = np.where(np.isin(batch.op, _WHOLE), cells == batch.dims, ~unfit)
    return fits & (batch.refusal == Refusal.NONE)


def _encode(batch: DeltaBatch, dense: Array, segments: Segments, encoding: Array, saved_bytes: Array) -> Encoded:
    cells = np.diff(batch.offsets)
    payload = np.isin(batch.op, _INDEXED + _WHOLE)
    widened = np.repeat(dense, segments.lengths) & payload
    sizes = np.where(widened, batch.dims or 0, cells)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    values, nulls, given = (np.zeros(starts[-1], kind) for kind in (batch.dtype, np.bool_, np.bool_))
    indices = np.zeros(starts[-1], np.int32)
    owner = np.repeat(np.arange(len(batch)), cells)
    within = np.arange(len(batch.values)) - batch.offsets[:-1][owner]
    target = starts[:-1][owner] + np.where(widened[owner] & np.isin(batch.op, _INDEXED)[owner], batch.indices, within)
    values[target], nulls[target], given[target], indices[target] = batch.values, batch.nulls, True, batch.indices
    stored = np.repeat(np.arange(len(batch)), sizes)
    indexed = np.isin(batch.op, _INDEXED)[stored] & ~widened[stored]
    number = batch.entity[stored]
    partial = np.bincount(number[~given], minlength=len(segments)) > 0
    return Encoded(
        op=batch.op, sizes=sizes, values=values, nulls=nulls, indices=indices, indexed=indexed, given=given,
        flagged=partial[number], encoding=encoding, saved_bytes=saved_bytes,
    )  # fmt: skip


def _changes(segments: Segments) -> DeltaBatch:
    """Full rows reduced to their changes of the row before; rows taken back, and rows after no row, stay whole."""
    batch, dims = segments.deltas, segments.deltas.dims or 0
    current = np.flatnonzero(segments.is_current & (segments.refusal == Refusal.NONE))
    number = batch.entity[current]
    first = np.ones(len(current), np.bool_)
    first[1:] = number[1:] != number[:-1]
    values, nulls, live = _row_matrix(batch, current, dims)
    before_values, before_nulls = np.roll(values, 1, axis=0), np.roll(nulls, 1, axis=0)
    before_live = np.roll(live, 1)
    base_values, base_nulls, base_live = _base_matrix(segments.base, dims)
    begins = number[first]
    before_values[first], before_nulls[first] = base_values[begins], base_nulls[begins]
    before_live[first] = base_live[begins]
    bits = f"u{batch.dtype.itemsize}"
    changed = (values.view(bits) != before_values.view(bits)) | (nulls != before_nulls)
    changed[~before_live] = True
    changed[~live] = False
    keep = np.ones(len(batch.values), np.bool_)
    in_rows = batch.offsets[:-1][current[live]][:, None] + np.arange(dims)
    keep[in_rows] = changed[live]
    op = batch.op.copy()
    op[current[live & before_live]] = Op.SPARSE
    owner = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    return replace(
        batch, op=op, offsets=np.concatenate(([0], np.cumsum(np.bincount(owner[keep], minlength=len(batch))))),
        indices=batch.indices[keep], values=batch.values[keep], nulls=batch.nulls[keep],
    )  # fmt: skip


def whole_rows(segments: Segments, changes: Array) -> DeltaBatch:
    """The deltas with whole rows in the segments marked in `changes`; those of other segments are unchanged."""
    batch, dims = segments.deltas, segments.deltas.dims or 0
    by_delta = changes[batch.entity] if len(batch) else np.zeros(0, np.bool_)
    rows = np.flatnonzero(by_delta & segments.is_current & (segments.refusal == Refusal.NONE) & (batch.op != Op.DELETE))
    if not len(rows):
        return batch
    lengths = np.diff(batch.offsets)[rows]
    place = np.repeat(np.arange(len(rows)), lengths)
    cells = np.arange(len(place)) + np.repeat(batch.offsets[:-1][rows] - (np.cumsum(lengths) - lengths), lengths)
    # the rows of each segment are preceded by one row with its checkpoint
    number = batch.entity[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = number[1:] != number[:-1]
    at = np.arange(len(rows)) + np.cumsum(first)
    total = len(rows) + int(first.sum())
    values, nulls = np.zeros((total, dims), batch.dtype), np.zeros((total, dims), np.bool_)
    source = np.zeros((total, dims), np.int64)
    heads = at[first] - 1
    base_values, base_nulls, _ = _base_matrix(segments.base, dims)
    values[heads], nulls[heads] = base_values[number[first]], base_nulls[number[first]]
    source[heads] = heads[:, None]
    values[at[place], batch.indices[cells]], nulls[at[place], batch.indices[cells]] = (
        batch.values[cells], batch.nulls[cells],
    )  # fmt: skip
    source[at[place], batch.indices[cells]] = at[place]
    np.maximum.accumulate(source, axis=0, out=source)
    columns = np.arange(dims)
    return _with_whole(batch, rows, values[source[at], columns], nulls[source[at], columns])


def _with_whole(batch: DeltaBatch, rows: Array, values: Array, nulls: Array) -> DeltaBatch:
    count, dims = values.shape
    keep = np.ones(len(batch), np.bool_)
    keep[rows] = False
    others = np.flatnonzero(keep)
    columns = ("entity", "event_time", "row_id", "scalar", "transform", "parent", "refusal")
    whole = DeltaBatch(
        entity_count=batch.entity_count, dims=batch.dims, transform_names=batch.transform_names,
        op=np.full(count, Op.DENSE, np.uint8), offsets=np.arange(count + 1, dtype=np.int64) * dims,
        indices=np.tile(np.arange(dims, dtype=np.int32), count), values=values.ravel(), nulls=nulls.ravel(),
        sequences=None if batch.sequences is None else batch.sequences.take(pa.array(rows)),
        **{name: getattr(batch, name)[rows] for name in columns},
    )  # fmt: skip
    both = batch.take(others).concat(whole)
    place = np.empty(len(batch), np.int64)
    place[others], place[rows] = np.arange(len(others)), len(others) + np.arange(count)
    return both.take(place)


def _row_matrix(batch: DeltaBatch, rows: Array, dims: int) -> tuple[Array, Array, Array]:
    """The values and nulls of whole rows as matrices, and a mask of the rows with a vector (the others are Deletes)."""
    live = batch.op[rows] != Op.DELETE
    values, nulls = np.zeros((len(rows), dims), batch.dtype), np.zeros((len(rows), dims), np.bool_)
    cells = batch.offsets[:-1][rows[live]][:, None] + np.arange(dims)
    values[live], nulls[live] = batch.values[cells], batch.nulls[cells]
    return values, nulls, live


def _base_matrix(base: States, dims: int) -> tuple[Array, Array, Array]:
    live = base.status == Status.LIVE
    values, nulls = np.zeros((len(base), dims), base.values.dtype), np.zeros((len(base), dims), np.bool_)
    cells = base.offsets[:-1][live][:, None] + np.arange(dims)
    values[live], nulls[live] = base.values[cells], base.nulls[cells]
    return values, nulls, live
