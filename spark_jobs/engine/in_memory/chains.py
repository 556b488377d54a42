"""Chains of deltas in memory: the segments of the pipeline, with named entities and with deltas as objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.asking import states_for
from spark_jobs.engine.deltas.batch import Delta, DeltaBatch
from spark_jobs.engine.deltas.chain_versions import ChainVersion, deltas_back, versions
from spark_jobs.engine.deltas.cutting import NEVER, CompactionPolicy, Need, needs
from spark_jobs.engine.deltas.fold import Transform
from spark_jobs.engine.deltas.frontiers import LATEST, STILL_KNOWN, UNMOVED, Frontiers
from spark_jobs.engine.deltas.pooling import PooledDeltas
from spark_jobs.engine.deltas.restating import restate_chains
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import EntityState
from spark_jobs.engine.deltas.strategies import MAX_CHAIN_LENGTH, Strategy
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import Frontier

UNCUT = CompactionPolicy(delta_threshold=NEVER, max_chain_length=NEVER)
"""A policy under which no chain is ever due."""


class UnknownEntityError(TidemarkError):
    """The chains have no delta of the entity. Fact: `entity`."""

    code = "unknown_entity"


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction.

    It has the number of checkpoints after it, of deltas newly folded into the newest checkpoints, and of deltas
    dropped because they are behind both frontiers; also the bytes of the columns before and after."""

    checkpoints: int
    deltas_merged: int
    deltas_dropped: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Chains:
    """Chains of named entities: checkpoints, and the deltas after each. `entities` are their codes in `segments`."""

    entities: Mapping[str, int]
    segments: Segments
    frontiers: Frontiers = UNMOVED
    transforms: Mapping[str, Transform] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls,
        deltas: Sequence[Delta],
        *,
        dtype: npt.DTypeLike = np.float64,
        dims: int | None = None,
        transforms: Mapping[str, Transform] | None = None,
        known_from: Sequence[int] | None = None,
    ) -> Chains:
        """Chains of these deltas, in any order, still without checkpoints.

        Args:
            deltas: one per (entity, event_time, sequence, row_id).
            dtype: type of the vectors: float32, float64 or int64.
            dims: the declared length; then the vector of an absent entity counts as zeros. None: a chain begins with
                Create or Dense.
            transforms: registered transforms by name; each takes and returns vectors as rows.
            known_from: per delta, the visible time from which on it is known; by default its event time.

        Raises DuplicateDeltaError for two deltas at the same place.
        """
        entities = {name: code for code, name in enumerate(dict.fromkeys(delta.entity for delta in deltas))}
        batch = DeltaBatch.from_deltas(deltas, entities=entities, dtype=dtype, dims=dims)
        visible = batch.event_time if known_from is None else np.asarray(known_from, dtype=np.int64)
        registered = MappingProxyType(dict(transforms or {}))
        changes = PooledDeltas(batch, visible, np.ones(len(batch), np.int64))
        step = restate_chains(Segments.empty(dtype, dims), changes, UNCUT, as_of=LATEST, transforms=registered)
        return cls(entities, step.segments, UNMOVED, registered)

    def state_at(
        self, event_time: int | None = None, *, as_known_at: int | None = None, entities: Iterable[str] | None = None
    ) -> dict[str, EntityState]:
        """States at an event time (None: the latest) as known at a visible time (None: now), per entity.

        Raises BelowHorizon or BelowSince for a time that compaction has passed.
        """
        self.frontiers.check_read(event_time, as_known_at)
        names = list(self.entities if entities is None else entities)
        codes = np.array([self._code(name) for name in names], np.int64)
        asked = (np.full(len(codes), LATEST if time is None else time) for time in (event_time, as_known_at))
        states = states_for(_for_parents(self.segments), codes, *asked, transforms=self.transforms)
        return {name: states.entity(place) for place, name in enumerate(names)}

    def history(self, entity: str) -> list[ChainVersion]:
        """The deltas of one entity in order, each with the state after it.

        Deltas that both frontiers have passed are not listed any more: the first version starts from their checkpoint.
        """
        return versions(self._of(entity), transforms=self.transforms)

    def rollback(self, entity: str, to: int, *, event_time: int, row_id: int) -> list[Delta]:
        """New deltas that bring an entity back to its state at event time `to`: appended, they keep the history.

        The first delta is at (event_time, row_id), which must be after all deltas of the chain. A second one, at the
        next row id, is needed only if the length of the vector has changed. A component that was unseen at `to` becomes
        null. Raises ParameterError for a position within the chain, and BelowHorizon for a `to` below horizon.
        """
        now, then = (self.state_at(time, entities=[entity])[entity] for time in (None, to))
        self._refuse_position_within(entity, event_time, row_id)
        return deltas_back(entity, now, then, event_time=event_time, row_id=row_id)

    def compact(
        self, strategy: Strategy, *, since: Frontier, horizon: Frontier, max_chain_length: int = MAX_CHAIN_LENGTH
    ) -> tuple[Chains, Compaction]:
        """The chains with the checkpoints of `strategy`, and without the deltas that both frontiers have passed.

        All chains count as due. Every answer at or beyond both frontiers stays the same; a second pass changes nothing.

        Raises FrontierRegressionError for a frontier below that of an earlier compaction of these chains.
        """
        frontiers = self.frontiers.advanced_to(Frontiers.of(since, horizon))
        before = self.segments
        newest = int(before.deltas.event_time.max(initial=0))
        policy = CompactionPolicy(strategy, age_threshold=0, max_chain_length=max_chain_length)
        nothing = PooledDeltas(_no_deltas(before, len(self.entities)), *np.zeros((2, 0), np.int64))
        step = restate_chains(
            before, nothing, policy, as_of=newest + 1, frontiers=frontiers, transforms=self.transforms
        )
        after = step.segments.take(np.flatnonzero(~step.passed))
        compaction = Compaction(
            checkpoints=int(np.count_nonzero(after.base.delta_count)),
            deltas_merged=_fold(after) - _fold(before),
            deltas_dropped=int(step.dropped.sum()),
            bytes_before=before.nbytes,
            bytes_after=after.nbytes,
        )
        return replace(self, segments=after, frontiers=frontiers), compaction

    def _of(self, entity: str) -> Segments:
        return self.segments.take(np.flatnonzero(self.segments.entity == self._code(entity)))

    def _refuse_position_within(self, entity: str, event_time: int, row_id: int) -> None:
        chain = self._of(entity)
        taken = [
            (int(time), int(row))
            for of in (chain.deltas, chain.base)
            for time, row in zip(of.event_time, of.row_id, strict=True)
        ]
        if (event_time, row_id) <= max(taken):
            raise ParameterError(
                expected=f"a position after {max(taken)}", found=str((event_time, row_id)),
                next_step="choose a later event time", entity=entity,
            )  # fmt: skip

    def _code(self, entity: str) -> int:
        if entity not in self.entities:
            raise UnknownEntityError(
                expected="an entity of these chains", found=repr(entity), next_step="check its spelling", entity=entity
            )
        return self.entities[entity]


