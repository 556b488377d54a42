"""The chain of one entity, delta by delta: the effect of each delta, and the state after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from spark_jobs.engine.deltas.batch import Delta
from spark_jobs.engine.deltas.fold import Transform, fold
from spark_jobs.engine.deltas.ops import Op, Refusal, Status
from spark_jobs.engine.deltas.packing import known_parents
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import EntityState, States

_KNOWN = frozenset(map(int, Op))


@dataclass(frozen=True, slots=True)
class ChainVersion:
    """One delta in the history of a chain: its place, its operation, and the state after it.

    `op` is None if the row names no known operation. `refusal` is the reason if the chain refused the delta (then
    `state` is the state before it), else None.
    """

    event_time: int
    row_id: int
    op: Op | None
    refusal: str | None
    state: EntityState


def versions(segments: Segments, *, transforms: Mapping[str, Transform] | None = None) -> list[ChainVersion]:
    """The standing deltas of one entity, in order; `segments` are all segments of the entity."""
    current = np.flatnonzero(segments.is_current)
    count = len(current)
    if not count:
        return []
    deltas = replace(segments.deltas, parent=known_parents(segments)).take(current)
    batch = replace(deltas, entity=np.arange(count), entity_count=count)
    absent = States.absent(count - 1, batch.dtype)
    # segments before that of the first delta may be left without deltas by retention
    base = segments.base.take(deltas.entity[:1]).concat(absent)
    continues = np.arange(count) > 0
    result = fold(batch, base, transforms=transforms, continues=continues)
    return [
        ChainVersion(
            event_time=int(batch.event_time[i]),
            row_id=int(batch.row_id[i]),
            op=Op(int(batch.op[i])) if batch.op[i] in _KNOWN else None,
            refusal=None if result.refusal[i] == Refusal.NONE else Refusal(int(result.refusal[i])).code,
            state=result.states.entity(i),
        )
        for i in range(count)
    ]


def deltas_back(entity: str, now: EntityState, then: EntityState, *, event_time: int, row_id: int) -> list[Delta]:
    """New deltas that bring an entity from the state `now` back to the state `then`; none if the states are equal.

    The first delta is at (event_time, row_id). A second one, at the next row id, is needed only if the length of the
    vector has changed. A component that was unseen in `then` becomes null.
    """
    if (now.status, now.vector, now.seen) == (then.status, then.vector, then.seen):
        return []
    back = Delta(entity, event_time, row_id, Op.DENSE, values=then.vector)
    if then.status is not Status.LIVE:
        return [replace(back, op=Op.DELETE, values=())] if now.status is Status.LIVE else []
    if now.status is not Status.LIVE or len(now.vector) == len(then.vector):
        return [back]
    return [replace(back, op=Op.DELETE, values=()), replace(back, row_id=row_id + 1)]
