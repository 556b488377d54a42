"""The meaning of a source's rows to its entities: each mode as a pure function from rows to deltas.

============  =======================================================================================================
mode          a row …
============  =======================================================================================================
`add`         adds its components to those of the entity; an absent value adds 0
`diff`        is the whole state (Dense), in which null is a value; only its changes of the row before are stored
`upsert`      assigns the components in which it is not null, and leaves the others as they are
`operations`  has columns with its operation, its indices and its values
============  =======================================================================================================

A row whose column `gone` is true is a Delete; the next row begins a new vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.operations import DeltaColumns, delta_batch
from spark_jobs.engine.deltas.ops import Op
from spark_jobs.engine.deltas.packing import undecided_parents
from spark_jobs.engine.deltas.pooling import PooledDeltas
from spark_jobs.engine.deltas.tables import Keys, component_matrix, one_chunk, required_column, ticks

Array = npt.NDArray[Any]
Mode = Literal["add", "diff", "upsert", "operations"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The mapping from rows to deltas of vectors of `dtype`.

    `components` maps a name to a column, or to a constant for every row. It is None for vectors without names; these
    have the length `length` (None: Create and Dense decide it). `operations` names the columns of that mode.
    `sequence` names a column of texts that orders rows of the same event time; row ids decide between equal texts.
    """

    mode: Mode
    dtype: str
    components: Mapping[str, str | int | float] | None = None
    length: int | None = None
    operations: DeltaColumns | None = None
    sequence: str | None = None

    @property
    def dims(self) -> int | None:
        """The length of the vectors; None if it is unknown."""
        return self.length if self.components is None else len(self.components)

    @property
    def names(self) -> list[str] | None:
        """The names of the components; None if they have none."""
        return None if self.components is None else list(self.components)

    @property
    def full_rows(self) -> bool:
        """True if every row has the whole vector."""
        return self.mode == "diff"

    @property
    def with_parents(self) -> bool:
        """True if rows may declare a parent."""
        return self.operations is not None and self.operations.parent is not None


def changes_of(rows: pa.Table, entities: pa.Array, meaning: Meaning) -> PooledDeltas:
    """The rows as deltas of the `entities`.

    `rows` has the columns `entity`, `event_time`, `time` (at which it became visible), `row_id`, `diff`, and those that
    `meaning` names. If any row may be a Delete, it also has `gone` (boolean).
    """
    places = pc.index_in(required_column(rows, "entity"), value_set=entities)
    codes = places.to_numpy(zero_copy_only=False).astype(np.int64)
    none = np.zeros(0, np.int64)
    if meaning.operations is not None:
        keys = Keys(entities, codes, none)
        batch = delta_batch(rows, meaning.operations, keys, dtype=meaning.dtype, dims=meaning.dims)
    else:
        batch = _from_components(rows, codes, len(entities), meaning)
    if meaning.sequence is not None:
        batch = replace(batch, sequences=required_column(rows, meaning.sequence))
    texts: dict[str, pa.Array] = {}
    if meaning.with_parents and meaning.operations is not None:
        columns = {"delta_ids": meaning.operations.delta_id, "parents": meaning.operations.parent}
        texts = {name: one_chunk(rows, str(column)).cast(pa.string()) for name, column in columns.items()}
        batch.parent[:] = undecided_parents(texts["parents"], len(batch))
    return PooledDeltas(batch, ticks(required_column(rows, "time")), ticks(required_column(rows, "diff")), **texts)


def _from_components(rows: pa.Table, codes: Array, entity_count: int, meaning: Meaning) -> DeltaBatch:
    values, nulls = component_matrix(rows, meaning.components or {}, np.dtype(meaning.dtype))
    gone = _flags(rows, "gone")
    given = np.ones_like(nulls) if meaning.mode != "upsert" else ~nulls
    if meaning.mode == "add":
        nulls = np.zeros_like(nulls)
    given[gone] = False
    op = {"add": Op.ADD, "diff": Op.DENSE, "upsert": Op.UPSERT}[meaning.mode]
    row, component = np.nonzero(given)
    return DeltaBatch.from_columns(
        entity_count=entity_count, entity=codes, event_time=ticks(required_column(rows, "event_time")),
        row_id=ticks(required_column(rows, "row_id")), op=np.where(gone, Op.DELETE, op),
        offsets=np.concatenate(([0], np.cumsum(given.sum(axis=1, dtype=np.int64)))), indices=component,
        values=values[row, component], nulls=nulls[row, component], dtype=meaning.dtype, dims=meaning.dims,
    )  # fmt: skip


def _flags(rows: pa.Table, name: str) -> Array:
    if name not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return pc.fill_null(one_chunk(rows, name), False).to_numpy(zero_copy_only=False)
