"""Restatement of chains: from published segments, and the rows that came or went since, to the segments now valid.

The input is, per entity, its segments from the one on into which the earliest of the rows falls. The first of those has
a checkpoint that no row touches; the checkpoints of the others are computed again. Segments with an unchanged result
are not written, so a repeated restatement writes nothing.

Definition: the deltas of the result are the published ones and the rows that came, each known until the row that takes
it back. Its checkpoints and refusals are those of a replay, in chain order, of all deltas that stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from spark_jobs.engine.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.engine.deltas.cutting import CompactionPolicy, cuts
from spark_jobs.engine.deltas.fold import Transform, fold
from spark_jobs.engine.deltas.frontiers import ALWAYS, STILL_KNOWN, UNMOVED, Frontiers
from spark_jobs.engine.deltas.judged import EarlierDeltas
from spark_jobs.engine.deltas.ops import Refusal
from spark_jobs.engine.deltas.packing import with_parents
from spark_jobs.engine.deltas.pooling import Pool, PooledDeltas, pool_of
from spark_jobs.engine.deltas.segments import Segments, first_segments
from spark_jobs.engine.deltas.states import States
from spark_jobs.engine.deltas.strategies import TimeBoundary

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RestatedChains:
    """The result of a restatement: the segments that should stand.

    `folded` are the same segments with all their deltas, also those that are not kept. `written` marks the segments
    that are new or changed. `passed` marks those that both frontiers have passed, which are not kept. `closed` marks
    the published segments that no longer stand as they were. `states` are the states of the entities after all standing
    deltas, by the codes in `entities`. `dropped` is, per entity, the number of standing deltas that both frontiers have
    passed: they are in none of the segments written.
    """

    segments: Segments
    folded: Segments
    written: Array
    closed: Array
    passed: Array
    entities: Array
    states: States
    dropped: Array


def restate_chains(
    published: Segments,
    changes: PooledDeltas,
    policy: CompactionPolicy,
    *,
    as_of: int,
    frontiers: Frontiers = UNMOVED,
    transforms: Mapping[str, Transform] | None = None,
    earlier: EarlierDeltas | None = None,
) -> RestatedChains:
    """The segments that should stand; `as_of` is the event time from which the age of pending deltas counts.

    `earlier`: the deltas before the first segments of the chains; parents by delta id may be among them.

    Raises RetractionOfNothingError, DuplicateDeltaError for a row or a delta id that is known twice at one time, and
    the errors of `fold`.
    """
    heads, emptied = _heads(published, changes.deltas, frontiers.horizon)
    pool = pool_of(published, changes, frontiers.since, earlier)
    segments, continues = _cut(heads, emptied, pool, policy, as_of=as_of, frontiers=frontiers)
    if earlier is not None:
        segments = earlier.judge_parents(segments)
    segments, ends = _fold(segments, continues, transforms)
    last = np.flatnonzero(segments.last_of_entity)
    entities, states = segments.entity[last], ends.take(last)
    passed = (segments.end_time < frontiers.horizon) & (segments.settled_end <= frontiers.since)
    touched = np.bincount(segments.deltas.entity[pool.touched], minlength=len(segments)) > 0
    n_current = np.bincount(segments.deltas.entity[segments.is_current], minlength=len(segments))
    dropped = np.add.reduceat(n_current * passed, np.append(0, last[:-1] + 1)) if len(last) else last
    segments = folded = _without_passed_parents(segments, passed)
    if isinstance(policy.strategy, TimeBoundary):
        segments = _find_emptied(segments, passed)
        passed = np.zeros(len(segments), np.bool_)
    same, kept = _find_unchanged(published, segments, touched, passed)
    return RestatedChains(segments, folded, ~same & ~passed, ~kept, passed, entities, states, dropped)


def _heads(published: Segments, deltas: DeltaBatch, horizon: int) -> tuple[Segments, Array]:
    """The published segments without their deltas, with a first one for every entity whose chain begins; and a mask.

    The mask marks segments whose deltas compaction has dropped: the next checkpoint can't be computed from them."""
    has_head = np.zeros(deltas.entity_count, np.bool_)
    has_head[published.entity] = True
    begins = np.unique(deltas.entity[~has_head[deltas.entity]])
    start_time, start_row, settled, base = first_segments(begins, deltas.dtype)
    entity = np.concatenate((published.entity, begins))
    order = np.argsort(entity, kind="stable")
    heads = replace(
        Segments.empty(deltas.dtype, deltas.dims),
        entity=entity[order],
        start_time=np.concatenate((published.start_time, start_time))[order],
        start_row=np.concatenate((published.start_row, start_row))[order],
        settled=np.concatenate((published.settled, settled))[order],
        base=published.base.concat(base).take(order),
        bounds=np.zeros(len(entity) + 1, np.int64),
    )
    empty = (published.lengths == 0) & (published.end_time < horizon)
    emptied = np.concatenate((empty, np.zeros(len(begins), np.bool_)))
    return heads, emptied[order]


