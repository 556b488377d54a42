"""Chains cut into segments: each a checkpoint and the deltas after it, up to the next segment's checkpoint.

A chain has every delta that is known at some readable visible time T: `known_from <= T < known_to`. The checkpoint of a
segment (`base`) is the state of all standing deltas before it. It is valid from the visible time `settled` on
(`ALWAYS`: from the beginning), as no delta before it has come or gone since then. So the state at (E, T) starts from
the last checkpoint with `start <= E` and `settled <= T`. The deltas after it that have `event_time <= E` and are known
at T are folded onto it.

Only the first checkpoint replaces deltas that are gone; the others are caches, placed by `cutting.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.frontiers import ALWAYS, STILL_KNOWN
from spark_jobs.engine.deltas.states import NO_DELTA, States

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of many entities, ordered by (entity, start); segment `s` owns the deltas `bounds[s]:bounds[s + 1]`.

    `start_time` and `start_row` are the position of the last delta before the segment, `NO_DELTA` at the beginning of a
    chain. `deltas` are in chain order; their `entity` is the number of their segment, and their `refusal` is that of
    the row alone. `refusal` of the segments is the refusal by the chain of all standing deltas. For deltas that were
    taken back, it is the refusal of the row alone, or a missing parent.
    `delta_ids` and `parents` (text) are given only if the source declares parents.
    """

    entity: Array
    start_time: Array
    start_row: Array
    settled: Array
    base: States
    bounds: Array
    deltas: DeltaBatch
    known_from: Array
    known_to: Array
    refusal: Array
    delta_ids: pa.Array | None = None
    parents: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.entity)

    @property
    def lengths(self) -> Array:
        """The number of deltas per segment, including those that were taken back."""
        return np.diff(self.bounds)

    @property
    def is_current(self) -> Array:
        """Mask of the deltas that were not taken back."""
        return self.known_to == STILL_KNOWN

    @property
    def last_of_entity(self) -> Array:
        """Mask of the segments at the end of their chain."""
        return np.append(self.entity[1:] != self.entity[:-1], np.ones(min(len(self), 1), np.bool_))

    @property
    def settled_end(self) -> Array:
        """Per segment, the visible time since which no delta in it or before it has changed."""
        settled = self.settled.copy()
        number = np.repeat(np.arange(len(self)), self.lengths)
        np.maximum.at(settled, number, np.where(self.is_current, self.known_from, self.known_to))
        return settled

    @property
    def nbytes(self) -> int:
        """The size of checkpoints and deltas in bytes, without the texts of ids."""
        return self.base.nbytes + self.deltas.nbytes + self.known_from.nbytes + self.known_to.nbytes

    @property
    def end_time(self) -> Array:
        """Per segment, the event time at which the next one starts; `STILL_KNOWN` at the end of a chain."""
        ends = np.append(self.start_time[1:], 0) if len(self) else self.start_time
        return np.where(self.last_of_entity, STILL_KNOWN, ends)

    def take(self, numbers: Array) -> Segments:
        """The segments with these numbers, which must ascend."""
        lengths = self.lengths[numbers]
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        rows = np.arange(bounds[-1]) + np.repeat(self.bounds[:-1][numbers] - bounds[:-1], lengths)
        deltas = replace(
            self.deltas.take(rows), entity=np.repeat(np.arange(len(numbers)), lengths), entity_count=len(numbers)
        )
        return Segments(
            entity=self.entity[numbers], start_time=self.start_time[numbers], start_row=self.start_row[numbers],
            settled=self.settled[numbers], base=self.base.take(numbers), bounds=bounds, deltas=deltas,
            known_from=self.known_from[rows], known_to=self.known_to[rows], refusal=self.refusal[rows],
            delta_ids=None if self.delta_ids is None else self.delta_ids.take(pa.array(rows)),
            parents=None if self.parents is None else self.parents.take(pa.array(rows)),
        )  # fmt: skip

    @classmethod
    def empty(cls, dtype: npt.DTypeLike, dims: int | None, *, ids: bool = False) -> Segments:
        """An empty set of segments, for vectors of `dtype` and length `dims`."""
        empty = np.zeros(0, np.int64)
        text = pa.array([], pa.string()) if ids else None
        deltas = DeltaBatch.from_columns(
            entity_count=0, entity=[], event_time=[], row_id=[], op=[], offsets=[0], values=[], dtype=dtype, dims=dims
        )
        return cls(
            empty, empty, empty, empty, States.absent(0, dtype), np.zeros(1, np.int64), deltas, empty, empty,
            np.zeros(0, np.uint8), text, text,
        )  # fmt: skip


def first_segments(entities: Array, dtype: npt.DTypeLike) -> tuple[Array, Array, Array, States]:
    """The columns `start_time`, `start_row`, `settled` and `base` of the first segments of chains."""
    count = len(entities)
    none = np.full(count, NO_DELTA, np.int64)
    return none, none.copy(), np.full(count, ALWAYS, np.int64), States.absent(count, dtype)
