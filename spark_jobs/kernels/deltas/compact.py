"""Compaction: fold or compose the old part of many chains without changing an answer that may still be asked.

Definition: the state at event time E as known at T is the checkpoint with every pending delta folded onto it that has
`event_time <= E` and `known_from <= T < known_to`.

Invariant: after `compact(…, since, horizon)` that answer is bit-equal for every E at or beyond `horizon` and T at or
beyond `since`; below, it is refused by name. So a delta leaves a chain only if it and every delta ordered before it
have `event_time` below horizon and `known_from` at or below since: a chain is folded no further than that, however
long it is. Compacting again with the same frontiers changes nothing.

As far as the frontiers allow, every strategy leaves fewer than `max_chain_length` deltas pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.errors import ParameterError
from spark_jobs.kernels.deltas.batch import DeltaBatch
from spark_jobs.kernels.deltas.chains import chains_of
from spark_jobs.kernels.deltas.compose import compose
from spark_jobs.kernels.deltas.fold import Transform, fold
from spark_jobs.kernels.deltas.ops import DeltaError, MalformedDeltasError, Refusal
from spark_jobs.kernels.deltas.states import States
from spark_jobs.kernels.deltas.strategies import (
    MAX_CHAIN_LENGTH,
    Adaptive,
    FullMerge,
    Strategy,
    TieredMerge,
    TimeBoundary,
    require_at_least,
)
from spark_jobs.model import Frontier

Array = npt.NDArray[Any]

STILL_KNOWN = np.iinfo(np.int64).max
"""`known_to` of a delta that was not taken back."""

BEGINNING = Frontier.at(np.iinfo(np.int64).min)
"""Frontier that every time is at or beyond."""


class BelowHorizonError(DeltaError):
    """A state was asked for at an event time below horizon. Facts: `event_time`, `horizon`."""

    code = "below_horizon"


class BelowSinceError(DeltaError):
    """A state was asked for as known at a visible time below since. Facts: `known_at`, `since`."""

    code = "below_since"


class FrontierRegressionError(DeltaError):
    """Compaction was asked for with a frontier below the one it was done for. Facts: `frontier`, `now`, `asked`."""

    code = "frontier_regression"


class Need(IntEnum):
    """Whether a chain should be compacted."""

    NONE = 0
    SCHEDULED = 1
    """Long or old enough that the next run should."""
    FORCED = 2
    """Too long: compact before more is accepted."""


@dataclass(frozen=True, slots=True)
class ChainSet:
    """Checkpoints and pending deltas of many entities, compacted so far for `since` and `horizon`.

    `known_from` and `known_to` bound, per pending delta, the visible times at which it is known (half open).
    `folded_entity` and `folded_row_id` name the deltas that are no longer pending, kept if any delta declares a parent.
    """

    checkpoints: States
    pending: DeltaBatch
    known_from: Array
    known_to: Array
    folded_entity: Array
    folded_row_id: Array
    since: Frontier = BEGINNING
    horizon: Frontier = BEGINNING

    @classmethod
    def of(cls, pending: DeltaBatch, known_from: Array | None = None, known_to: Array | None = None) -> ChainSet:
        """Chains without checkpoints; a delta is known from its event time on unless `known_from` says otherwise."""
        if known_to is None:
            known_to = np.full(len(pending), STILL_KNOWN, dtype=np.int64)
        nothing = np.zeros(0, dtype=np.int64)
        base = States.absent(pending.entity_count, pending.dtype)
        return cls(base, pending, pending.event_time if known_from is None else known_from, known_to, nothing, nothing)

    def __post_init__(self) -> None:
        found = {"known_from": len(self.known_from), "known_to": len(self.known_to)}
        if set(found.values()) != {len(self.pending)}:
            raise MalformedDeltasError(expected=f"visible times of {len(self.pending)} deltas", found=str(found))

    @property
    def folded(self) -> tuple[Array, Array]:
        """Entity codes and row ids of the deltas that are no longer pending, as `fold` takes them."""
        return self.folded_entity, self.folded_row_id

    @property
    def nbytes(self) -> int:
        """Bytes that checkpoints and pending deltas hold."""
        return self.checkpoints.nbytes + self.pending.nbytes + self.known_from.nbytes + self.known_to.nbytes

    def lengths(self) -> Array:
        """Number of pending deltas per entity."""
        return np.bincount(self.pending.entity, minlength=self.pending.entity_count)

    def keep(self, rows: Array) -> ChainSet:
        """The same checkpoints with only these pending deltas (positions or mask)."""
        return replace(
            self, pending=self.pending.take(rows), known_from=self.known_from[rows], known_to=self.known_to[rows]
        )


@dataclass(frozen=True, slots=True)
class Compaction:
    """What compaction did: the new chains, the deltas its chains refused for good, and what it saved.

    `deltas_merged` counts the deltas that no longer stand alone; `bytes_before` and `bytes_after` are real column
    bytes; `held_back` marks the entities still at or over the forced length, because the frontiers allow no more.
    """

    chains: ChainSet
    refused: DeltaBatch
    reasons: Array
    deltas_merged: int
    bytes_before: int
    bytes_after: int
    held_back: Array


def states_at(
    chains: ChainSet,
    event_time: int | None = None,
    *,
    known_at: int | None = None,
    transforms: Mapping[str, Transform] | None = None,
) -> States:
    """States at `event_time` (None: after all deltas) as known at `known_at` (None: as known now).

    Raises BelowHorizonError or BelowSinceError where compaction has left nothing exact to say.
    """
    known = chains.known_to == STILL_KNOWN
    if known_at is not None:
        if not chains.since.admits(known_at):
            raise BelowSinceError(
                expected=f"a visible time at or beyond since {chains.since.to_json()}", found=str(known_at),
                next_step="ask for a later visible time", known_at=known_at, since=chains.since.to_json(),
            )  # fmt: skip
        known = (chains.known_from <= known_at) & (known_at < chains.known_to)
    if event_time is not None:
        if not chains.horizon.admits(event_time):
            raise BelowHorizonError(
                expected=f"an event time at or beyond horizon {chains.horizon.to_json()}", found=str(event_time),
                next_step="ask for a later event time", event_time=event_time, horizon=chains.horizon.to_json(),
            )  # fmt: skip
        known &= chains.pending.event_time <= event_time
    return fold(chains.pending.take(known), chains.checkpoints, transforms=transforms, folded=chains.folded).states


def needs_compaction(
    chains: ChainSet,
    *,
    as_of: int,
    delta_threshold: int = 100,
    age_threshold: int,
    max_chain_length: int = MAX_CHAIN_LENGTH,
) -> Array:
    """`Need` per entity.

    FORCED from `max_chain_length` pending deltas on; SCHEDULED from `delta_threshold` on, or once the first pending
    delta's event time lies more than `age_threshold` ticks before `as_of`, an event time (never the wall clock).
    """
    lengths = chains.lengths()
    first = np.full(len(lengths), as_of, dtype=np.int64)
    np.minimum.at(first, chains.pending.entity, chains.pending.event_time)
    due = (lengths >= delta_threshold) | (as_of - first > age_threshold)
    return np.where(lengths >= max_chain_length, Need.FORCED, np.where(due, Need.SCHEDULED, Need.NONE)).astype(np.uint8)


def compact(
    chains: ChainSet,
    strategy: Strategy,
    *,
    since: Frontier,
    horizon: Frontier,
    transforms: Mapping[str, Transform] | None = None,
    max_chain_length: int = MAX_CHAIN_LENGTH,
) -> Compaction:
    """Compact every chain as `strategy` says, as far as the frontiers allow; all or nothing, `chains` stays.

    Where the strategy would leave `max_chain_length` deltas or more, the oldest are folded too.
    """
    require_at_least("max_chain_length", max_chain_length, 1)
    _refuse_regression("since", chains.since, since)
    _refuse_regression("horizon", chains.horizon, horizon)
    visible = chains.keep(_known_beyond(chains.known_to, since))
    order = chains_of(visible.pending).order
    ordered = visible.keep(order)
    rank, droppable = _droppable(ordered, since, horizon)
    picked = rank < _prefix_lengths(ordered, droppable, strategy, max_chain_length)[ordered.pending.entity]
    old, rest = ordered.keep(picked), ordered.keep(~picked)
    result = fold(old.pending, chains.checkpoints, transforms=transforms, folded=chains.folded)
    applied = old.keep(result.applied)
    if isinstance(strategy, TimeBoundary):
        compacted = _composed(applied, rest, strategy.interval, max_chain_length, transforms)
    else:
        compacted = replace(rest, checkpoints=result.states)
    compacted = _with_folded(replace(compacted, since=since, horizon=horizon), chains, applied)
    return Compaction(
        chains=compacted,
        refused=old.pending.take(~result.applied),
        reasons=result.refusal[result.refusal != Refusal.NONE],
        deltas_merged=len(applied.pending) - (len(compacted.pending) - len(rest.pending)),
        bytes_before=chains.nbytes,
        bytes_after=compacted.nbytes,
        held_back=compacted.lengths() >= max_chain_length,
    )


def _refuse_regression(name: str, now: Frontier, asked: Frontier) -> None:
    if asked < now:
        raise FrontierRegressionError(
            expected=f"{name} at or beyond {now.to_json()}", found=str(asked.to_json()),
            next_step="compact with the frontiers that retention has now",
            frontier=name, now=now.to_json(), asked=asked.to_json(),
        )  # fmt: skip


def _known_beyond(known_to: Array, since: Frontier) -> Array:
    """Deltas that some readable visible time still knows."""
    return known_to == STILL_KNOWN if since.time is None else known_to > since.time


def _droppable(ordered: ChainSet, since: Frontier, horizon: Frontier) -> tuple[Array, Array]:
    """Per delta its rank in its chain; per entity how many deltas from the start on look the same to every reader."""
    pending = ordered.pending
    below = np.ones(len(pending), dtype=np.bool_) if horizon.time is None else pending.event_time < horizon.time
    settled = ordered.known_to == STILL_KNOWN
    if since.time is not None:
        settled &= ordered.known_from <= since.time
    rank = _ranks(ordered)
    droppable = ordered.lengths()
    held = np.flatnonzero(~(below & settled))
    np.minimum.at(droppable, pending.entity[held], rank[held])
    return rank, droppable


def _ranks(ordered: ChainSet) -> Array:
    """Per delta its rank in its chain, from 0."""
    lengths = ordered.lengths()
    starts = np.cumsum(lengths) - lengths
    return np.arange(len(ordered.pending)) - starts[ordered.pending.entity]


def _prefix_lengths(ordered: ChainSet, droppable: Array, strategy: Strategy, max_chain_length: int) -> Array:
    match strategy:
        case FullMerge() | TimeBoundary():
            return droppable
        case TieredMerge(keep_recent):
            keep = min(keep_recent, max_chain_length - 1)
            return np.minimum(droppable, np.maximum(ordered.lengths() - keep, 0))
        case Adaptive():
            tiered = _prefix_lengths(ordered, droppable, TieredMerge(strategy.keep_recent), max_chain_length)
            return np.where(strategy.read_heavy(len(droppable)), droppable, tiered)
    raise ParameterError(expected="a compaction strategy", found=repr(strategy), next_step="use one of strategies.py")


def _composed(
    applied: ChainSet,
    rest: ChainSet,
    interval: int,
    max_chain_length: int,
    transforms: Mapping[str, Transform] | None,
) -> ChainSet:
    """`rest` with the applied deltas before it, composed per interval of event time; the oldest of these in the
    checkpoint where a chain would be too long."""
    composition = compose(
        applied.pending, bucket=applied.pending.event_time // interval, before=applied.checkpoints.status
    )
    known_from = np.full(len(composition.batch), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(known_from, composition.into, applied.known_from)
    known_to = np.full(len(composition.batch), STILL_KNOWN, dtype=np.int64)
    composed = replace(applied, pending=composition.batch, known_from=known_from, known_to=known_to)
    excess = composed.lengths() + rest.lengths() - (max_chain_length - 1)
    too_old = _ranks(composed) < excess[composed.pending.entity]
    checkpoints = fold(composed.pending.take(too_old), applied.checkpoints, transforms=transforms).states
    kept = composed.keep(~too_old)
    return replace(
        rest,
        checkpoints=checkpoints,
        pending=kept.pending.concat(rest.pending),
        known_from=np.concatenate((kept.known_from, rest.known_from)),
        known_to=np.concatenate((kept.known_to, rest.known_to)),
    )


def _with_folded(compacted: ChainSet, before: ChainSet, applied: ChainSet) -> ChainSet:
    """Remember the applied deltas that left the chain, if parents are declared at all."""
    if not before.pending.declares_parents and not len(before.folded_entity):
        return compacted
    return replace(
        compacted,
        folded_entity=np.concatenate((before.folded_entity, applied.pending.entity)),
        folded_row_id=np.concatenate((before.folded_row_id, applied.pending.row_id)),
    )
