"""The compiled loop of `fold`: one pass over the chains, cell by cell, in the type of the vectors.

Invariant: cells of an entity that is not live, and cells that are null or unseen, are 0. So an operation on zeros needs
no special case. An operation first checks that all its results are legal, then writes: a refused delta leaves no trace.

All compiled functions of the loop are in this module, because numba notices a changed function only in its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import overload

from spark_jobs.engine.deltas.ops import Op, Refusal, Status
from spark_jobs.engine.deltas.ordering import MISSING_PARENT_ROW

Array = npt.NDArray[Any]

_CREATE, _DENSE, _SPARSE, _SCALE = int(Op.CREATE), int(Op.DENSE), int(Op.SPARSE), int(Op.SCALE)
_OFFSET, _ADD, _TRANSFORM, _DELETE = int(Op.OFFSET), int(Op.ADD), int(Op.TRANSFORM), int(Op.DELETE)
_UPSERT = int(Op.UPSERT)
_ABSENT, _LIVE, _DELETED = int(Status.ABSENT), int(Status.LIVE), int(Status.DELETED)
_NON_FINITE = int(Refusal.NON_FINITE)
_ON_LIVE, _ON_DELETED, _NO_BASE = int(Refusal.CREATE_ON_LIVE), int(Refusal.DELETED), int(Refusal.MISSING_BASE)
_LENGTH, _BOUNDS = int(Refusal.DIMENSION_MISMATCH), int(Refusal.INDEX_OUT_OF_BOUNDS)
_NO_PARENT_APPLIED = int(Refusal.MISSING_PARENT)
_OVERFLOW = int(Refusal.INT64_OVERFLOW)

LEGAL = int(Refusal.NONE)
"""The outcome of an operation whose result may be stored."""

# Numba marks int64 arithmetic as never wrapping, so a check of the result is optimised away: the operands are checked.
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

_WAIT = 255
"""The outcome of a Transform, which the caller has to apply. Never stored."""

UNDECIDED = 253
"""The outcome of a delta that was not reached yet. After a fold, no delta has it."""


class Columns(NamedTuple):
    """The columns of a batch, copied into chain order: read by row number, each delta would miss the cache.

    The payload cells `first:end` stay in the columns of the batch. `parent` and `earlier` are those of
    `ordering.Parents`. `refusal` is the refusal by the row alone, `outcome` the decision of the fold.
    """

    op: Array
    event_time: Array
    row_id: Array
    first: Array
    end: Array
    scalar: Array
    parent: Array
    earlier: Array
    refusal: Array
    outcome: Array
    indices: Array
    values: Array
    nulls: Array


class Cells(NamedTuple):
    """Mutable states: entity `e` has room for `offsets[e + 1] - offsets[e]` components and uses `dims[e]` of them."""

    status: Array
    dims: Array
    offsets: Array
    values: Array
    seen: Array
    nulls: Array
    event_time: Array
    row_id: Array
    delta_count: Array


def cell_offsets(room: Array) -> Array:
    """Bounds of consecutive runs of `room[e]` cells."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(room, dtype=np.int64)))


def compact_cells(cells: Cells) -> tuple[Array, Array, Array, Array]:
    """The offsets, values, seen and nulls of cells without the unused room."""
    offsets = cell_offsets(cells.dims)
    if offsets[-1] == cells.offsets[-1]:
        return offsets, cells.values, cells.seen, cells.nulls
    kept = np.arange(offsets[-1]) + np.repeat(cells.offsets[:-1] - offsets[:-1], cells.dims)
    return offsets, cells.values[kept], cells.seen[kept], cells.nulls[kept]


@njit(cache=True, nogil=True)
def fold_until_transform(
    starts: Array, cursor: Array, continues: Array, columns: Columns, cells: Cells, known_dims: int
) -> float:
    """Advance each chain's cursor to its end or to its next applicable Transform.

    A chain marked in `continues` begins with the final state of the chain before it, once that one has come to its end;
    the mark is removed then.
    Returns a number without meaning (see `_fetch`).
    """
    fetched = 0.0
    for entity in range(len(starts) - 1):
        row, end = cursor[entity], starts[entity + 1]
        if continues[entity]:
            if continues[entity - 1] or cursor[entity - 1] < row:
                continue
            _inherit(entity, cells)
            continues[entity] = False
        fetched += _fetch(row, end, columns)
        while row < end:
            status = cells.status[entity]
            has_state = status == _LIVE or (status == _ABSENT and known_dims >= 0)
            if has_state and columns.op[row] in (_SPARSE, _UPSERT, _ADD):
                row = _change_run(entity, row, end, columns, cells, known_dims)
                continue
            if columns.refusal[row] == LEGAL:
                outcome = _apply(entity, row, columns, cells, known_dims)
                if outcome == _WAIT:
                    break
                columns.outcome[row] = outcome
                if outcome == LEGAL:
                    cells.event_time[entity] = columns.event_time[row]
                    cells.row_id[entity] = columns.row_id[row]
                    cells.delta_count[entity] += 1
            row += 1
        cursor[entity] = row
    return fetched


