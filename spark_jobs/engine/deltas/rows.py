"""The rows of a partition, prepared for folding: typed component columns, without retracted rows, in chain order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.deltas.ops import DeltaError, DuplicateDeltaError, MalformedDeltasError
from spark_jobs.engine.deltas.ordering import in_chain_order
from spark_jobs.engine.deltas.tables import Keys, component_matrix, encode_entities, one_chunk, required_column, ticks

Array = npt.NDArray[Any]


class RowsNeededError(DeltaError):
    """The prior state can't absorb a row or its retraction. Fact: `entities`, to be folded from all their rows."""

    code = "rows_needed"


class NonFiniteError(DeltaError):
    """A component is NaN or infinite; landing should have refused that row. Facts: `component`, `row_id`."""

    code = "non_finite"


@dataclass(frozen=True, slots=True)
class Rows:
    """`n` rows with `k` components: `values` and `nulls` are (n, k). `count` is the sum of the diffs of a row."""

    keys: Keys
    entity: Array
    event_time: Array
    row_id: Array
    values: Array
    nulls: Array
    count: Array
    time_type: pa.DataType

    def __len__(self) -> int:
        return len(self.entity)

    def take(self, rows: Array) -> Rows:
        """The rows at these positions, in that order."""
        columns = ("entity", "event_time", "row_id", "values", "nulls", "count")
        return Rows(keys=self.keys, time_type=self.time_type, **{name: getattr(self, name)[rows] for name in columns})


def read_rows(
    table: pa.Table,
    *,
    entity: str,
    time: str,
    row_id: str,
    components: Mapping[str, str | int | float],
    prior: pa.Table | None,
    diff: str | None,
) -> Rows:
    """Read rows in chain order (entity, event_time, row_id), each once with the sum of its diffs, less those of sum 0.

    `components` maps a component to its column, or to a constant for every row. All components have the same type:
    int64 if all are integers, float32 if all are float32, else float64.
    """
    keys = encode_entities(required_column(table, entity), None if prior is None else one_chunk(prior, "entity"))
    values, nulls = _component_matrix(table, components)
    ids = ticks(required_column(table, row_id))
    _refuse_non_finite(values, nulls, ids, list(components))
    count = np.ones(len(table), np.int64) if diff is None else ticks(required_column(table, diff))
    rows = Rows(
        keys=keys, entity=keys.rows, event_time=ticks(required_column(table, time)), row_id=ids, values=values,
        nulls=nulls, count=count, time_type=table.schema.field(time).type,
    )  # fmt: skip
    order, _, _ = in_chain_order(rows.entity, rows.event_time, rows.row_id, len(keys))
    return _consolidate(rows.take(order))


def refuse_retractions(rows: Rows) -> None:
    """Raise RowsNeededError if a row of the prior state is taken back, for modes that can only fold from the rows."""
    need_rows(rows, np.unique(rows.entity[rows.count < 0]))


def need_rows(rows: Rows, codes: Array) -> None:
    """Raise RowsNeededError for these entities, if there are any."""
    if len(codes):
        entities = rows.keys.values.take(pa.array(codes)).to_pylist()
        raise RowsNeededError(
            expected="retractions that the prior state can absorb",
            found=f"{len(entities)} entities, the first {entities[0]!r}, whose state depends on rows that are not here",
            next_step="fold these entities from all their rows, without a prior state",
            entities=entities,
        )


def value_type(table: pa.Table, components: Mapping[str, str | int | float] | Sequence[str]) -> np.dtype[Any]:
    """The common type of all components in a vector."""
    sources = components.values() if isinstance(components, Mapping) else components
    types = [one_chunk(table, s).type if isinstance(s, str) else pa.scalar(s).type for s in sources]
    if all(pa.types.is_integer(kind) for kind in types):
        return np.dtype(np.int64)
    if all(pa.types.is_float32(kind) for kind in types):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def _component_matrix(table: pa.Table, components: Mapping[str, str | int | float]) -> tuple[Array, Array]:
    if not components:
        raise MalformedDeltasError(expected="at least one component", found="none")
    return component_matrix(table, components, value_type(table, components))


def _refuse_non_finite(values: Array, nulls: Array, row_ids: Array, names: list[str]) -> None:
    if values.dtype.kind != "f":
        return
    where = np.argwhere(~np.isfinite(values) & ~nulls)
    if len(where):
        row, component = where[0]
        raise NonFiniteError(
            expected="finite components",
            found=f"{values[row, component]} in {names[component]!r} of row {row_ids[row]}",
            next_step="quarantine such rows when they land",
            component=names[component],
            row_id=int(row_ids[row]),
        )


def _consolidate(rows: Rows) -> Rows:
    """Add up the diffs of equal rows. Rows and result are in chain order, a retraction before its replacement.

    A row may be restated under its own id with another content, so equal means equal in every column.
    """
    begins = _differs(rows.entity, rows.event_time, rows.row_id)
    position = np.cumsum(begins) - 1
    contested = np.bincount(position)[position] > 1 if len(rows) else begins
    if not contested.any():
        return rows.take(np.flatnonzero(rows.count))
    content = [*rows.nulls.T, *rows.values.view(f"u{rows.values.itemsize}").T]
    unclear = np.flatnonzero(contested)
    order = unclear[np.lexsort((*(column[unclear] for column in content), position[unclear]))]
    starts = np.flatnonzero(_differs(position[order], *(column[order] for column in content)))
    net = np.add.reduceat(rows.count[order], starts)
    count = np.where(contested, 0, rows.count)
    count[order[starts]] = net
    _refuse_repeated(rows, np.flatnonzero(np.bincount(position, weights=np.maximum(count, 0))[position] > 1))
    kept = np.flatnonzero(count)
    return replace(rows, count=count).take(kept[np.lexsort((count[kept], position[kept]))])


def _differs(*columns: Array) -> Array:
    """Mask of the rows that differ from the row before in any of the columns."""
    begins = np.ones(len(columns[0]), dtype=np.bool_)
    begins[1:] = False
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def _refuse_repeated(rows: Rows, repeated: Array) -> None:
    if len(repeated):
        row = repeated[0]
        entity = rows.keys.values[int(rows.entity[row])].as_py()
        raise DuplicateDeltaError(
            expected="one row per (entity, event_time, row_id)",
            found=f"row {rows.row_id[row]} of entity {entity!r} more than once",
            next_step="give every row its own row_id",
            row_id=int(rows.row_id[row]),
        )