def _segment_of(heads: Segments, pool: Pool) -> Array:
    """Per delta, the number of the segment into which it falls: the last one whose start is before it."""
    deltas = pool.deltas
    if len(np.unique(heads.entity)) == len(heads):
        return np.searchsorted(heads.entity, deltas.entity)
    is_head = np.repeat([True, False], [len(heads), len(deltas)])
    rows = np.concatenate((heads.start_row, deltas.row_id))
    if deltas.sequences is not None:
        # all deltas of the same time are in one segment, which ends behind them
        rows[:] = 0
    order = np.lexsort(
        (
            is_head, rows, np.concatenate((heads.start_time, deltas.event_time)),
            np.concatenate((heads.entity, deltas.entity)),
        )
    )  # fmt: skip
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_head[order]) - 1
    return number[len(heads) :]


def _cut(
    heads: Segments, emptied: Array, pool: Pool, policy: CompactionPolicy, *, as_of: int, frontiers: Frontiers
) -> tuple[Segments, Array]:
    """The segments with their deltas, cut by the policy, and a mask of those that continue the segment before them.

    Segments that continue another one do not have their checkpoints yet."""
    deltas, number = pool.deltas, _segment_of(heads, pool)
    droppable = _droppable(heads, pool, frontiers)
    cut = cuts(
        number, deltas.event_time, deltas.unparted, heads.last_of_entity, heads.entity, droppable, policy, as_of=as_of
    )
    made = np.cumsum(cut)
    numbers = number + made - cut
    behind = np.flatnonzero(cut)
    old_places = np.arange(len(heads)) + np.concatenate(([0], made))[np.searchsorted(number, np.arange(len(heads)))]
    count = len(heads) + len(behind)
    entity, start_time, start_row = (np.empty(count, np.int64) for _ in range(3))
    entity[old_places], start_time[old_places], start_row[old_places] = heads.entity, heads.start_time, heads.start_row
    first_open = numbers[behind] + 1
    entity[first_open], start_time[first_open] = deltas.entity[behind], deltas.event_time[behind]
    start_row[first_open] = deltas.row_id[behind]
    continues = np.append(False, entity[1:] == entity[:-1])[:count]
    continues[old_places[1:][emptied[:-1]]] = False
    source = np.full(count, len(heads))
    source[old_places] = np.arange(len(heads))
    source[continues] = len(heads)
    settled = np.append(heads.settled, ALWAYS)[source]
    segments = Segments(
        entity=entity, start_time=start_time, start_row=start_row, settled=settled,
        base=heads.base.concat(States.absent(1, deltas.dtype)).take(source),
        bounds=np.searchsorted(numbers, np.arange(count + 1)),
        deltas=replace(deltas, entity=numbers, entity_count=count), known_from=pool.known_from, known_to=pool.known_to,
        refusal=np.zeros(len(deltas), np.uint8), delta_ids=pool.delta_ids, parents=pool.parents,
    )  # fmt: skip
    changed = np.where(segments.is_current, segments.known_from, segments.known_to)
    _accumulate(segments.settled, continues, segments.bounds, changed)
    return with_parents(segments), continues


def _droppable(heads: Segments, pool: Pool, frontiers: Frontiers) -> Array:
    deltas = pool.deltas
    changed = np.where(pool.known_to == STILL_KNOWN, pool.known_from, pool.known_to)
    needed = np.flatnonzero((deltas.event_time >= frontiers.horizon) | (changed > frontiers.since))
    first_held = np.full(deltas.entity_count, len(deltas))
    np.minimum.at(first_held, deltas.entity[needed], needed)
    unsettled = heads.entity[heads.settled > frontiers.since]
    first_held[unsettled] = 0
    return np.arange(len(deltas)) < first_held[deltas.entity]


@njit(cache=True, nogil=True)
def _accumulate(settled: Array, continues: Array, bounds: Array, changed: Array) -> None:
    """Fill `settled` of segments that continue others: the latest time at which a delta before them has changed."""
    for segment in range(1, len(settled)):
        if continues[segment]:
            latest = settled[segment - 1]
            for delta in range(bounds[segment - 1], bounds[segment]):
                latest = max(latest, changed[delta])
            settled[segment] = latest


