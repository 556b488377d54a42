"""Segments as rows of a table, one row per segment: the checkpoint in plain columns, the deltas after it in lists.

Times are int64 in the source's ticks. A list without information is empty: no index, no refusal, no delta taken back,
all known from their event time on, and so on. The lists `known`, `ops` and `sizes` have a single element if it is the
same for every delta, because Spark handles lists element by element. `unpack` is the inverse of `pack`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.engine.deltas.encoding import CHANGES, DENSE, encode, whole_rows
from spark_jobs.engine.deltas.frontiers import ALWAYS, STILL_KNOWN
from spark_jobs.engine.deltas.ops import Op, Refusal, Status
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import NO_DELTA, States
from spark_jobs.engine.deltas.tables import one_chunk

Array = npt.NDArray[Any]

UNRESOLVED_PARENT = NO_PARENT + 1
"""The value of `parent` for a delta whose declared parent is not in the chain."""

_INDEXED = (Op.SPARSE, Op.ADD, Op.UPSERT)
_ARITHMETIC = (Op.SCALE, Op.OFFSET)
_NOT_SHOWN = (Refusal.UNEQUAL_LISTS, Refusal.UNREADABLE_LIST, Refusal.NULL_OPERAND)
"""Refusals by the row alone that a stored delta no longer shows: its lists, or the null of its scalar, are not kept."""


def segment_schema(value: pa.DataType) -> pa.Schema:
    """The schema of packed segments whose components have the type `value`."""
    time = pa.int64()
    return pa.schema(
        {
            "entity": pa.string(), "start_time": time, "start_row": pa.int64(), "end_time": time, "settled": time,
            "settled_end": time, "timestamp": time, "at_delta": pa.int64(), "delta_count": pa.int64(),
            "deleted": pa.bool_(), "names": pa.list_(pa.string()), "vector": pa.list_(value),
            "seen": pa.list_(pa.bool_()), "encoding": pa.string(), "saved_bytes": pa.int64(),
            "event_times": pa.list_(time), "row_ids": pa.list_(pa.int64()), "known": pa.list_(time),
            "known_until": pa.list_(time), "ops": pa.list_(pa.int8()), "refusals": pa.list_(pa.int8()),
            "sizes": pa.list_(pa.int32()), "indices": pa.list_(pa.int32()), "values": pa.list_(value),
            "given": pa.list_(pa.bool_()), "scalars": pa.list_(value), "transforms": pa.list_(pa.string()),
            "delta_ids": pa.list_(pa.string()), "parents": pa.list_(pa.string()), "sequences": pa.list_(pa.string()),
        }
    )  # fmt: skip


def pack(
    segments: Segments,
    entities: pa.Array,
    *,
    names: Sequence[str] | None,
    full_rows: bool,
    only: Array | None = None,
) -> pa.Table:
    """One row per segment.

    `entities` are the entities by code, `names` are the names of the components. `only` are the numbers of the segments
    to pack, ascending. The end of a segment is the start of the next one, even if that one is not packed."""
    ends = pa.array(segments.end_time, mask=segments.last_of_entity)
    if only is not None:
        segments, ends = segments.take(only), ends.take(pa.array(only))
    schema = segment_schema(pa.from_numpy_dtype(segments.deltas.dtype))
    columns = _checkpoint_columns(segments, entities, names)
    columns |= {"end_time": ends, **_delta_columns(segments, schema, full_rows=full_rows)}
    return pa.Table.from_arrays([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _checkpoint_columns(segments: Segments, entities: pa.Array, names: Sequence[str] | None) -> dict[str, pa.Array]:
    base, count = segments.base, len(segments)
    has_value = base.seen & ~base.nulls
    untouched = base.delta_count == 0
    vector_bounds = pa.array(base.offsets, pa.int32())
    listed = pa.nulls(count, pa.list_(pa.string()))
    if names is not None:
        repeated = pa.array(list(names), pa.string()).take(pa.array(np.tile(np.arange(len(names)), count)))
        listed = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * len(names), pa.int32()), repeated)
    settled_end = segments.settled_end
    return {
        "entity": entities.take(pa.array(segments.entity)),
        "start_time": pa.array(segments.start_time, mask=segments.start_row == NO_DELTA),
        "start_row": pa.array(segments.start_row, mask=segments.start_row == NO_DELTA),
        "settled": pa.array(segments.settled, mask=segments.settled == ALWAYS),
        "settled_end": pa.array(settled_end, mask=settled_end == ALWAYS),
        "timestamp": pa.array(base.event_time, mask=untouched),
        "at_delta": pa.array(base.row_id, mask=untouched),
        "delta_count": pa.array(base.delta_count),
        "deleted": pa.array(base.status == Status.DELETED),
        "names": listed,
        "vector": pa.ListArray.from_arrays(vector_bounds, pa.array(base.values, mask=~has_value)),
        "seen": pa.ListArray.from_arrays(vector_bounds, pa.array(base.seen)),
    }


def _delta_columns(segments: Segments, schema: pa.Schema, *, full_rows: bool) -> dict[str, pa.Array]:
    batch, number = segments.deltas, segments.deltas.entity
    stored = encode(segments, full_rows=full_rows)
    cells = number[np.repeat(np.arange(len(batch)), stored.sizes)]
    gone = ~segments.is_current
    names = np.array([*batch.transform_names, None], dtype=object)

    def lists(values: pa.Array, owner: Array, kept: Array | None = None) -> pa.Array:
        """The values in one list per segment; with `kept`, only the values marked there."""
        if kept is not None:
            values, owner = values.filter(pa.array(kept)), owner[kept]
        sizes = np.bincount(owner, minlength=len(segments))
        return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32()), values)

    def once(values: Array, keep: Array | None = None) -> pa.Array:
        """As `lists`, with a single element for a segment of equal elements; with `keep`, only the marked segments."""
        first = segments.bounds[:-1][number]
        differs = np.bincount(number[values != values[first]], minlength=len(segments)) > 0
        is_written = differs[number] | (np.arange(len(values)) == first)
        return lists(pa.array(values), number, is_written if keep is None else is_written & keep)

    def if_any(mask: Array) -> Array:
        """Mask of all deltas of the segments in which any delta is marked."""
        return (np.bincount(number[mask], minlength=len(segments)) > 0)[number]

    empty = lists(pa.array([], pa.string()), np.zeros(0, np.int64))
    return {
        "encoding": pa.array(stored.encoding.astype(object), pa.string()),
        "saved_bytes": pa.array(stored.saved_bytes),
        "event_times": lists(pa.array(batch.event_time), number),
        "row_ids": lists(pa.array(batch.row_id), number),
        "known": once(segments.known_from, if_any(segments.known_from != batch.event_time)),
        "known_until": lists(pa.array(segments.known_to, mask=~gone), number, if_any(gone)),
        "ops": once(stored.op.astype(np.int8)),
        "refusals": lists(pa.array(segments.refusal.astype(np.int8)), number, if_any(segments.refusal != 0)),
        "sizes": once(stored.sizes.astype(np.int32)),
        "indices": lists(pa.array(stored.indices), cells, stored.indexed),
        "values": lists(pa.array(stored.values, mask=stored.nulls), cells),
        "given": lists(pa.array(stored.given), cells, stored.flagged),
        "scalars": lists(pa.array(batch.scalar), number, if_any(np.isin(batch.op, _ARITHMETIC))),
        "transforms": lists(pa.array(names[batch.transform], pa.string()), number, if_any(batch.transform >= 0)),
        "delta_ids": empty if segments.delta_ids is None else lists(segments.delta_ids, number),
        "parents": empty if segments.parents is None else lists(segments.parents, number),
        "sequences": empty if batch.sequences is None else lists(batch.sequences, number),
    }


def unpack(
    table: pa.Table, entities: pa.Array, *, dtype: npt.DTypeLike, dims: int | None, ids: bool = False
) -> Segments:
    """The segments of a packed table with rows in any order; `entities` are the entities by code.

    A column that `table` lacks counts as empty lists.
    `ids` is True if the source declares parents: then delta ids are read, too.
    """
    if not table.num_rows:
        return Segments.empty(dtype, dims, ids=ids)
    codes = pc.index_in(one_chunk(table, "entity"), value_set=entities).to_numpy(zero_copy_only=False)
    start_time, start_row = (_or(table, name, NO_DELTA) for name in ("start_time", "start_row"))
    order = np.lexsort((start_row, start_time, codes))
    if np.any(np.diff(order) != 1):
        table = table.take(pa.array(order))
    base = checkpoints_of(table, dtype)
    reader = _Reader(table)
    batch, known_to, refusal = _read_deltas(reader, dtype, dims)
    delta_ids, parents = (reader.texts(name) if ids else None for name in ("delta_ids", "parents"))
    sequences = reader.texts("sequences") if len(reader.flat("sequences")[0]) else None
    batch = replace(batch, parent=undecided_parents(parents, len(batch)), sequences=sequences)
    segments = Segments(
        entity=codes[order].astype(np.int64), start_time=start_time[order], start_row=start_row[order],
        settled=_or(table, "settled", ALWAYS), base=base, bounds=reader.bounds, deltas=batch,
        known_from=reader.per_delta("known", np.int64, batch.event_time), known_to=known_to, refusal=refusal,
        delta_ids=delta_ids, parents=parents,
    )  # fmt: skip
    changes = pc.equal(one_chunk(table, "encoding"), CHANGES).to_numpy(zero_copy_only=False)
    if changes.any():
        segments = replace(segments, deltas=whole_rows(segments, changes))
    return with_parents(segments)


class _Reader:
    """The list columns of packed segments, flat."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.lengths = self._column("event_times").value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        self.bounds = np.concatenate(([0], np.cumsum(self.lengths)))

    def _column(self, name: str) -> pa.ListArray:
        return one_chunk(self._table, name)

    def flat(self, name: str) -> tuple[pa.Array, Array]:
        """All elements of a list column, and the number of elements per segment."""
        if name not in self._table.column_names:
            return pa.array([], pa.int64()), np.zeros(self._table.num_rows, np.int64)
        column = self._column(name)
        lengths = pc.fill_null(column.value_lengths(), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return column.flatten(), lengths

    def per_delta(self, name: str, kind: npt.DTypeLike, default: Any) -> Array:
        """One number per delta. A list with a single element has the number for all deltas of its segment.

        `default` is for deltas of an empty list and for null elements: a number, or for empty lists one per delta."""
        values, lengths = self.flat(name)
        expanded = np.full(int(self.bounds[-1]), default, kind)
        if len(values):
            filled = pc.fill_null(values, default) if values.null_count else values
            has_list = np.repeat(lengths > 0, self.lengths)
            expanded[has_list] = filled.to_numpy(zero_copy_only=False)[self._elements(lengths)[has_list]]
        return expanded

    def _elements(self, lengths: Array) -> Array:
        """Per delta, the place of its element in a list column whose lists have these lengths."""
        within = np.arange(int(self.bounds[-1])) - np.repeat(self.bounds[:-1], self.lengths)
        within[np.repeat(lengths != self.lengths, self.lengths)] = 0
        return within + np.repeat(np.cumsum(lengths) - lengths, self.lengths)

    def texts(self, name: str) -> pa.Array:
        """One text or null per delta."""
        values, lengths = self.flat(name)
        if not len(values):
            return pa.nulls(int(self.bounds[-1]), pa.string())
        place = np.full(int(self.bounds[-1]), -1)
        place[np.repeat(lengths > 0, self.lengths)] = np.arange(len(values))
        return values.take(pa.array(place, mask=place < 0))


def _or(table: pa.Table, name: str, default: int) -> Array:
    return pc.fill_null(one_chunk(table, name), default).to_numpy(zero_copy_only=False).astype(np.int64)


def checkpoints_of(table: pa.Table, dtype: npt.DTypeLike) -> States:
    """The checkpoints, from the columns `vector`, `seen`, `deleted`, `timestamp`, `at_delta` and `delta_count`."""
    vector, seen = one_chunk(table, "vector"), one_chunk(table, "seen")
    cells, flags = vector.flatten(), seen.flatten().to_numpy(zero_copy_only=False).astype(np.bool_)
    lengths = vector.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    row_id = _or(table, "at_delta", NO_DELTA)
    deleted = one_chunk(table, "deleted").to_numpy(zero_copy_only=False)
    status = np.where(deleted, Status.DELETED, np.where(row_id == NO_DELTA, Status.ABSENT, Status.LIVE))
    return States(
        status=status.astype(np.uint8), offsets=np.concatenate(([0], np.cumsum(lengths))),
        values=pc.fill_null(cells, 0).to_numpy(zero_copy_only=False).astype(dtype, copy=False), seen=flags,
        nulls=cells.is_null().to_numpy(zero_copy_only=False) & flags, event_time=_or(table, "timestamp", NO_DELTA),
        row_id=row_id, delta_count=_or(table, "delta_count", 0),
    )  # fmt: skip


def _read_deltas(reader: _Reader, dtype: npt.DTypeLike, dims: int | None) -> tuple[DeltaBatch, Array, Array]:
    """The deltas as stored, the times until which they are known, and their refusals by the chain.

    Deltas in the encoding `changes` are not whole rows yet."""
    op = reader.per_delta("ops", np.uint8, 0)
    sizes = reader.per_delta("sizes", np.int64, 0)
    number = np.repeat(np.arange(len(reader.lengths)), reader.lengths)
    owner = np.repeat(np.arange(len(op)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    encoded_dense = pc.equal(one_chunk(reader._table, "encoding"), DENSE).to_numpy(zero_copy_only=False)
    indices = within.astype(np.int32)
    with_index = np.isin(op, _INDEXED)[owner] & ~encoded_dense[number[owner]]
    indices[with_index] = reader.flat("indices")[0].to_numpy(zero_copy_only=False)
    flags, flag_lengths = reader.flat("given")
    given = np.ones(len(owner), np.bool_)
    given[(flag_lengths > 0)[number[owner]]] = flags.to_numpy(zero_copy_only=False)
    values = reader.flat("values")[0].filter(pa.array(given))
    names, transform = _transforms(reader)
    refusal = reader.per_delta("refusals", np.uint8, 0)
    sizes = np.bincount(owner[given], minlength=len(op))
    batch = DeltaBatch.from_columns(
        entity_count=len(reader.lengths), entity=number, event_time=reader.per_delta("event_times", np.int64, 0),
        row_id=reader.per_delta("row_ids", np.int64, 0), op=op, offsets=np.concatenate(([0], np.cumsum(sizes))),
        indices=indices[given], values=pc.fill_null(values, 0).to_numpy(zero_copy_only=False),
        nulls=values.is_null().to_numpy(zero_copy_only=False), scalar=reader.per_delta("scalars", dtype, 0),
        transform=transform, transform_names=names, dtype=dtype, dims=dims,
        refusal=np.where(np.isin(refusal, _NOT_SHOWN), refusal, Refusal.NONE),
    )  # fmt: skip
    return batch, reader.per_delta("known_until", np.int64, STILL_KNOWN), refusal


def _transforms(reader: _Reader) -> tuple[list[str], Array]:
    if not len(reader.flat("transforms")[0]):
        return [], np.full(int(reader.bounds[-1]), -1)
    encoded = reader.texts("transforms").dictionary_encode()
    return encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)


def with_parents(segments: Segments) -> Segments:
    """The same segments with numbers for delta ids: an identity per delta, and parents as identities.

    A parent that is not among the deltas of the chain is UNRESOLVED_PARENT."""
    if segments.parents is None or segments.delta_ids is None or segments.parents.null_count == len(segments.parents):
        return segments
    chain = segments.entity[segments.deltas.entity].tolist()
    numbers: dict[tuple[int, str | None], int] = {}
    keys = zip(chain, segments.delta_ids.to_pylist(), strict=True)
    identity = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    declared = zip(chain, segments.parents.to_pylist(), strict=True)
    parents = np.array([-1 if of[1] is None else numbers.get(of, -1) for of in declared], np.int64)
    parent = np.where(segments.deltas.parent == NO_PARENT, NO_PARENT, UNRESOLVED_PARENT)
    parent = np.where(parents >= 0, parents, parent)
    return replace(segments, deltas=replace(segments.deltas, parent=parent, identity=identity))


def known_parents(published: Segments) -> Array:
    """The parents of published deltas. A parent that is not among them was judged before; that verdict is kept."""
    parent = published.deltas.parent.copy()
    parent[(parent == UNRESOLVED_PARENT) & (published.refusal != Refusal.MISSING_PARENT)] = NO_PARENT
    return parent


def undecided_parents(parents: pa.Array | None, count: int) -> Array:
    """The column `parent` of deltas whose declared parents are not looked up yet."""
    declared = np.zeros(count, np.bool_) if parents is None else parents.is_valid().to_numpy(zero_copy_only=False)
    return np.where(declared, UNRESOLVED_PARENT, NO_PARENT)
