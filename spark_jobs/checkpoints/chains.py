"""Chains of deltas in memory: the API over the delta kernels that knows entities and components by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.kernels.deltas.batch import Delta, DeltaBatch
from spark_jobs.kernels.deltas.chains import chains_of
from spark_jobs.kernels.deltas.compact import ChainSet, Compaction, states_at
from spark_jobs.kernels.deltas.compact import compact as compact_chains
from spark_jobs.kernels.deltas.fold import Transform, fold
from spark_jobs.kernels.deltas.ops import Op, Refusal
from spark_jobs.kernels.deltas.states import EntityState
from spark_jobs.kernels.deltas.strategies import MAX_CHAIN_LENGTH, Strategy
from spark_jobs.kernels.deltas.versions import Version, deltas_back
from spark_jobs.model import Frontier


class UnknownEntityError(TidemarkError):
    """No delta of that entity is in these chains. Fact: `entity`."""

    code = "unknown_entity"


@dataclass(frozen=True, slots=True)
class Chains:
    """Chains of named entities: a checkpoint each (or nothing yet) and the pending deltas after it."""

    entities: Mapping[str, int]
    columns: ChainSet
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
        """Chains of these deltas, in any order.

        Args:
            deltas: at most one per (entity, event_time, row_id); a second one is refused by what reads or compacts
                them (`duplicate_delta`).
            dtype: type of the vectors: float32, float64 or int64.
            dims: the declared length; an entity that never was then counts as zeros. None: Create or Dense comes first.
            transforms: registered transforms by name; each takes and returns vectors as rows.
            known_from: per delta the visible time from which it is known; by default its event time.
        """
        entities = {name: code for code, name in enumerate(dict.fromkeys(delta.entity for delta in deltas))}
        batch = DeltaBatch.from_deltas(deltas, entities=entities, dtype=dtype, dims=dims)
        visible = None if known_from is None else np.asarray(known_from, dtype=np.int64)
        return cls(entities, ChainSet.of(batch, visible), MappingProxyType(dict(transforms or {})))

    def state_at(
        self, event_time: int | None = None, *, as_known_at: int | None = None, entities: Iterable[str] | None = None
    ) -> dict[str, EntityState]:
        """States at an event time (None: the latest) as known at a visible time (None: now), per entity.

        Refuses times that compaction has passed: `below_horizon`, `below_since`.
        """
        chosen = self.columns if entities is None else self._only(entities)
        states = states_at(chosen, event_time, known_at=as_known_at, transforms=self.transforms)
        return {name: states.entity(self._code(name)) for name in (self.entities if entities is None else entities)}

    def history(self, entity: str) -> list[Version]:
        """The pending deltas of one entity in order, each with the state after it.

        What is folded into the checkpoint has no history any more: the first version stands on it.
        """
        chain = self._only([entity])
        chain = chain.keep(chains_of(chain.pending).order)
        versions, states, done = [], chain.checkpoints, chain.folded
        for position in range(len(chain.pending)):
            row = chain.pending.take(np.array([position]))
            result = fold(row, states, transforms=self.transforms, folded=done)
            refusal, states = Refusal(int(result.refusal[0])), result.states
            if refusal is Refusal.NONE:
                done = (np.append(done[0], row.entity), np.append(done[1], row.row_id))
            reason = None if refusal is Refusal.NONE else refusal.code
            versions.append(
                Version(
                    event_time=int(row.event_time[0]), row_id=int(row.row_id[0]), op=Op(int(row.op[0])),
                    deltas=int(row.weight[0]), refusal=reason, state=states.entity(self._code(entity)),
                )
            )  # fmt: skip
        return versions

    def rollback(self, entity: str, to: int, *, event_time: int, row_id: int) -> list[Delta]:
        """New deltas that bring an entity back to its state at event time `to`: appended, they keep the history.

        The first stands at (event_time, row_id), which must come after all that the chain holds; a second, needed only
        where the vector's length changed, at the next row id. A component that was not seen at `to` becomes null.
        Refuses a `to` below horizon.
        """
        now, then = (self.state_at(time, entities=[entity])[entity] for time in (None, to))
        self._refuse_position_within(entity, event_time, row_id)
        return deltas_back(entity, now, then, event_time=event_time, row_id=row_id)

    def compact(
        self, strategy: Strategy, *, since: Frontier, horizon: Frontier, max_chain_length: int = MAX_CHAIN_LENGTH
    ) -> tuple[Chains, Compaction]:
        """The compacted chains and what it took and saved; see `kernels.deltas.compact` for what is kept exact.

        As far as the frontiers allow, no chain keeps `max_chain_length` deltas or more, whatever the strategy.
        """
        done = compact_chains(
            self.columns, strategy, since=since, horizon=horizon, transforms=self.transforms,
            max_chain_length=max_chain_length,
        )  # fmt: skip
        return replace(self, columns=done.chains), done

    def _only(self, entities: Iterable[str]) -> ChainSet:
        codes = [self._code(name) for name in entities]
        return self.columns.keep(np.isin(self.columns.pending.entity, codes))

    def _refuse_position_within(self, entity: str, event_time: int, row_id: int) -> None:
        chain = self._only([entity])
        code = self._code(entity)
        taken = list(zip(chain.pending.event_time.tolist(), chain.pending.row_id.tolist(), strict=True))
        taken.append((int(chain.checkpoints.event_time[code]), int(chain.checkpoints.row_id[code])))
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
    """`Chains.compact`: deltas leave a chain only where both frontiers have passed them."""
    return chains.compact(strategy, since=since, horizon=horizon, max_chain_length=max_chain_length)


def state_at(
    chains: Chains, event_time: int | None = None, *, as_known_at: int | None = None
) -> dict[str, EntityState]:
    """`Chains.state_at` of all entities."""
    return chains.state_at(event_time, as_known_at=as_known_at)


def history(chains: Chains, entity: str) -> list[Version]:
    """`Chains.history` of one entity."""
    return chains.history(entity)
