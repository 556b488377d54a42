"""The meaning of rows to an entity: each mode of a source as a pure function from rows and prior states to states.

=============  ===========================================================================================
mode           a row …
=============  ===========================================================================================
`fold_add`     adds its components to the entity's sums; an absent value adds 0
`fold_diff`    is the whole state; its differences from the row before, bit for bit, are the delta; null is a value
=============  ===========================================================================================

All functions take the rows of many entities, in any order. `prior` is a state table (`tables.py`) that the same
function returned for other rows. The result is a state table with every entity of the rows and of `prior`. `diff` names
a column with +1 for a row that is added and -1 for a row that is taken back. If the prior state can't absorb a
retraction or a late row, the call raises RowsNeededError with the entities to fold again from all their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.fold import fold
from spark_jobs.engine.deltas.ops import Int64OverflowError, Op, Status
from spark_jobs.engine.deltas.rows import NonFiniteError, Rows, need_rows, read_rows, refuse_retractions
from spark_jobs.engine.deltas.states import NO_DELTA, States
from spark_jobs.engine.deltas.tables import states_of, states_table

Array = npt.NDArray[Any]

_HALF = np.int64(1) << np.int64(32)


def fold_add(
    table: pa.Table,
    *,
    entity: str,
    time: str,
    row_id: str,
    components: Mapping[str, str | int | float],
    prior: pa.Table | None = None,
    diff: str | None = None,
    overflow_is_null: bool = False,
) -> pa.Table:
    """Sums per entity. Integer additions commute, so late rows and retractions are added to `prior`.

    Integer sums are exact in any order: a sum overflows only if it leaves int64 itself. Floats are summed in chain
    order. A float state accepts only rows ordered after it and no retraction, and overflows if an intermediate sum
    does. An entity all of whose rows were taken back is left out.

    Args:
        overflow_is_null: True to make an integer sum that overflows null; if a float sum overflows, all sums of the
            entity are null. Such an entity needs all its rows once more rows come.

    Raises:
        Int64OverflowError, NonFiniteError: a sum overflows, and that is an error.
        RowsNeededError: `prior` can't absorb the rows of some entities.
    """
    rows = read_rows(table, entity=entity, time=time, row_id=row_id, components=components, prior=prior, diff=diff)
    base = states_of(prior, rows.keys, list(components), rows.values.dtype)
    if rows.values.dtype.kind == "i":
        states = _integer_sums(rows, base, overflow_is_null)
    else:
        _require_append_only(rows, base)
        states = _float_sums(rows, base, overflow_is_null)
    return states_table(states, rows.keys, list(components), rows.time_type)


def fold_diff(
    table: pa.Table,
    *,
    entity: str,
    time: str,
    row_id: str,
    components: Mapping[str, str | int | float],
    prior: pa.Table | None = None,
    diff: str | None = None,
) -> pa.Table:
    """The last full row per entity, in the order (event_time, row_id).

    It equals a fold of the rows as deltas of mode `diff` (`mapping.py`). A row ordered before its prior state changes
    only `delta_count`.
    """
    rows = read_rows(table, entity=entity, time=time, row_id=row_id, components=components, prior=prior, diff=diff)
    base = states_of(prior, rows.keys, list(components), rows.values.dtype)
    refuse_retractions(rows)
    last = rows.take(_last_of_entity(rows.entity))
    newer = last.take(np.flatnonzero(_after(last, base)))
    states = fold(_index(newer, Op.SPARSE), base).states
    states.delta_count[:] = base.delta_count + _counts(rows)
    return states_table(states, rows.keys, list(components), rows.time_type)


def _integer_sums(rows: Rows, base: States, overflow_is_null: bool) -> States:
    """Exact sums, added up in two halves of 32 bits, so that no intermediate sum overflows in any order of the rows."""
    components = rows.values.shape[1]
    codes, starts = np.unique(rows.entity, return_index=True)
    sums = np.zeros((len(rows.keys), components), dtype=np.int64)
    sums[base.status == Status.LIVE] = base.values.reshape(-1, components)
    high, low = sums >> 32, sums & (_HALF - 1)
    if len(codes):
        weight = rows.count[:, None]
        high[codes] += np.add.reduceat((rows.values >> 32) * weight, starts, axis=0)
        low[codes] += np.add.reduceat((rows.values & (_HALF - 1)) * weight, starts, axis=0)
    high += low >> 32
    beyond = (high < -(_HALF >> 1)) | (high >= _HALF >> 1)
    if not overflow_is_null:
        _refuse_overflow(rows, beyond)
    beyond[base.status == Status.LIVE] |= base.nulls.reshape(-1, components)
    states = _advance(rows, base)
    alive = states.delta_count > 0
    values = ((high << 32) | (low & (_HALF - 1)))[alive].ravel()
    return replace(
        states,
        status=np.where(alive, Status.LIVE, Status.ABSENT).astype(np.uint8),
        offsets=np.concatenate(([0], np.cumsum(alive * components))),
        values=values,
        seen=np.ones(len(values), dtype=np.bool_),
        nulls=beyond[alive].ravel(),
    )


def _refuse_overflow(rows: Rows, beyond: Array) -> None:
    outside = np.flatnonzero(beyond.any(axis=1))
    if len(outside):
        entity = rows.keys.values[int(outside[0])].as_py()
        raise Int64OverflowError(
            expected="sums within int64",
            found=f"a sum of entity {entity!r} that leaves it",
            next_step="retract the row that caused it, or declare `compaction`: chains refuse that row alone",
            entity=entity,
        )


def _advance(rows: Rows, base: States) -> States:
    """`base` with its counts and last rows updated.

    Raises RowsNeededError for entities whose last row is no longer known, and for those with overflown sums."""
    count = base.delta_count + _counts(rows)
    kept_rows = rows.take(np.flatnonzero(rows.count > 0))
    last = kept_rows.take(_last_of_entity(kept_rows.entity))
    newer = last.take(np.flatnonzero(_after(last, base)))
    event_time, row_id = base.event_time.copy(), base.row_id.copy()
    event_time[newer.entity], row_id[newer.entity] = newer.event_time, newer.row_id
    # a row that is restated under its own id is taken back and added at once
    stays = np.zeros(len(rows.keys), dtype=np.bool_)
    stays[last.entity] = _at_end(last, event_time, row_id)
    gone = rows.take(np.flatnonzero(rows.count < 0))
    lost = gone.entity[_at_end(gone, event_time, row_id) & ~stays[gone.entity]]
    need_rows(rows, reduce(np.union1d, (lost[count[lost] > 0], np.flatnonzero(count < 0), _overflown(rows, base))))
    none = count == 0
    event_time[none], row_id[none] = NO_DELTA, NO_DELTA
    return replace(base, event_time=event_time, row_id=row_id, delta_count=count)


def _overflown(rows: Rows, base: States) -> Array:
    """The entities of the rows with a sum that is null, whose value is therefore unknown."""
    per_entity = np.add.reduceat(np.append(base.nulls, False), base.offsets[:-1]) if len(rows.keys) else base.nulls
    has_null = (per_entity > 0) & (np.diff(base.offsets) > 0)
    return np.intersect1d(np.flatnonzero(has_null), rows.entity)


def _at_end(rows: Rows, event_time: Array, row_id: Array) -> Array:
    return (rows.event_time == event_time[rows.entity]) & (rows.row_id == row_id[rows.entity])


def _float_sums(rows: Rows, base: States, overflow_is_null: bool) -> States:
    terms = replace(rows, nulls=np.zeros_like(rows.nulls))
    result = fold(_index(terms, Op.ADD), base)
    refused = np.unique(rows.entity[~result.applied])
    if refused.size and overflow_is_null:
        return _null_sums(rows, base, result.states, refused)
    if refused.size:
        entity = rows.keys.values[int(refused[0])].as_py()
        raise NonFiniteError(
            expected="finite sums",
            found=f"a sum of entity {entity!r} that overflows",
            next_step="retract the row that caused it, or declare `compaction`: chains refuse that row alone",
            entity=entity,
        )
    return result.states


def _null_sums(rows: Rows, base: States, states: States, entities: Array) -> States:
    """The states with null for every sum of `entities`; their last row and their count are updated as for others."""
    last = rows.take(_last_of_entity(rows.entity))
    last = last.take(np.flatnonzero(np.isin(last.entity, entities)))
    event_time, row_id = states.event_time.copy(), states.row_id.copy()
    event_time[last.entity], row_id[last.entity] = last.event_time, last.row_id
    cells = np.isin(np.repeat(np.arange(len(states.status)), np.diff(states.offsets)), entities)
    count = base.delta_count + _counts(rows)
    return replace(states, event_time=event_time, row_id=row_id, delta_count=count, nulls=states.nulls | cells)


def _index(rows: Rows, op: Op) -> DeltaBatch:
    """One delta per row, with all cells of the row as its payload."""
    n, components = rows.nulls.shape
    return DeltaBatch.from_columns(
        entity_count=len(rows.keys),
        entity=rows.entity,
        event_time=rows.event_time,
        row_id=rows.row_id,
        op=np.full(n, op, dtype=np.uint8),
        offsets=np.arange(n + 1) * components,
        indices=np.tile(np.arange(components), n),
        values=rows.values.ravel(),
        nulls=rows.nulls.ravel(),
        dtype=rows.values.dtype,
        dims=components,
    )


def _require_append_only(rows: Rows, base: States) -> None:
    need_rows(rows, np.unique(rows.entity[(rows.count < 0) | ~_after(rows, base)]))


def _after(rows: Rows, base: States) -> Array:
    time, row_id = base.event_time[rows.entity], base.row_id[rows.entity]
    return (rows.event_time > time) | ((rows.event_time == time) & (rows.row_id > row_id)) | (time == NO_DELTA)


def _last_of_entity(entity: Array) -> Array:
    """Positions of the last row of each run of equal entities."""
    return np.flatnonzero(np.append(entity[1:] != entity[:-1], np.ones(min(len(entity), 1), dtype=np.bool_)))


def _counts(rows: Rows) -> Array:
    return np.bincount(rows.entity, weights=rows.count, minlength=len(rows.keys)).astype(np.int64)