@njit(cache=True, nogil=True)
def _inherit(entity: int, cells: Cells) -> None:
    before = entity - 1
    for column in (cells.dims, cells.event_time, cells.row_id, cells.delta_count):
        column[entity] = column[before]
    cells.status[entity] = cells.status[before]
    here, there = cells.offsets[entity], cells.offsets[before]
    for i in range(cells.dims[before]):
        cells.values[here + i] = cells.values[there + i]
        cells.seen[here + i] = cells.seen[there + i]
        cells.nulls[here + i] = cells.nulls[there + i]


@njit(cache=True, nogil=True)
def _fetch(row: int, end: int, columns: Columns) -> float:
    """Touch the payloads of a chain before folding it.

    Payloads are anywhere in the batch, and a fold waits for each of them in turn. Here the waits overlap, and the fold
    finds the payloads in the cache. The sum is returned only because the compiler would remove reads without a use.
    """
    first, after, values, indices, nulls = columns.first, columns.end, columns.values, columns.indices, columns.nulls
    touched = 0.0
    for position in range(row, end):
        cell = first[position]
        if cell < after[position]:
            touched += values[cell] + values[after[position] - 1] + indices[cell] + nulls[cell]
    return touched


@njit(cache=True, nogil=True)
def _change_run(entity: int, begin: int, end: int, columns: Columns, cells: Cells, known_dims: int) -> int:
    """Fold consecutive Sparse, Upsert and Add deltas of an entity that is not deleted; on it, Sparse equals Upsert.

    Returns the position of the first delta of another operation. There is one call per run, because to take arrays out
    of the tuples costs more than to change a few cells.
    """
    op, refusal, outcome, parent, earlier = (
        columns.op, columns.refusal, columns.outcome, columns.parent, columns.earlier,
    )  # fmt: skip
    first, after, indices, given, null = columns.first, columns.end, columns.indices, columns.values, columns.nulls
    values, seen, nulls = cells.values, cells.seen, cells.nulls
    base = cells.offsets[entity]
    dims = cells.dims[entity] if cells.status[entity] == _LIVE else known_dims
    last, count, stop, longest = -1, 0, begin, 0
    while stop < end and op[stop] in (_SPARSE, _UPSERT, _ADD):
        longest = max(longest, after[stop] - first[stop])
        stop += 1
    before = np.empty(longest, dtype=values.dtype)
    for row in range(begin, stop):
        if refusal[row] == LEGAL:
            if not _parent_applied(parent[row], earlier, outcome):
                outcome[row] = _NO_PARENT_APPLIED
            elif not _in_bounds(first[row], after[row], indices, dims):
                outcome[row] = _BOUNDS
            elif op[row] == _ADD:
                outcome[row] = _add(base, first[row], after[row], indices, given, values, seen, nulls, before)
            else:
                for i in range(first[row], after[row]):
                    cell = base + indices[i]
                    values[cell] = 0 if null[i] else given[i]
                    nulls[cell] = null[i]
                    seen[cell] = True
                outcome[row] = LEGAL
            if outcome[row] == LEGAL:
                last = row
                count += 1
    if last >= 0:
        cells.status[entity] = _LIVE
        cells.dims[entity] = dims
        cells.event_time[entity] = columns.event_time[last]
        cells.row_id[entity] = columns.row_id[last]
        cells.delta_count[entity] += count
    return stop


@njit(cache=True, nogil=True)
def _parent_applied(parent: int, earlier: Array, outcome: Array) -> bool:
    """True if the delta declares no parent, or an earlier delta with the identity of its parent is applied."""
    while parent >= 0 and outcome[parent] != LEGAL:
        parent = earlier[parent]
    return parent != MISSING_PARENT_ROW


@njit(cache=True, nogil=True)
def _add(
    base: int, first: int, end: int, indices: Array, terms: Array, values: Array, seen: Array, nulls: Array,
    before: Array,
) -> int:  # fmt: skip
    for i in range(first, end):
        cell = base + indices[i]
        before[i - first] = values[cell]
        if nulls[cell]:
            continue
        result, outcome = _checked_sum(values[cell], terms[i])
        if outcome != LEGAL:
            # an index may repeat, so legality shows only while adding: undo, last first
            for j in range(i - 1, first - 1, -1):
                values[base + indices[j]] = before[j - first]
            return outcome
        values[cell] = result
    for i in range(first, end):
        seen[base + indices[i]] = True
    return LEGAL


@njit(cache=True, nogil=True)
def _apply(entity: int, row: int, columns: Columns, cells: Cells, known_dims: int) -> int:
    if not _parent_applied(columns.parent[row], columns.earlier, columns.outcome):
        return _NO_PARENT_APPLIED
    op, status = columns.op[row], cells.status[entity]
    if op in (_CREATE, _DENSE):
        if op == _CREATE and status == _LIVE:
            return _ON_LIVE
        return _replace(entity, row, columns, cells)
    if status == _DELETED and op != _UPSERT:
        return _ON_DELETED
    if op == _DELETE:
        return _delete(entity, cells)
    if status != _LIVE:
        if known_dims < 0:
            return _NO_BASE
        cells.dims[entity] = known_dims
    outcome = _change(entity, row, op, columns, cells)
    if outcome == LEGAL:
        cells.status[entity] = _LIVE
    elif status != _LIVE and outcome != _WAIT:
        cells.dims[entity] = 0
    return outcome


