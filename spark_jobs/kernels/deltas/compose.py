"""Compose runs of a chain's deltas into the shortest equivalent list of deltas.

Per dimension a delta is `v -> a*v + b`, or Absent; composed, first then second, `(a2*a1, a2*b1 + b2)`. What this module
composes is what that formula gives *without rounding*:

- what stands before the last Create, Dense or Delete is forgotten: `(0, b)` and Absent do not depend on the past;
- whatever follows a Create or Dense is folded onto its values, left to right, which is what the replay computes;
- consecutive Sparse deltas become one, and so do Upserts: the later assignment wins.

Scale, Offset and Add that meet no value stay as they are, for a fused float would differ from the replay in its last
bits, and a fused int64 could overflow where the replay does not. A Transform is a barrier.

Guarantee: folding the composed list gives the state that folding the given list gives, bit for bit, the last delta and
the delta count included. Associative: composing parts first, in any grouping, gives the same list. Composing again
changes nothing. Only for deltas that their chain applies; a refused delta has no composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.deltas.batch import DeltaBatch
from spark_jobs.kernels.deltas.chains import chains_of
from spark_jobs.kernels.deltas.fold import fold
from spark_jobs.kernels.deltas.ops import Op, Status

Array = npt.NDArray[Any]

ASSIGNING = (Op.SPARSE, Op.UPSERT)


@dataclass(frozen=True, slots=True)
class Composition:
    """`batch`: the composed deltas in chain order; `into`: for each given delta the composed one that stands for it."""

    batch: DeltaBatch
    into: Array


def compose(batch: DeltaBatch, *, bucket: Array | None = None, before: Array | None = None) -> Composition:
    """Compose the deltas of each (entity, bucket); a composed delta has the position of the last one it stands for.

    Args:
        batch: deltas that their chains apply.
        bucket: per delta, non-decreasing along its chain; None puts a whole chain into one bucket.
        before: `Status` per entity before its first delta; None means that no entity was live.
    """
    order = chains_of(batch).order
    ordered = batch.take(order)
    buckets = np.zeros(len(batch), dtype=np.int64) if bucket is None else bucket[order]
    segment_starts = _changes(ordered.entity) | _changes(buckets)
    alive = _alive(ordered, segment_starts, _status_before(ordered, before))
    kept = ordered.take(alive)
    runs = np.cumsum(_run_starts(kept.op, segment_starts, alive)) - 1
    # a forgotten delta counts with the next one that is kept: its segment's last Create, Dense or Delete
    next_kept = np.searchsorted(np.flatnonzero(alive), np.arange(len(batch)))
    into_ordered = runs[next_kept] if len(batch) else runs
    into = np.empty(len(batch), dtype=np.int64)
    into[order] = into_ordered
    weight = np.bincount(into_ordered, weights=ordered.weight, minlength=int(runs[-1]) + 1 if len(runs) else 0)
    return Composition(_merged(kept, runs, weight.astype(np.int64)), into)


def _changes(column: Array) -> Array:
    changed = np.ones(len(column), dtype=np.bool_)
    changed[1:] = column[1:] != column[:-1]
    return changed


def _status_before(ordered: DeltaBatch, before: Array | None) -> Array:
    """Status of the entity just before each delta."""
    first = np.full(ordered.entity_count, Status.ABSENT, dtype=np.uint8) if before is None else before
    status = np.empty(len(ordered), dtype=np.uint8)
    status[1:] = np.where(ordered.op[:-1] == Op.DELETE, Status.DELETED, Status.LIVE)
    fresh = _changes(ordered.entity)
    status[fresh] = first[ordered.entity[fresh]]
    return status


def _alive(ordered: DeltaBatch, segment_starts: Array, status: Array) -> Array:
    """Deltas that the end of their segment still depends on.

    From the segment's last Create, Dense or Delete on, everything; before it at most one guard, without which the chain
    would refuse it: a Delete before a whole vector on what was live, a new beginning before a Delete on a tombstone.
    """
    position = np.arange(len(ordered))
    whole = (ordered.op == Op.CREATE) | (ordered.op == Op.DENSE)
    deletes = ordered.op == Op.DELETE
    begins = whole | (ordered.op == Op.UPSERT)
    starts = np.flatnonzero(segment_starts)
    if not len(starts):
        return np.zeros(0, dtype=np.bool_)
    segment = np.cumsum(segment_starts) - 1

    def last_of(mask: Array) -> Array:
        return np.maximum.reduceat(np.where(mask, position, -1), starts)

    last_start = last_of(whole | deletes)
    is_whole = whole[last_start] & (last_start >= 0)
    guard_begin = last_of(begins & (position < last_start[segment]))
    guard_delete = last_of(deletes & (position < last_start[segment]))
    live_before = status[starts] == Status.LIVE
    buried_before = status[starts] == Status.DELETED
    guard = np.where(is_whole & live_before, guard_delete, np.where(~is_whole & buried_before, guard_begin, -1))
    return (position >= last_start[segment]) | (position == guard[segment])


def _run_starts(op: Array, segment_starts: Array, alive: Array) -> Array:
    """Where a run of kept deltas begins that becomes one delta."""
    if not len(op):
        return np.zeros(0, dtype=np.bool_)
    segment = (np.cumsum(segment_starts) - 1)[alive]
    whole = (op == Op.CREATE) | (op == Op.DENSE)
    barrier = _changes(segment) | whole | (op == Op.DELETE) | (op == Op.TRANSFORM)
    block = np.cumsum(barrier) - 1
    absorbs = whole[np.flatnonzero(barrier)][block]
    return barrier | (~absorbs & (_changes(op) | ~np.isin(op, ASSIGNING)))


def _merged(kept: DeltaBatch, runs: Array, weight: Array) -> DeltaBatch:
    first = np.flatnonzero(_changes(runs))
    last = np.append(first[1:] - 1, len(runs) - 1) if len(runs) else first
    whole = (kept.op[first] == Op.CREATE) | (kept.op[first] == Op.DENSE)
    values_of_run, indices_of_run, nulls_of_run, owner = _payloads(kept, runs, first, whole)
    by_run = np.argsort(owner, kind="stable")
    return DeltaBatch.from_columns(
        entity_count=kept.entity_count,
        entity=kept.entity[first],
        event_time=kept.event_time[last],
        row_id=kept.row_id[last],
        op=kept.op[first],
        offsets=np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(first))))),
        indices=indices_of_run[by_run],
        values=values_of_run[by_run],
        nulls=nulls_of_run[by_run],
        scalar=kept.scalar[first],
        transform=kept.transform[first],
        weight=weight,
        dtype=kept.dtype,
        dims=kept.dims,
        transform_names=kept.transform_names,
    )


def _payloads(kept: DeltaBatch, runs: Array, first: Array, whole: Array) -> tuple[Array, Array, Array, Array]:
    """Values, indices and nulls of every run's payload, and the run that owns each cell."""
    in_whole = whole[runs] if len(runs) else np.zeros(0, dtype=np.bool_)
    folding = kept.take(in_whole)
    # every run is folded from nothing, as if it were an entity of its own
    pseudo = DeltaBatch.from_columns(
        entity_count=len(first), entity=runs[in_whole], event_time=np.zeros(len(folding)),
        row_id=np.arange(len(folding)),
        op=folding.op, offsets=folding.offsets, indices=folding.indices, values=folding.values, nulls=folding.nulls,
        scalar=folding.scalar, dtype=kept.dtype, dims=kept.dims,
    )  # fmt: skip
    states = fold(pseudo).states
    whole_owner = np.repeat(np.arange(len(first)), states.dims)
    whole_index = np.arange(len(whole_owner)) - np.repeat(states.offsets[:-1], states.dims)
    assigned = kept.take(~in_whole)
    owner = np.repeat(runs[~in_whole], assigned.offsets[1:] - assigned.offsets[:-1])
    wins = _last_assignments(
        owner, assigned.indices, np.repeat(np.isin(assigned.op, ASSIGNING), np.diff(assigned.offsets))
    )
    return (
        np.concatenate((states.values, assigned.values[wins])),
        np.concatenate((whole_index, assigned.indices[wins])),
        np.concatenate((states.nulls, assigned.nulls[wins])),
        np.concatenate((whole_owner, owner[wins])),
    )


def _last_assignments(owner: Array, indices: Array, assigning: Array) -> Array:
    """Cells that stay: of several assignments of one run to one index the last; every cell that does not assign."""
    order = np.lexsort((indices, owner))
    followed = np.zeros(len(order), dtype=np.bool_)
    followed[:-1] = (owner[order[1:]] == owner[order[:-1]]) & (indices[order[1:]] == indices[order[:-1]])
    overwritten = np.zeros(len(order), dtype=np.bool_)
    overwritten[order] = followed
    cells = np.flatnonzero(~overwritten | ~assigning)
    return cells[np.lexsort((np.where(assigning[cells], indices[cells], 0), owner[cells]))]
