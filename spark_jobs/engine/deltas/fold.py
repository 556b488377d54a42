"""Folding of the chains of many entities at once onto their checkpoints.

Definition: the state of an entity is its checkpoint (or nothing) with its deltas applied one after another, in the
order (event_time, sequence, row_id); a delta that the chain refuses is skipped. `engine.twins` implements this
definition word by word.

Guarantee: `fold(b2, fold(b1)) == fold(b1 + b2)` bit for bit, wherever a chain is cut. Values are always computed from
left to right: no two operations are fused before they are applied to a value.

Not guaranteed: a delta that is ordered before its checkpoint is an error here; the caller folds that chain anew. Cost:
O(payload cells), plus O(dims) per Create, Dense, Scale and Offset; one Python call per registered transform and round,
not per delta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.compiled import (
    UNDECIDED,
    Cells,
    Columns,
    cell_offsets,
    compact_cells,
    fold_until_transform,
)
from spark_jobs.engine.deltas.ops import (
    DeltaBeforeCheckpointError,
    Int64OverflowError,
    MalformedDeltasError,
    Op,
    Refusal,
    Status,
    TransformResultError,
)
from spark_jobs.engine.deltas.ordering import ChainOrder, chain_order, parents_of
from spark_jobs.engine.deltas.states import NO_DELTA, States
from spark_jobs.engine.deltas.validate import refusals_of_rows

Array = npt.NDArray[Any]

Transform = Callable[[Array], Array]
"""A registered transform: a function from vectors, as rows (count, dims), to as many of the same shape and type."""


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The result of a fold: the states after it, and per delta (in row order) its `Refusal`, `NONE` if applied."""

    states: States
    refusal: Array

    @property
    def applied(self) -> Array:
        """Mask of the deltas that were applied."""
        return self.refusal == Refusal.NONE


def fold(
    batch: DeltaBatch,
    base: States | None = None,
    *,
    transforms: Mapping[str, Transform] | None = None,
    continues: Array | None = None,
) -> FoldResult:
    """Apply every chain of `batch` onto `base` (entities that never were, if None).

    Args:
        batch: deltas in any row order.
        base: checkpoints, one per entity code of the batch, of the batch's value type.
        transforms: registered transforms by name; a Transform of any other name is refused.
        continues: mask of the entity codes that are the next part of the chain of the code before them. They begin with
            the final state of that code, and their own base is not read.

    Raises DuplicateDeltaError, DeltaBeforeCheckpointError or TransformResultError; then no delta of the batch counts as
    applied.
    """
    start = States.absent(batch.entity_count, batch.dtype) if base is None else base
    linked = np.zeros(batch.entity_count, np.bool_) if continues is None else continues.copy()
    _check_base(batch, start)
    chains = chain_order(batch)
    _check_order(batch, chains, start)
    registered = transforms or {}
    family = np.cumsum(~linked) - 1
    columns = _columns(batch, chains, _refusals(batch, registered), family)
    cells = _cells(batch, chains, start, family)
    cursor = chains.starts[:-1].copy()
    known_dims = -1 if batch.dims is None else batch.dims
    while True:
        fold_until_transform(chains.starts, cursor, linked, columns, cells, known_dims)
        waiting = np.flatnonzero((cursor < chains.starts[1:]) & ~linked)
        if not len(waiting):
            refusal = np.empty_like(columns.outcome)
            refusal[chains.order] = columns.outcome
            return FoldResult(_states(cells), refusal)
        names = batch.transform[chains.order[cursor[waiting]]]
        _apply_transforms(batch.transform_names, registered, waiting, names, cursor[waiting], columns, cells)
        cursor[waiting] += 1


def _columns(batch: DeltaBatch, chains: ChainOrder, refusal: Array, family: Array) -> Columns:
    order = chains.order
    parents = parents_of(batch, order, family)
    return Columns(
        op=batch.op[order],
        event_time=batch.event_time[order],
        row_id=batch.row_id[order],
        first=batch.offsets[:-1][order],
        end=batch.offsets[1:][order],
        scalar=batch.scalar[order],
        parent=parents.last,
        earlier=parents.earlier,
        refusal=refusal[order],
        outcome=np.where(refusal == Refusal.NONE, UNDECIDED, refusal).astype(np.uint8)[order],
        indices=batch.indices,
        values=batch.values,
        nulls=batch.nulls,
    )


def _check_base(batch: DeltaBatch, base: States) -> None:
    live = base.status == Status.LIVE
    problems = []
    if len(base) != batch.entity_count:
        problems.append(f"{len(base)} checkpoints")
    if base.values.dtype != batch.dtype:
        problems.append(f"checkpoints of {base.values.dtype}")
    if batch.dims is not None and np.any(base.dims[live] != batch.dims):
        problems.append("checkpoints of another length")
    if problems:
        raise MalformedDeltasError(
            expected=f"{batch.entity_count} checkpoints of {batch.dtype} and length {batch.dims or 'of their own'}",
            found=", ".join(problems),
        )