@njit(cache=True, nogil=True)
def _change(entity: int, row: int, op: int, columns: Columns, cells: Cells) -> int:
    if op == _UPSERT:
        return _assign(entity, row, columns, cells)
    if op == _SCALE:
        return _scale(entity, columns.scalar[row], cells)
    if op == _OFFSET:
        return _offset(entity, columns.scalar[row], cells)
    return _WAIT


@njit(cache=True, nogil=True)
def _replace(entity: int, row: int, columns: Columns, cells: Cells) -> int:
    first, length = columns.first[row], columns.end[row] - columns.first[row]
    if cells.status[entity] == _LIVE and cells.dims[entity] != length:
        return _LENGTH
    cell = cells.offsets[entity]
    for i in range(length):
        null = columns.nulls[first + i]
        cells.values[cell + i] = 0 if null else columns.values[first + i]
        cells.nulls[cell + i] = null
        cells.seen[cell + i] = True
    cells.dims[entity] = length
    cells.status[entity] = _LIVE
    return LEGAL


@njit(cache=True, nogil=True)
def _delete(entity: int, cells: Cells) -> int:
    for cell in range(cells.offsets[entity], cells.offsets[entity + 1]):
        cells.values[cell] = 0
        cells.seen[cell] = False
        cells.nulls[cell] = False
    cells.dims[entity] = 0
    cells.status[entity] = _DELETED
    return LEGAL


@njit(cache=True, nogil=True)
def _in_bounds(first: int, end: int, indices: Array, dims: int) -> bool:
    for i in range(first, end):  # noqa: SIM110 - a generator would not compile to a loop
        if indices[i] >= dims:
            return False
    return True


@njit(cache=True, nogil=True)
def _assign(entity: int, row: int, columns: Columns, cells: Cells) -> int:
    first, end, base = columns.first[row], columns.end[row], cells.offsets[entity]
    if not _in_bounds(first, end, columns.indices, cells.dims[entity]):
        return _BOUNDS
    for i in range(first, end):
        cell = base + columns.indices[i]
        cells.values[cell] = 0 if columns.nulls[i] else columns.values[i]
        cells.nulls[cell] = columns.nulls[i]
        cells.seen[cell] = True
    return LEGAL


@njit(cache=True, nogil=True)
def _scale(entity: int, factor: Any, cells: Cells) -> int:
    first = cells.offsets[entity]
    for cell in range(first, first + cells.dims[entity]):
        _, outcome = _checked_product(cells.values[cell], factor)
        if outcome != LEGAL:
            return outcome
    for cell in range(first, first + cells.dims[entity]):
        if cells.seen[cell] and not cells.nulls[cell]:
            cells.values[cell] *= factor
    return LEGAL


@njit(cache=True, nogil=True)
def _offset(entity: int, term: Any, cells: Cells) -> int:
    first = cells.offsets[entity]
    for cell in range(first, first + cells.dims[entity]):
        _, outcome = _checked_sum(cells.values[cell], term)
        if outcome != LEGAL:
            return outcome
    for cell in range(first, first + cells.dims[entity]):
        if not cells.nulls[cell]:
            cells.values[cell] += term
        cells.seen[cell] = True
    return LEGAL


def _checked_sum(left: Any, right: Any) -> tuple[Any, int]:
    """`left + right` in the operands' own type, and its outcome. Called from compiled code only."""
    raise NotImplementedError


def _checked_product(left: Any, right: Any) -> tuple[Any, int]:
    """`left * right` in the operands' own type, and its outcome. Called from compiled code only."""
    raise NotImplementedError


@overload(_checked_sum)
def _sum_for(left: Any, right: Any) -> Callable[..., Any]:
    if isinstance(left, types.Integer):

        def integer_sum(left: Any, right: Any) -> tuple[Any, int]:
            legal = left <= _GREATEST - right if right > 0 else left >= _LEAST - right
            return (left + right, LEGAL) if legal else (left, _OVERFLOW)

        return integer_sum

    def float_sum(left: Any, right: Any) -> tuple[Any, int]:
        result = left + right
        return result, LEGAL if np.isfinite(result) else _NON_FINITE

    return float_sum


@overload(_checked_product)
def _product_for(left: Any, right: Any) -> Callable[..., Any]:
    if isinstance(left, types.Integer):

        def integer_product(left: Any, right: Any) -> tuple[Any, int]:
            if right > 0:
                legal = _LEAST // right + (_LEAST % right != 0) <= left <= _GREATEST // right
            elif right < -1:
                legal = _GREATEST // right + (_GREATEST % right != 0) <= left <= _LEAST // right
            else:
                legal = right == 0 or left != _LEAST
            return (left * right, LEGAL) if legal else (left, _OVERFLOW)

        return integer_product

    def float_product(left: Any, right: Any) -> tuple[Any, int]:
        result = left * right
        return result, LEGAL if np.isfinite(result) else _NON_FINITE

    return float_product
