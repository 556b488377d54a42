"""Deltas of many entities as columns.

Rows may be in any order. The order of a chain is always (event_time, row_id), or (event_time, sequence, row_id) if the
source has a sequence. Payloads are ragged: row `i` owns the cells `offsets[i]:offsets[i + 1]` of `indices`, `values`
and `nulls`. A batch has one value type: float32, float64 or int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from spark_jobs.engine.columns.sequences import tie_places
from spark_jobs.engine.deltas.ops import MalformedDeltasError, Op, Refusal

NO_PARENT = np.iinfo(np.int64).min
"""The value in the column `parent` for a delta that declares no parent."""

VALUE_TYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64))
"""The types that a vector may have."""

Array = npt.NDArray[Any]

_PER_CELL = ("indices", "values", "nulls")
_LONG_RUNS = 4
"""The least number of cells per row for which cells are copied run by run, not by their places.

Copying run by run is four times as fast with 8 cells per row, and three times as slow with 1."""
_PER_ROW = ("entity", "event_time", "row_id", "op", "scalar", "transform", "parent", "refusal")


@dataclass(frozen=True, slots=True)
class Delta:
    """One delta, for callers that have a few of them; `DeltaBatch.from_deltas` makes columns of it.

    `values` are the payload (None is null). `indices` are for Sparse, Add and Upsert, `scalar` is for Scale and Offset,
    `transform` names a registered transform. `parent` is the `row_id` of a delta that must have been applied before; if
    the chain has several deltas of that id, one of them suffices. `sequence` orders deltas of the same event time; row
    ids decide between equal sequences.
    """

    entity: str
    event_time: int
    row_id: int
    op: Op
    values: Sequence[float | int | None] = ()
    indices: Sequence[int] = ()
    scalar: float | int = 0
    transform: str | None = None
    parent: int | None = None
    sequence: str = ""


@dataclass(frozen=True, slots=True)
class DeltaBatch:
    """Columns of `n` deltas with `m` payload cells over entities numbered `0 … entity_count - 1`.

    `dims` is the declared vector length (named components have one), or None if Create and Dense decide it per entity.
    `refusal` is the `Refusal` that the row alone has shown already; every chain skips such deltas. `identity` is the
    number by which `parent` names a delta; rows with the same delta id have the same identity. If it is None, the row
    id is the identity. `sequences` are texts that order deltas of the same event time, row ids deciding between equal
    texts; if it is None, row ids alone order them.
    """

    entity_count: int
    entity: Array
    event_time: Array
    row_id: Array
    op: Array
    offsets: Array
    indices: Array
    values: Array
    nulls: Array
    scalar: Array
    transform: Array
    parent: Array
    refusal: Array
    dims: int | None = None
    transform_names: tuple[str, ...] = field(default=())
    identity: Array | None = None
    sequences: pa.Array | None = None

    def __post_init__(self) -> None:
        problems = [*self._length_problems(), *self._content_problems()]
        if problems:
            raise MalformedDeltasError(
                expected="columns that agree", found="; ".join(problems), next_step="build the batch with from_columns"
            )

    def __len__(self) -> int:
        return len(self.entity)

    def _length_problems(self) -> list[str]:
        rows, cells = len(self.entity), len(self.values)
        wanted = dict.fromkeys(_PER_ROW, rows)
        wanted |= {"indices": cells, "nulls": cells, "offsets": rows + 1}
        wanted |= {name: rows for name in ("identity", "sequences") if getattr(self, name) is not None}
        lengths = {name: len(getattr(self, name)) for name in wanted}
        return [
            f"{name} has {lengths[name]} of {want} values" for name, want in wanted.items() if lengths[name] != want
        ]

    def _content_problems(self) -> list[str]:
        problems = []
        if self.values.dtype not in VALUE_TYPES or self.scalar.dtype != self.values.dtype:
            problems.append(f"values of {self.values.dtype} with scalars of {self.scalar.dtype}")
        if len(self.entity) and not 0 <= self.entity.min() <= self.entity.max() < self.entity_count:
            problems.append(f"entity codes outside 0 … {self.entity_count - 1}")
        bounds = self.offsets
        if len(bounds) and (bounds[0] != 0 or bounds[-1] != len(self.values) or np.any(bounds[1:] < bounds[:-1])):
            problems.append("offsets that do not ascend over the cells")
        return problems

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of every value: float32, float64 or int64."""
        return self.values.dtype

    @classmethod
    def from_columns(
        cls,
        *,
        entity_count: int,
        entity: npt.ArrayLike,
        event_time: npt.ArrayLike,
        row_id: npt.ArrayLike,
        op: npt.ArrayLike,
        offsets: npt.ArrayLike,
        values: npt.ArrayLike,
        dtype: npt.DTypeLike,
        indices: npt.ArrayLike | None = None,
        nulls: npt.ArrayLike | None = None,
        scalar: npt.ArrayLike | None = None,
        transform: npt.ArrayLike | None = None,
        parent: npt.ArrayLike | None = None,
        refusal: npt.ArrayLike | None = None,
        dims: int | None = None,
        transform_names: Sequence[str] = (),
    ) -> DeltaBatch:
        """Build a batch; a column that is left out has neutral values (no nulls, no scalars, no parents …)."""
        codes = np.ascontiguousarray(entity, dtype=np.int64)
        cells = np.ascontiguousarray(values, dtype=dtype)
        rows = len(codes)

        def column(given: npt.ArrayLike | None, length: int, default: int, kind: npt.DTypeLike) -> Array:
            return np.full(length, default, dtype=kind) if given is None else np.ascontiguousarray(given, dtype=kind)

        return cls(
            entity_count=entity_count,
            entity=codes,
            event_time=column(event_time, rows, 0, np.int64),
            row_id=column(row_id, rows, 0, np.int64),
            op=column(op, rows, 0, np.uint8),
            offsets=column(offsets, rows + 1, 0, np.int64),
            indices=column(indices, len(cells), 0, np.int32),
            values=cells,
            nulls=column(nulls, len(cells), 0, np.bool_),
            scalar=column(scalar, rows, 0, dtype),
            transform=column(transform, rows, -1, np.int32),
            parent=column(parent, rows, NO_PARENT, np.int64),
            refusal=column(refusal, rows, Refusal.NONE, np.uint8),
            dims=dims,
            transform_names=tuple(transform_names),
        )

    @classmethod
    def from_deltas(
        cls, deltas: Sequence[Delta], *, entities: Mapping[str, int], dtype: npt.DTypeLike, dims: int | None = None
    ) -> DeltaBatch:
        """Build a batch from single deltas; `entities` numbers the entities.

        A delta whose indices and values differ in length gets a refusal, and stays in the batch."""
        names = sorted({delta.transform for delta in deltas if delta.transform is not None})
        whole = (Op.CREATE, Op.DENSE)
        unequal = [d.op not in whole and len(d.indices) != len(d.values) for d in deltas]
        payloads = [() if wrong else tuple(d.values) for d, wrong in zip(deltas, unequal, strict=True)]
        indices = [
            () if wrong else tuple(range(len(d.values)) if d.op in whole else d.indices)
            for d, wrong in zip(deltas, unequal, strict=True)
        ]
        cells = [cell for payload in payloads for cell in payload]
        sequences = [delta.sequence for delta in deltas]
        batch = cls.from_columns(
            entity_count=len(entities),
            entity=[entities[delta.entity] for delta in deltas],
            event_time=[delta.event_time for delta in deltas],
            row_id=[delta.row_id for delta in deltas],
            op=[int(delta.op) for delta in deltas],
            offsets=np.concatenate(([0], np.cumsum([len(payload) for payload in payloads], dtype=np.int64))),
            values=[0 if cell is None else cell for cell in cells],
            nulls=[cell is None for cell in cells],
            indices=[index for row in indices for index in row],
            scalar=[delta.scalar for delta in deltas],
            transform=[-1 if delta.transform is None else names.index(delta.transform) for delta in deltas],
            parent=[NO_PARENT if delta.parent is None else delta.parent for delta in deltas],
            refusal=[Refusal.UNEQUAL_LISTS if wrong else Refusal.NONE for wrong in unequal],
            dtype=dtype,
            dims=dims,
            transform_names=names,
        )
        return replace(batch, sequences=pa.array(sequences, pa.string())) if any(sequences) else batch

    def concat(self, other: DeltaBatch) -> DeltaBatch:
        """The deltas of both batches, which must be over the same entities, value type, length and transforms."""
        shared = ("entity_count", "dtype", "dims", "transform_names")
        differ = [name for name in shared if getattr(self, name) != getattr(other, name)]
        if differ:
            raise MalformedDeltasError(expected="two batches of one kind", found=f"other {', '.join(differ)}")
        if not len(self) or not len(other):
            return self if len(self) else other
        columns = (*_PER_ROW, "indices", "values", "nulls")
        both = None
        if self.identity is not None or other.identity is not None:
            both = np.concatenate((self.identities, other.identities))
        texts = (self.sequences, other.sequences)
        return DeltaBatch(
            entity_count=self.entity_count,
            offsets=np.concatenate((self.offsets, other.offsets[1:] + self.offsets[-1])),
            dims=self.dims,
            transform_names=self.transform_names,
            identity=both,
            sequences=None if texts == (None, None) else pa.concat_arrays(texts),
            **{name: np.concatenate((getattr(self, name), getattr(other, name))) for name in columns},
        )

    def named_like(self, other: DeltaBatch) -> DeltaBatch:
        """The same deltas with the transforms of both batches as their names, those of `other` first."""
        names = tuple(dict.fromkeys((*other.transform_names, *self.transform_names)))
        codes = np.array([names.index(name) for name in self.transform_names] + [-1], dtype=np.int32)
        return replace(self, transform=codes[self.transform], transform_names=names)

    @property
    def identities(self) -> Array:
        """Per delta, the identity by which another delta names it as its `parent`."""
        return self.row_id if self.identity is None else self.identity

    @property
    def ties(self) -> Array:
        """Numbers that order deltas of the same event time: their row ids, or their places by (sequence, row id)."""
        return self.row_id if self.sequences is None else tie_places(self.sequences, self.row_id)

    @property
    def unparted(self) -> Array:
        """Numbers per delta; a checkpoint never parts deltas with the same event time and number.

        Without sequences, these are the deltas of the same row. With sequences, all deltas of the same event time: a
        checkpoint does not contain the sequence of the last delta before it."""
        return self.row_id if self.sequences is None else np.zeros(len(self), np.int64)

    @property
    def declares_parents(self) -> bool:
        """True if any delta names a parent."""
        return bool(np.any(self.parent != NO_PARENT))

    def with_applied_parents(self, chain: Array, applied: Iterable[tuple[int, int]]) -> DeltaBatch:
        """The same deltas, less the declared parents that are among `applied`.

        `applied` are (chain, identity) of deltas that were applied before all of these. `chain` is the number of the
        chain of each delta."""
        before = set(applied)
        if not before:
            return self
        keys = zip(chain.tolist(), self.parent.tolist(), strict=True)
        has_parent = np.array([key in before for key in keys], np.bool_)
        return replace(self, parent=np.where(has_parent, NO_PARENT, self.parent))

    @property
    def nbytes(self) -> int:
        """The size of the columns in bytes."""
        return sum(getattr(self, name).nbytes for name in (*_PER_ROW, "offsets", "indices", "values", "nulls"))

    def take(self, rows: Array) -> DeltaBatch:
        """The deltas at the positions `rows` (or where a mask is true), in that order."""
        picked = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        if len(picked) == len(self) and np.array_equal(picked, np.arange(len(self))):
            return self
        begins = self.offsets[:-1][picked]
        lengths = self.offsets[1:][picked] - begins
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        cells: Iterable[Array]
        if bounds[-1] >= _LONG_RUNS * len(picked):
            cells = _runs(begins, bounds, self.indices, self.values, self.nulls)
        else:
            places = np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], lengths)
            cells = (column[places] for column in (self.indices, self.values, self.nulls))
        return DeltaBatch(
            entity_count=self.entity_count,
            offsets=bounds,
            dims=self.dims,
            transform_names=self.transform_names,
            identity=None if self.identity is None else self.identity[picked],
            sequences=None if self.sequences is None else self.sequences.take(pa.array(picked)),
            **{name: getattr(self, name)[picked] for name in _PER_ROW},
            **dict(zip(_PER_CELL, cells, strict=True)),
        )


@njit(cache=True, nogil=True)
def _runs(begins: Array, bounds: Array, indices: Array, values: Array, nulls: Array) -> tuple[Array, Array, Array]:
    """The cells of rows that begin at `begins`, copied run by run to the places `bounds`."""
    size = bounds[-1]
    indices_, values_, nulls_ = np.empty(size, indices.dtype), np.empty(size, values.dtype), np.empty(size, nulls.dtype)
    for row in range(len(begins)):
        away = begins[row] - bounds[row]
        for place in range(bounds[row], bounds[row + 1]):
            cell = place + away
            indices_[place], values_[place], nulls_[place] = indices[cell], values[cell], nulls[cell]
    return indices_, values_, nulls_