def _check_order(batch: DeltaBatch, chains: ChainOrder, base: States) -> None:
    occupied = np.flatnonzero((chains.starts[1:] > chains.starts[:-1]) & (base.row_id != NO_DELTA))
    first = chains.order[chains.starts[:-1][occupied]]
    time, last = batch.event_time[first], base.event_time[occupied]
    # a checkpoint has no sequence: with sequences, it is never placed between deltas of the same time
    before = (batch.row_id[first] <= base.row_id[occupied]) if batch.sequences is None else np.True_
    early = (time < last) | ((time == last) & before)
    if not np.any(early):
        return
    entity, row = int(occupied[early][0]), int(first[early][0])
    raise DeltaBeforeCheckpointError(
        expected="deltas ordered after their checkpoint",
        found=f"a delta of entity {entity} at {batch.event_time[row]}, checkpoint at {base.event_time[entity]}",
        next_step="fold this entity's chain from an earlier checkpoint",
        entity=entity,
        event_time=int(batch.event_time[row]),
        row_id=int(batch.row_id[row]),
    )


def _refusals(batch: DeltaBatch, registered: Mapping[str, Transform]) -> Array:
    """Per delta, the refusal that its row alone shows, or that of a Transform that is not registered."""
    refusal = refusals_of_rows(batch)
    is_registered = np.array([name in registered for name in batch.transform_names] + [False])
    unknown = (batch.op == Op.TRANSFORM) & ~is_registered[batch.transform] & (refusal == Refusal.NONE)
    refusal[unknown] = Refusal.UNKNOWN_TRANSFORM
    return refusal


def _cells(batch: DeltaBatch, chains: ChainOrder, base: States, family: Array) -> Cells:
    """The mutable states, with room per entity for its longest whole vector, its checkpoint and the declared length."""
    room = np.zeros(batch.entity_count, dtype=np.int64)
    whole = (batch.op == Op.CREATE) | (batch.op == Op.DENSE)
    np.maximum.at(room, batch.entity[whole], (batch.offsets[1:] - batch.offsets[:-1])[whole])
    np.maximum(room, batch.dims or 0, out=room, where=chains.starts[1:] > chains.starts[:-1])
    room = np.maximum(room, base.dims)
    if len(room) and family[-1] < len(room) - 1:
        room = np.maximum.reduceat(room, np.flatnonzero(np.diff(family, prepend=-1)))[family]
    offsets = cell_offsets(room)
    size = int(offsets[-1])
    cells = Cells(
        base.status.copy(), base.dims.copy(), offsets, np.zeros(size, dtype=batch.dtype), np.zeros(size, np.bool_),
        np.zeros(size, np.bool_), base.event_time.copy(), base.row_id.copy(), base.delta_count.copy(),
    )  # fmt: skip
    lengths = base.dims
    target = np.arange(len(base.values)) + np.repeat(offsets[:-1] - base.offsets[:-1], lengths)
    cells.values[target], cells.seen[target], cells.nulls[target] = base.values, base.seen, base.nulls
    return cells


def _states(cells: Cells) -> States:
    offsets, values, seen, nulls = compact_cells(cells)
    return States(cells.status, offsets, values, seen, nulls, cells.event_time, cells.row_id, cells.delta_count)


def _apply_transforms(
    transform_names: Sequence[str],
    registered: Mapping[str, Transform],
    waiting: Array,
    transforms: Array,
    rows: Array,
    columns: Columns,
    cells: Cells,
) -> None:
    """Run one round of transforms: one call for all entities of the same length that wait for the same transform."""
    groups: dict[tuple[int, int], list[int]] = {}
    for position, key in enumerate(zip(transforms.tolist(), cells.dims[waiting].tolist(), strict=True)):
        groups.setdefault(key, []).append(position)
    for (transform, dims), positions in groups.items():
        name = transform_names[transform]
        entities, deltas = waiting[positions], rows[positions]
        where = cells.offsets[entities][:, None] + np.arange(dims)
        given = cells.values[where]
        result, outcome = _transform(registered[name], given)
        if result.shape != given.shape or result.dtype != given.dtype:
            raise TransformResultError(
                expected=f"transform {name!r} to return {given.dtype} of shape {given.shape}",
                found=f"{result.dtype} of shape {result.shape}",
                next_step="make the transform keep shape and type",
                transform=name,
            )
        columns.outcome[deltas] = outcome
        legal = outcome == Refusal.NONE
        keep = cells.seen[where] & ~cells.nulls[where] & legal[:, None]
        cells.values[where] = np.where(keep, result, given)
        cells.dims[entities[~legal & (cells.status[entities] != Status.LIVE)]] = 0
        _note_applied(columns, cells, entities[legal], deltas[legal])


def _transform(transform: Transform, vectors: Array) -> tuple[Array, Array]:
    """The vectors after a transform, and per vector `Refusal.NONE` or the refusal of its result."""
    try:
        result = np.asarray(transform(vectors.copy()))
    except Int64OverflowError:
        if len(vectors) == 1:
            return vectors, np.array([Refusal.INT64_OVERFLOW], np.uint8)
        halves = [_transform(transform, half) for half in np.array_split(vectors, 2)]
        results, outcomes = zip(*halves, strict=True)
        return np.concatenate(results), np.concatenate(outcomes)
    finite = np.isfinite(result).reshape(len(vectors), -1).all(axis=1)
    return result, np.where(finite, Refusal.NONE, Refusal.NON_FINITE).astype(np.uint8)


def _note_applied(columns: Columns, cells: Cells, entities: Array, rows: Array) -> None:
    cells.event_time[entities], cells.row_id[entities] = columns.event_time[rows], columns.row_id[rows]
    cells.delta_count[entities] += 1
    cells.status[entities] = Status.LIVE
