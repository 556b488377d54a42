"""The order of deltas: grouped by entity, then by (event_time, row_id). Nothing else ever orders a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.kernels.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.kernels.deltas.ops import DuplicateDeltaError

Array = npt.NDArray[Any]

NO_PARENT_ROW = -1
"""`parent_row` of a delta that declares no parent."""

MISSING_PARENT_ROW = -2
"""`parent_row` of a delta whose parent is neither in the batch nor among the folded deltas."""

FOLDED_PARENT_ROW = -3
"""`parent_row` of a delta whose parent is already folded into the checkpoint."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Row numbers of a batch in chain order: entity `e` owns `order[starts[e]:starts[e + 1]]`."""

    order: Array
    starts: Array


def chains_of(batch: DeltaBatch) -> Chains:
    """Group a batch by entity and order each chain by (event_time, row_id). O(n) for chains that arrive in order.

    Raises DuplicateDeltaError if an entity has two deltas at one (event_time, row_id).
    """
    order, starts, duplicate = in_chain_order(batch.entity, batch.event_time, batch.row_id, batch.entity_count)
    if duplicate >= 0:
        facts: dict[str, Any] = {
            name: int(getattr(batch, name)[duplicate]) for name in ("entity", "event_time", "row_id")
        }
        raise DuplicateDeltaError(
            expected="one delta per (entity, event_time, row_id)",
            found=f"two deltas of entity {facts['entity']} at {facts['event_time']} with row id {facts['row_id']}",
            next_step="give every row its own row_id",
            **facts,
        )
    return Chains(order, starts)


def parent_rows(batch: DeltaBatch, folded: tuple[Array, Array] | None, family: Array) -> Array:
    """Row number of each delta's parent in the batch, or one of the `*_PARENT_ROW` marks.

    `folded` names the deltas that went into the checkpoints: their entity codes and row ids, in any order.
    `family` numbers the entities anew where several codes stand for parts of one entity's chain.
    """
    result = np.full(len(batch), NO_PARENT_ROW, dtype=np.int64)
    asking = np.flatnonzero(batch.parent != NO_PARENT)
    if not len(asking):
        return result
    wanted = list(zip(family[batch.entity[asking]].tolist(), batch.parent[asking].tolist(), strict=True))
    known: dict[tuple[int, int], int] = {}
    if folded:
        keys = zip(family[folded[0]].tolist(), folded[1].tolist(), strict=True)
        known = dict.fromkeys(keys, FOLDED_PARENT_ROW)
    keys = zip(family[batch.entity].tolist(), batch.row_id.tolist(), strict=True)
    known |= {key: row for row, key in enumerate(keys)}
    result[asking] = [known.get(key, MISSING_PARENT_ROW) for key in wanted]
    return result


@njit(cache=True)
def in_chain_order(entity: Array, event_time: Array, row_id: Array, entity_count: int) -> tuple[Array, Array, int]:
    """Rows ordered by (entity, event_time, row_id), the bounds of each entity's rows, and a repeated row or -1.

    Entities are counted, not compared; only a chain that did not arrive in order is sorted. Repeated rows keep the
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
        if not _ascends(chain, event_time, row_id):
            by_id = chain[np.argsort(row_id[chain], kind="mergesort")]
            chain[:] = by_id[np.argsort(event_time[by_id], kind="mergesort")]
            for i in range(1, len(chain)):
                if event_time[chain[i - 1]] == event_time[chain[i]] and row_id[chain[i - 1]] == row_id[chain[i]]:
                    repeated = chain[i]
    return order, starts, repeated


@njit(cache=True)
def _ascends(chain: Array, event_time: Array, row_id: Array) -> bool:
    for i in range(1, len(chain)):
        before, row = chain[i - 1], chain[i]
        if event_time[row] < event_time[before] or (
            event_time[row] == event_time[before] and row_id[row] <= row_id[before]
        ):
            return False
    return True