def _for_parents(segments: Segments) -> Segments:
    """The segments with only those checkpoints as settled from which a read may start.

    A checkpoint does not tell which parents were applied before it, if deltas name parents by row ids (of which a chain
    may have several). So a read of such chains starts from the first segment that has deltas, or from one before it."""
    if not segments.deltas.declares_parents:
        return segments
    first = np.full(int(segments.entity.max()) + 1, len(segments))
    filled = np.flatnonzero(segments.lengths)
    np.minimum.at(first, segments.entity[filled], filled)
    later = np.arange(len(segments)) > first[segments.entity]
    return replace(segments, settled=np.where(later, STILL_KNOWN, segments.settled))


def _no_deltas(segments: Segments, entity_count: int) -> DeltaBatch:
    return replace(segments.deltas.take(np.zeros(0, np.int64)), entity_count=entity_count)


def _fold(segments: Segments) -> int:
    """The number of deltas in the newest checkpoints of the chains."""
    return int(segments.base.delta_count[segments.last_of_entity].sum())


def needs_compaction(chains: Chains, policy: CompactionPolicy | None = None, *, as_of: int) -> dict[str, Need]:
    """The need of each entity's chain for compaction, by the deltas after its newest checkpoint.

    FORCED from `max_chain_length` deltas on. SCHEDULED from `delta_threshold` deltas on, or if the first of them is
    more than `age_threshold` ticks before `as_of`, an event time (never the wall clock)."""
    segments = chains.segments
    last = np.flatnonzero(segments.last_of_entity)
    times = np.append(segments.deltas.event_time, as_of)[segments.bounds[last]]
    needed = needs(segments.lengths[last], times, policy or CompactionPolicy(), as_of=as_of)
    by_code = dict(zip(segments.entity[last].tolist(), needed.tolist(), strict=True))
    return {name: Need(by_code[code]) for name, code in chains.entities.items()}


def compose(
    deltas: Sequence[Delta],
    *,
    dtype: npt.DTypeLike = np.float64,
    dims: int | None = None,
    transforms: Mapping[str, Transform] | None = None,
) -> dict[str, EntityState]:
    """The state that each entity's deltas compose to; arguments as for `Chains.of`."""
    return Chains.of(deltas, dtype=dtype, dims=dims, transforms=transforms).state_at()


def compact(
    chains: Chains,
    strategy: Strategy,
    *,
    since: Frontier,
    horizon: Frontier,
    max_chain_length: int = MAX_CHAIN_LENGTH,
) -> tuple[Chains, Compaction]:
    """`Chains.compact`: only deltas that both frontiers have passed are dropped."""
    return chains.compact(strategy, since=since, horizon=horizon, max_chain_length=max_chain_length)


def state_at(
    chains: Chains, event_time: int | None = None, *, as_known_at: int | None = None
) -> dict[str, EntityState]:
    """`Chains.state_at` of all entities."""
    return chains.state_at(event_time, as_known_at=as_known_at)


def history(chains: Chains, entity: str) -> list[ChainVersion]:
    """`Chains.history` of one entity."""
    return chains.history(entity)
