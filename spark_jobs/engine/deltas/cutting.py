"""The cuts of chains: the pending deltas behind which a checkpoint is placed.

A chain needs a cut (`CompactionPolicy`) once its last segment is long or old enough. The strategy decides its place:

==============  ====================================================================================================
FullMerge       behind the newest delta
TieredMerge     behind all but the newest `keep_recent` deltas; further ones every `keep_recent` deltas, so that a past
                state is never farther than that from a checkpoint
TimeBoundary    behind the last delta of every interval that is over
Adaptive        as FullMerge or TieredMerge, entity by entity
==============  ====================================================================================================

If both frontiers have passed a prefix of the chain, only the last checkpoint in it is of use, so no other is made there
(TimeBoundary keeps those of all boundaries). A second pass finds nothing to cut.

With every strategy and with any frontiers, fewer than `max_chain_length` deltas are left behind the last checkpoint,
and at most as many are between two checkpoints; deltas that were taken back count. Only the versions of one row may be
more, and with a sequence the deltas of one event time: they are never parted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.deltas.strategies import (
    MAX_CHAIN_LENGTH,
    Adaptive,
    Strategy,
    TieredMerge,
    TimeBoundary,
    require_at_least,
)

Array = npt.NDArray[Any]

TIERED = TieredMerge()

NEVER = np.iinfo(np.int64).max
"""The value of `ages_from` for a segment that is never cut because of its age."""

AT_ONCE = np.iinfo(np.int64).min
"""The value of `ages_from` for a segment that is long enough already, and that a policy with `deferred` left as it
is."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """The rules of when a chain needs compaction, and how it is done.

    `delta_threshold` is the number of pending deltas from which on it is due. `age_threshold` is the age, in ticks of
    event time, that its first pending delta may have (None: any). `max_chain_length` is the number of pending deltas
    from which on it must be compacted; fewer are left then, whatever the strategy would keep. `deferred`: the end of a
    chain is compacted only if it must be; the rest is left to a later pass with the same policy, not deferred.
    """

    strategy: Strategy = TIERED
    delta_threshold: int = 100
    age_threshold: int | None = None
    max_chain_length: int = MAX_CHAIN_LENGTH
    deferred: bool = False

    def __post_init__(self) -> None:
        require_at_least("max_chain_length", self.max_chain_length, 1)


class Need(IntEnum):
    """The need of a chain for compaction."""

    NONE = 0
    SCHEDULED = 1
    """Long or old enough: the next run should compact it."""
    FORCED = 2
    """Too long: it must be compacted before more deltas are accepted."""


def needs(lengths: Array, first_time: Array, policy: CompactionPolicy, *, as_of: int) -> Array:
    """`Need` per chain, from the number of its pending deltas and the event time of the first; see `CompactionPolicy`.

    `as_of` is an event time, never the wall clock. A chain without pending deltas has no need.
    """
    due = lengths >= policy.delta_threshold
    if policy.age_threshold is not None:
        due |= as_of - first_time > policy.age_threshold
    due &= (lengths > 0) & (not policy.deferred)
    return np.where(lengths >= policy.max_chain_length, Need.FORCED, np.where(due, Need.SCHEDULED, Need.NONE))


def cuts(
    segment: Array,
    event_time: Array,
    unparted: Array,
    last: Array,
    entity: Array,
    droppable: Array,
    policy: CompactionPolicy,
    *,
    as_of: int,
) -> Array:
    """Mask of the deltas behind which a new segment begins.

    Args:
        segment: per delta, the number of its segment, ascending; within a segment, deltas are in chain order.
        event_time: per delta, its event time.
        unparted: per delta, a value; deltas with the same event time and value are never parted (see
            `DeltaBatch.unparted`).
        last: per segment, True if it is the last one of its chain. Other segments are cut only if they are too long,
            deferred or not.
        entity: per segment, the code of its entity, which is the index of its counts in Adaptive.
        droppable: per delta, True if it and all deltas before it are behind both frontiers.
        policy: when and how to cut.
        as_of: the event time from which the age of a chain counts.
    """
    if not len(segment):
        return np.zeros(0, np.bool_)
    starts = np.flatnonzero(np.diff(segment, prepend=-1))
    numbers = segment[starts]
    lengths = np.diff(np.append(starts, len(segment)))
    by_length = replace(policy, age_threshold=None, deferred=False)
    of_ends, of_others = (needs(lengths, event_time[starts], p, as_of=as_of) for p in (policy, by_length))
    due = np.where(last[numbers], of_ends, of_others) != Need.NONE
    follows = segment[1:] == segment[:-1]
    row_ends = np.append(~(follows & (event_time[1:] == event_time[:-1]) & (unparted[1:] == unparted[:-1])), True)
    prefix, dropped, over = np.where(due, lengths, 0), np.zeros(len(starts), np.int64), np.zeros(len(segment), np.bool_)
    piece = np.full(len(starts), policy.max_chain_length)
    by_time = isinstance(policy.strategy, TimeBoundary)
    if isinstance(policy.strategy, TimeBoundary):
        interval = event_time // policy.strategy.interval
        over[:-1] = follows & (interval[1:] != interval[:-1])
    else:
        keep, piece = _kept_and_piece(policy.strategy, policy, entity[numbers])
        prefix = np.where(due & last[numbers], np.maximum(lengths - keep, 0), prefix)
        dropped = np.add.reduceat(droppable, starts, dtype=np.int64)
    return _behind(starts, lengths, last[numbers], row_ends, prefix, dropped, piece, over, by_time)


@njit(cache=True, nogil=True)
def _behind(
    starts: Array, lengths: Array, last: Array, row_ends: Array, prefix: Array, dropped: Array, piece: Array,
    over: Array, by_time: bool,
) -> Array:  # fmt: skip
    """Cut off the first `prefix` deltas of each segment: first the `dropped` ones, then pieces of at most `piece`.

    Cuts are at ends of rows: the last end within the dropped deltas, the first end at or behind the prefix, and the
    last end within the size of a piece. There is a cut at each delta marked in `over`. With `by_time`, the end of a
    last segment is cut off only if the last piece is full.
    """
    cut = np.zeros(len(row_ends), np.bool_)
    for segment in range(len(starts)):
        if prefix[segment] == 0:
            continue
        start, end = starts[segment], starts[segment] + lengths[segment]
        target = start + prefix[segment]
        while not row_ends[target - 1]:
            target += 1
        begin = min(start + dropped[segment], start + prefix[segment])
        while begin > start and not row_ends[begin - 1]:
            begin -= 1
        if start < begin < end:
            cut[begin - 1] = True
        row_end = begin
        for delta in range(begin, target):
            if not row_ends[delta]:
                continue
            # the row that ends here goes into the next piece if this one has no room for it
            if row_end > begin and delta + 1 - begin > piece[segment]:
                cut[row_end - 1], begin = True, row_end
            row_end = delta + 1
            if over[delta]:
                cut[delta], begin = True, row_end
        if target < end or (last[segment] and (not by_time or target - begin >= piece[segment])):
            cut[target - 1] = True
    return cut


def ages_from(
    segment: Array, event_time: Array, unparted: Array, last: Array, entity: Array, policy: CompactionPolicy
) -> Array:
    """Per segment, the event time of its first delta if `cuts` would part it once that is old enough, else `NEVER`;
    `AT_ONCE` if it would part it now, but for `policy.deferred`.

    With it, the chains that are due though no row touches them are found without their deltas. The arguments are those
    of `cuts`.
    """
    result = np.full(len(last), NEVER)
    if not len(segment):
        return result

    def mark_parted(by: CompactionPolicy) -> Array:
        none = np.zeros(len(segment), np.bool_)
        cut = cuts(segment, event_time, unparted, last, entity, none, by, as_of=int(event_time.max()) + 1)
        mask = np.zeros(len(last), np.bool_)
        mask[segment[cut]] = True
        return mask & last

    starts = np.flatnonzero(np.diff(segment, prepend=-1))
    result[segment[starts]] = event_time[starts]
    result[~mark_parted(replace(policy, age_threshold=0, deferred=False))] = NEVER
    if policy.deferred:
        result[mark_parted(replace(policy, age_threshold=None, deferred=False))] = AT_ONCE
    return result


def _kept_and_piece(strategy: Strategy, policy: CompactionPolicy, entity: Array) -> tuple[Array, Array]:
    """Per segment, the number of deltas that stay pending, and the greatest number between two checkpoints."""
    whole = max(min(policy.delta_threshold, policy.max_chain_length), 1)
    tiered = strategy.keep_recent if isinstance(strategy, TieredMerge | Adaptive) else 0
    keep = np.full(len(entity), min(tiered, policy.max_chain_length - 1), np.int64)
    if isinstance(strategy, Adaptive):
        keep[strategy.read_heavy(int(entity.max()) + 1)[entity]] = 0
    return keep, np.where(keep > 0, keep, whole)