def _fold(segments: Segments, continues: Array, transforms: Mapping[str, Transform] | None) -> tuple[Segments, States]:
    """The segments with their checkpoints and refusals, and the state at the end of each segment."""
    current = np.flatnonzero(segments.is_current)
    whole = len(current) == len(segments.deltas)
    batch = segments.deltas if whole else segments.deltas.take(current)
    result = fold(batch, segments.base, transforms=transforms, continues=continues)
    # a delta that was taken back keeps the refusal of its row alone, for reads at a time at which it was known
    refusal = segments.deltas.refusal.copy()
    refusal[current] = result.refusal
    _judge_parents_of_gone(segments, refusal)
    before = np.where(continues, np.arange(len(segments)) - 1 + len(segments), np.arange(len(segments)))
    base = segments.base.concat(result.states).take(before)
    return replace(segments, base=base, refusal=refusal), result.states


def _judge_parents_of_gone(segments: Segments, refusal: Array) -> None:
    """Mark deltas that were taken back and whose parent was not applied before them.

    A read at a time at which they were known may not have the segment of the parent."""
    deltas, is_current = segments.deltas, segments.is_current
    gone = np.flatnonzero(~is_current & (deltas.parent != NO_PARENT))
    if not len(gone):
        return
    chain = segments.entity[deltas.entity]
    fine = np.flatnonzero(is_current & (refusal == Refusal.NONE))
    # of several applied deltas of the same identity, the first one is kept
    keys = zip(chain[fine[::-1]].tolist(), deltas.identities[fine[::-1]].tolist(), strict=True)
    applied = dict(zip(keys, fine[::-1], strict=True))
    for row in gone:
        parent_place = applied.get((int(chain[row]), int(deltas.parent[row])), len(deltas))
        if parent_place > row and refusal[row] == Refusal.NONE:
            refusal[row] = Refusal.MISSING_PARENT


def _without_passed_parents(segments: Segments, passed: Array) -> Segments:
    """The same segments, in which deltas no longer declare an applied parent that is behind both frontiers.

    Such a parent stays applied. Parents given by delta id are not looked up twice anyway (`known_parents`)."""
    deltas = segments.deltas
    if segments.parents is not None or not passed.any() or not deltas.declares_parents:
        return segments
    chain = segments.entity[deltas.entity]
    gone = np.flatnonzero(passed[deltas.entity] & segments.is_current & (segments.refusal == Refusal.NONE))
    applied = zip(chain[gone].tolist(), deltas.identities[gone].tolist(), strict=True)
    return replace(segments, deltas=deltas.with_applied_parents(chain, applied))


def _find_emptied(segments: Segments, passed: Array) -> Segments:
    """The same checkpoints, without the deltas of segments behind both frontiers."""
    if not passed.any():
        return segments
    rows = np.flatnonzero(~passed[segments.deltas.entity])
    texts = [None if t is None else t.take(pa.array(rows)) for t in (segments.delta_ids, segments.parents)]
    return replace(
        segments,
        deltas=segments.deltas.take(rows),
        known_from=segments.known_from[rows],
        known_to=segments.known_to[rows],
        refusal=segments.refusal[rows],
        bounds=np.concatenate(([0], np.cumsum(np.where(passed, 0, segments.lengths)))),
        delta_ids=texts[0],
        parents=texts[1],
    )


def _find_unchanged(published: Segments, segments: Segments, touched: Array, passed: Array) -> tuple[Array, Array]:
    """Masks of the segments that are equal to a published one, and of the published ones that stay."""
    same, kept = np.zeros(len(segments), np.bool_), np.zeros(len(published), np.bool_)
    columns = [
        np.concatenate((getattr(published, name), getattr(segments, name)))
        for name in ("start_row", "start_time", "entity")
    ]
    is_new = np.repeat([0, 1], [len(published), len(segments)])
    order = np.lexsort((is_new, *columns))
    pair = np.flatnonzero(np.all([c[order][1:] == c[order][:-1] for c in columns], axis=0))
    theirs, ours = order[pair], order[pair + 1] - len(published)
    equal = (published.lengths[theirs] == segments.lengths[ours]) & ~touched[ours] & ~passed[ours]
    equal &= (published.settled[theirs] == segments.settled[ours]) & (
        published.end_time[theirs] == segments.end_time[ours]
    )
    equal &= published.base.take(theirs).same_bits(segments.base.take(ours))
    theirs, ours = theirs[equal], ours[equal]
    before, after = published.take(theirs), segments.take(ours)
    differs = before.refusal != after.refusal
    still = np.bincount(after.deltas.entity[differs], minlength=len(ours)) == 0
    same[ours[still]], kept[theirs[still]] = True, True
    return same, kept
