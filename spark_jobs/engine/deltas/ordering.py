"""The order of deltas: grouped by entity, then by (event_time, sequence, row_id). A chain has no other order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.engine.deltas.ops import DuplicateDeltaError

Array = npt.NDArray[Any]

NO_PARENT_ROW = -1
"""The value in `Parents` for a delta that declares no parent."""

MISSING_PARENT_ROW = -2
"""The value in `Parents` for a delta whose parent is not before it in the batch."""


@dataclass(frozen=True, slots=True)
class ChainOrder:
    """The row numbers of a batch in chain order: entity `e` owns `order[starts[e]:starts[e + 1]]`."""

    order: Array
    starts: Array


def chain_order(batch: DeltaBatch) -> ChainOrder:
    """Group a batch by entity and order each chain by (event_time, `batch.ties`). O(n) for chains that arrive in order.

    Raises DuplicateDeltaError if an entity has two deltas with one row id (and sequence) at one event time.
    """
    order, starts, duplicate = in_chain_order(batch.entity, batch.event_time, batch.ties, batch.entity_count)
    if duplicate >= 0:
        raise duplicate_at(batch, duplicate)
    return ChainOrder(order, starts)


def duplicate_at(batch: DeltaBatch, row: int) -> DuplicateDeltaError:
    """The refusal of a second delta at the same place as this row."""
    facts: dict[str, Any] = {name: int(getattr(batch, name)[row]) for name in ("entity", "event_time", "row_id")}
    return DuplicateDeltaError(
        expected="one delta per (entity, event_time, row_id)",
        found=f"two deltas of entity {facts['entity']} at {facts['event_time']} with row id {facts['row_id']}",
        next_step="give every row its own row_id",
        **facts,
    )


@dataclass(frozen=True, slots=True)
class Parents:
    """The places of parents, as positions in chain order.

    Per delta, `last` is the last delta before it that its `parent` names, and `earlier` the last delta before it with
    its own identity; or one of the `*_PARENT_ROW` marks. A parent counts as applied if any delta of its identity was
    applied before."""

    last: Array
    earlier: Array


def parents_of(batch: DeltaBatch, order: Array, family: Array) -> Parents:
    """The parents that the deltas of a batch declare, looked up in the order `order`.

    `family` is the number of the entity per code: several codes may be parts of the chain of one entity.
    """
    last = np.full(len(batch), NO_PARENT_ROW, dtype=np.int64)
    if not batch.declares_parents:
        return Parents(last, last[:0])
    earlier = np.full(len(batch), MISSING_PARENT_ROW, dtype=np.int64)
    places: dict[tuple[int, int], int] = {}
    columns = (family[batch.entity], batch.identities, batch.parent)
    for place, (chain, identity, parent) in enumerate(
        zip(*(column[order].tolist() for column in columns), strict=True)
    ):
        if parent != NO_PARENT:
            last[place] = places.get((chain, parent), MISSING_PARENT_ROW)
        earlier[place] = places.get((chain, identity), MISSING_PARENT_ROW)
        places[chain, identity] = place
    return Parents(last, earlier)


@njit(cache=True, nogil=True)
def in_chain_order(entity: Array, event_time: Array, ties: Array, entity_count: int) -> tuple[Array, Array, int]:
    """The rows ordered by (entity, event_time, ties), the bounds of each entity's rows, and a repeated row or -1.

    Rows are grouped by counting, and only a chain that did not arrive in order is sorted. Repeated rows keep their
    order of arrival.
    """
    repeated = -1
    starts = np.zeros(entity_count + 1, dtype=np.int64)
    for code in entity:
        starts[code + 1] += 1
    for code in range(entity_count):
        starts[code + 1] += starts[code]
    order = np.empty(len(entity), dtype=np.int64)
    free = starts[:-1].copy()
    for row in range(len(entity)):
        order[free[entity[row]]] = row
        free[entity[row]] += 1
    for code in range(entity_count):
        chain = order[starts[code] : starts[code + 1]]
        if not _ascends(chain, event_time, ties):
            by_id = chain[np.argsort(ties[chain], kind="mergesort")]
            chain[:] = by_id[np.argsort(event_time[by_id], kind="mergesort")]
            for i in range(1, len(chain)):
                if event_time[chain[i - 1]] == event_time[chain[i]] and ties[chain[i - 1]] == ties[chain[i]]:
                    repeated = chain[i]
    return order, starts, repeated


@njit(cache=True, nogil=True)
def _ascends(chain: Array, event_time: Array, ties: Array) -> bool:
    for i in range(1, len(chain)):
        before, row = chain[i - 1], chain[i]
        if event_time[row] < event_time[before] or (
            event_time[row] == event_time[before] and ties[row] <= ties[before]
        ):
            return False
    return True
