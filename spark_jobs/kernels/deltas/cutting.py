"""Where chains are cut: which pending deltas a checkpoint is placed behind.

A chain needs it (`Policy`) once its last segment is long or old enough; the strategy says where:

==============  ====================================================================================================
FullMerge       behind the newest delta
TieredMerge     behind the newest but `keep_recent`; further ones every `keep_recent` deltas, so that a state of the
                past is never more than that away from a checkpoint
TimeBoundary    behind the last delta of every interval that is over
Adaptive        as FullMerge or TieredMerge, entity by entity
==============  ====================================================================================================

Where both frontiers have passed a prefix of the chain, only its last checkpoint is of use, so no other is made there
(TimeBoundary keeps those of all boundaries). A second pass finds nothing to cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.deltas.strategies import Adaptive, FullMerge, Strategy, TieredMerge, TimeBoundary

Array = npt.NDArray[Any]


TIERED = TieredMerge()

NEVER = np.iinfo(np.int64).max
"""`ages_from` of a segment in which age has nothing cut."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When a chain needs compaction, and how it is done.

    `delta_threshold`: pending deltas from which on it is due. `age_threshold`: ticks of event time that its first
    pending delta may lie before the newest event time that counts (None: any). None is longer than
    `max_chain_length`.
    """

    strategy: Strategy = TIERED
    delta_threshold: int = 100
    age_threshold: int | None = None
    max_chain_length: int = 1000


def cuts(
    segment: Array,
    event_time: Array,
    row_id: Array,
    last: Array,
    entity: Array,
    droppable: Array,
    policy: Policy,
    *,
    as_of: int,
) -> Array:
    """Mask of the deltas behind which a new segment begins.

    Args:
        segment: per delta the number of its segment, ascending; within one, deltas are in chain order.
        event_time: per delta.
        row_id: per delta; versions of one row are never parted.
        last: per segment whether it is its chain's last one. Others are cut only where they grew too long.
        entity: per segment the code of its entity, by which Adaptive's counts are found.
        droppable: per delta whether it and all before it have fallen behind both frontiers.
        policy: when and how.
        as_of: the event time from which the age of a chain counts.
    """
    if not len(segment):
        return np.zeros(0, np.bool_)
    starts = np.flatnonzero(np.diff(segment, prepend=-1))
    numbers = segment[starts]
    lengths = np.diff(np.append(starts, len(segment)))
    which = np.repeat(np.arange(len(starts)), lengths)
    rank = np.arange(len(segment)) - starts[which] + 1
    age = as_of - event_time[starts]
    due = lengths >= policy.delta_threshold
    if policy.age_threshold is not None:
        due |= last[numbers] & (age > policy.age_threshold)
    behind = np.zeros(len(segment), np.bool_)
    match policy.strategy:
        case TimeBoundary(interval):
            over = np.append(event_time[1:] // interval != event_time[:-1] // interval, False)
            over[np.append(starts[1:], len(segment)) - 1] = False
            behind = due[which] & (over | (rank % policy.max_chain_length == 0))
        case strategy:
            keep, piece = _kept_and_piece(strategy, policy, entity[numbers])
            prefix = np.where(due, np.where(last[numbers], np.maximum(lengths - keep, 0), lengths), 0)[which]
            dropped = np.add.reduceat(droppable, starts, dtype=np.int64)[which]
            only = np.minimum(prefix, dropped)
            behind = (rank == only) | (
                (rank > only) & (rank <= prefix) & (((rank - only) % piece[which] == 0) | (rank == prefix))
            )
    sealed_end = (rank == lengths[which]) & ~last[numbers][which]
    parts_versions = np.append((event_time[1:] == event_time[:-1]) & (row_id[1:] == row_id[:-1]), False)
    return behind & ~sealed_end & ~parts_versions


def ages_from(segment: Array, event_time: Array, row_id: Array, last: Array, entity: Array, policy: Policy) -> Array:
    """Per segment the event time of its first delta, if `cuts` would part it once that is old enough, else `NEVER`.

    By it the chains that are due by age alone are found without looking at their deltas. Arguments as of `cuts`.
    """
    result = np.full(len(last), NEVER)
    if len(segment):
        aged, of_all = replace(policy, age_threshold=0), int(event_time.max()) + 1
        cut = cuts(segment, event_time, row_id, last, entity, np.zeros(len(segment), np.bool_), aged, as_of=of_all)
        parted = np.zeros(len(last), np.bool_)
        parted[segment[cut]] = True
        starts = np.flatnonzero(np.diff(segment, prepend=-1))
        result[segment[starts]] = event_time[starts]
        result[~(parted & last)] = NEVER
    return result


def _kept_and_piece(strategy: Strategy, policy: Policy, entity: Array) -> tuple[Array, Array]:
    """Per segment how many deltas stay pending, and how many stand between two checkpoints at most."""
    whole = min(policy.delta_threshold, policy.max_chain_length)
    tiered = strategy.keep_recent if isinstance(strategy, TieredMerge | Adaptive) else 0
    keep = np.full(len(entity), tiered, np.int64)
    if isinstance(strategy, Adaptive):
        keep[strategy.read_heavy(int(entity.max()) + 1)[entity]] = 0
    if isinstance(strategy, FullMerge):
        keep[:] = 0
    return keep, np.where(keep > 0, np.minimum(np.maximum(keep, 1), policy.max_chain_length), max(whole, 1))
