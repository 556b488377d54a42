"""States of many entities as columns: the results of folding chains, and the contents of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.ops import Status

NO_DELTA = np.iinfo(np.int64).min
"""The `event_time` and `row_id` of a state onto which no delta was folded."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class EntityState:
    """The state of one entity. `vector` has None for a null, and for a component never seen; `seen` is False there."""

    status: Status
    vector: tuple[float | int | None, ...]
    seen: tuple[bool, ...]
    event_time: int | None
    at_delta: int | None
    delta_count: int


@dataclass(frozen=True, slots=True)
class States:
    """States of the entities `0 … n - 1`; entity `e` owns the cells `offsets[e]:offsets[e + 1]`.

    `values` is 0 for a component that is null or unseen. `event_time` and `row_id` are those of the last applied delta
    (`NO_DELTA` if there is none). `delta_count` is the number of applied deltas since the beginning of the chain.
    """

    status: Array
    offsets: Array
    values: Array
    seen: Array
    nulls: Array
    event_time: Array
    row_id: Array
    delta_count: Array

    def __len__(self) -> int:
        return len(self.status)

    @classmethod
    def absent(cls, entity_count: int, dtype: npt.DTypeLike) -> States:
        """The states of `entity_count` absent entities."""
        cells = np.zeros(0, dtype=np.bool_)
        return cls(
            status=np.full(entity_count, Status.ABSENT, dtype=np.uint8),
            offsets=np.zeros(entity_count + 1, dtype=np.int64),
            values=np.zeros(0, dtype=dtype),
            seen=cells,
            nulls=cells.copy(),
            event_time=np.full(entity_count, NO_DELTA, dtype=np.int64),
            row_id=np.full(entity_count, NO_DELTA, dtype=np.int64),
            delta_count=np.zeros(entity_count, dtype=np.int64),
        )

    @property
    def dims(self) -> Array:
        """The vector length per entity; 0 for an entity that is not live."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def nbytes(self) -> int:
        """The size in bytes of the columns of the entities that exist or existed."""
        per_entity = sum(getattr(self, name).itemsize for name in ("status", "event_time", "row_id", "delta_count"))
        cells = self.values.nbytes + self.seen.nbytes + self.nulls.nbytes
        return int(np.count_nonzero(self.status)) * (per_entity + self.offsets.itemsize) + cells

    def entity(self, code: int) -> EntityState:
        """The state of one entity in Python values."""
        cells = slice(int(self.offsets[code]), int(self.offsets[code + 1]))
        has_value = self.seen[cells] & ~self.nulls[cells]
        folded = self.delta_count[code] > 0
        return EntityState(
            status=Status(int(self.status[code])),
            vector=tuple(v if ok else None for v, ok in zip(self.values[cells].tolist(), has_value, strict=True)),
            seen=tuple(self.seen[cells].tolist()),
            event_time=int(self.event_time[code]) if folded else None,
            at_delta=int(self.row_id[code]) if folded else None,
            delta_count=int(self.delta_count[code]),
        )

    def same_bits(self, other: States) -> Array:
        """Mask of the entities whose states are equal bit for bit, including the last delta and the count."""
        equal = self.dims == other.dims
        for name in ("status", "event_time", "row_id", "delta_count"):
            equal &= getattr(self, name) == getattr(other, name)
        codes = np.flatnonzero(equal)
        mine, theirs = self._cells_of(codes), other._cells_of(codes)
        bits = f"u{self.values.itemsize}"
        differs = self.values.view(bits)[mine] != other.values.view(bits)[theirs]
        differs |= (self.seen[mine] != other.seen[theirs]) | (self.nulls[mine] != other.nulls[theirs])
        equal[np.repeat(codes, self.dims[codes])[differs]] = False
        return equal

    def take(self, codes: Array) -> States:
        """The states of these entities, in this order; an entity may occur several times."""
        cells = self._cells_of(codes)
        names = ("status", "event_time", "row_id", "delta_count")
        return States(
            offsets=np.concatenate(([0], np.cumsum(self.dims[codes]))),
            values=self.values[cells],
            seen=self.seen[cells],
            nulls=self.nulls[cells],
            **{name: getattr(self, name)[codes] for name in names},
        )

    def concat(self, other: States) -> States:
        """The states of both, one after the other."""
        columns = ("status", "values", "seen", "nulls", "event_time", "row_id", "delta_count")
        return States(
            offsets=np.concatenate((self.offsets, other.offsets[1:] + self.offsets[-1])),
            **{name: np.concatenate((getattr(self, name), getattr(other, name))) for name in columns},
        )

    def _cells_of(self, codes: Array) -> Array:
        lengths = self.dims[codes]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        return np.arange(total) + np.repeat(self.offsets[:-1][codes] - (ends - lengths), lengths)
