"""Rows and chunks: N rows of one entity in dense columns.

A row has a row id (unique, totally ordered), one time per timeline and a value, or null, per component. A row without
timelines is *static*. A chunk has

- one entity, rows in ascending row id,
- the same set of timelines on every row: one int64 column each, with its tight `[min, max]` and with a flag that its
  times never decrease in row-id order (`is_sorted`),
- one datatype per component (null cells have none): one value column and one validity column each. A component whose
  cells are all null is absent.

Cost: building from columns is vectorised, O(rows) with no Python loop; building from rows loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.checks import INT64_MAX, INT64_MIN
from spark_jobs.engine.chunks.errors import MixedDatatypes, MixedTimelines
from spark_jobs.engine.chunks.rows import Row


@dataclass(frozen=True, slots=True, eq=False)
class TimeColumn:
    """The times of a chunk's rows on one timeline, in row-id order; there is at least one row."""

    times: np.ndarray
    is_sorted: bool
    min: int
    max: int

    @classmethod
    def of(cls, times: np.ndarray) -> TimeColumn:
        """The column of these int64 times (at least one)."""
        is_sorted = bool((times[1:] >= times[:-1]).all())
        if is_sorted:
            return cls(times, True, int(times[0]), int(times[-1]))
        return cls(times, False, int(times.min()), int(times.max()))


@dataclass(frozen=True, slots=True, eq=False)
class ComponentColumn:
    """The values of one component, in row-id order; `valid` is False where a row has no value."""

    datatype: str
    values: np.ndarray
    valid: np.ndarray
    all_valid: bool

    @classmethod
    def of(cls, datatype: str, values: np.ndarray, valid: np.ndarray | None = None) -> ComponentColumn:
        """The column of these values; `valid` may be left out when every row has one."""
        if valid is None:
            return cls(datatype, values, np.ones(len(values), dtype=bool), True)
        return cls(datatype, values, valid, bool(valid.all()))

    def take(self, rows: np.ndarray | slice) -> ComponentColumn:
        """The column of these rows only."""
        return ComponentColumn.of(self.datatype, self.values[rows], None if self.all_valid else self.valid[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """N rows of one entity in dense columns; immutable.

    Build a chunk with `from_rows` or `from_columns`. They check everything that a chunk guarantees except the order of
    row ids: the store refuses a chunk whose row ids do not ascend, after it has looked at the chunk's id. Until then
    the rows keep the order in which they were given. `is_sorted`, `split` and `dedupe_latest` refer to that order;
    queries order rows by (time, row id) in any case.

    Args:
        has_ascending_rows: True if every row id is greater than the one before it.
        size_bytes: the sum of the rows' sizes, without overhead.
    """

    id: str
    entity: str
    row_ids: np.ndarray
    row_bytes: np.ndarray
    timelines: Mapping[str, TimeColumn]
    components: Mapping[str, ComponentColumn]
    has_ascending_rows: bool
    size_bytes: int

    @classmethod
    def from_rows(cls, chunk_id: str, entity: str, rows: Sequence[Row]) -> Chunk:
        """The chunk of these rows, in the order given.

        Raises:
            MixedTimelines: rows have different sets of timelines.
            MixedDatatypes: the non-null cells of a component have more than one datatype.
            ParameterError: a name is no string, or something else than rows is among the rows.
        """
        checks.check_names(chunk_id=chunk_id, entity=entity)
        rows = _checked_rows(rows)
        datatypes = _checked_datatypes(chunk_id, rows)
        names = rows[0].times if rows else ()
        return cls._of_columns(
            chunk_id,
            entity,
            id_column([row.row_id for row in rows]),
            np.array([row.size_bytes for row in rows], dtype=np.int64),
            {name: np.array([row.times[name] for row in rows], dtype=np.int64) for name in names},
            {name: _value_column(name, datatype, rows) for name, datatype in datatypes.items()},
        )

    @classmethod
    def from_columns(
        cls,
        chunk_id: str,
        entity: str,
        *,
        row_ids: np.ndarray,
        times: Mapping[str, np.ndarray],
        components: Mapping[str, ComponentColumn],
        row_bytes: np.ndarray | None = None,
    ) -> Chunk:
        """The chunk of these columns, all of the same length, in the order given, less components without a value.

        Raises:
            ParameterError: columns differ in length or are not of whole numbers (row ids, times and sizes), or a name
                is no string.
        """
        checks.check_names(chunk_id=chunk_id, entity=entity)
        checks.check_mapping(times, "times")
        checks.check_mapping(components, "components")
        row_ids = _checked_ids(row_ids)
        rows = len(row_ids)
        columns = {name: checks.int64_column(column, rows, "the times on {!r}", name) for name, column in times.items()}
        for name, component in components.items():
            checks.check_name(component.datatype, "the datatype of {!r}", name)
            checks.column_of(component.values, rows, "the values of {!r}", name)
            checks.column_of(component.valid, rows, "the validity of {!r}", name)
        if row_bytes is None:
            sizes = np.broadcast_to(np.int64(1), rows)
        else:
            sizes = checks.int64_column(row_bytes, rows, "the sizes of the rows", least=0)
        return cls._of_columns(chunk_id, entity, row_ids, sizes, columns, components)

    @classmethod
    def _of_columns(
        cls,
        chunk_id: str,
        entity: str,
        row_ids: np.ndarray,
        row_bytes: np.ndarray,
        times: Mapping[str, np.ndarray],
        components: Mapping[str, ComponentColumn],
    ) -> Chunk:
        return cls(
            id=chunk_id,
            entity=entity,
            row_ids=row_ids,
            row_bytes=row_bytes,
            timelines={name: TimeColumn.of(column) for name, column in times.items()} if len(row_ids) else {},
            components={name: column for name, column in components.items() if column.valid.any()},
            has_ascending_rows=bool((row_ids[1:] > row_ids[:-1]).all()),
            size_bytes=_exact_sum(row_bytes),
        )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_ids)

    @property
    def is_static(self) -> bool:
        """True if the rows have no times."""
        return not self.timelines

    @property
    def is_sorted(self) -> bool:
        """True if, on every timeline, the times never decrease in the order of row ids."""
        return all(column.is_sorted for column in self.timelines.values())

    @property
    def first_row_id(self) -> int:
        """The least row id; the chunk has at least one row."""
        return int(self.row_ids[0] if self.has_ascending_rows else self.row_ids.min())

    def time_range(self, timeline: str, component: str) -> tuple[int, int]:
        """Tight `[min, max]`, both inclusive, of the times of the rows that have a value of this component."""
        column, values = self.timelines[timeline], self.components[component]
        if values.all_valid:
            return column.min, column.max
        times = column.times[values.valid]
        return int(times.min()), int(times.max())

    def num_events(self, component: str) -> int:
        """Number of rows that have a value of this component."""
        column = self.components.get(component)
        return 0 if column is None else int(column.valid.sum())

    def greatest_row(self, component: str) -> int:
        """Index of the row with the greatest id that has a value of this component, which must be present."""
        rows = np.flatnonzero(self.components[component].valid)
        return int(rows[-1] if self.has_ascending_rows else rows[self.row_ids[rows].argmax()])

    def greatest_row_id(self, component: str) -> int:
        """The greatest row id that has a value of this component, which must be present."""
        return int(self.row_ids[self.greatest_row(component)])

    def take(self, rows: np.ndarray | slice, chunk_id: str) -> Chunk:
        """The chunk of these rows (indices, mask or slice), in that order, under another id."""
        return Chunk._of_columns(
            chunk_id,
            self.entity,
            self.row_ids[rows],
            self.row_bytes[rows],
            {name: column.times[rows] for name, column in self.timelines.items()},
            {name: column.take(rows) for name, column in self.components.items()},
        )


def id_column(row_ids: Iterable[int]) -> np.ndarray:
    """Row ids as an int64 column, or as a column of Python integers if one of them needs more than 64 signed bits."""
    ids = [int(row_id) for row_id in row_ids]
    if all(INT64_MIN <= row_id <= INT64_MAX for row_id in ids):
        return np.array(ids, dtype=np.int64)
    return np.array(ids, dtype=object)


def concat_values(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Columns one after another; as Python objects if their types differ, because numpy would round integers."""
    if len({column.dtype for column in columns}) > 1:
        columns = [column.astype(object) for column in columns]
    return np.concatenate(columns)


def time_then_id_order(times: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
    """Indices that put rows into (time, row id) order."""
    by_id = np.argsort(row_ids, kind="stable")
    return by_id[np.argsort(times[by_id], kind="stable")]


def _checked_datatypes(chunk_id: str, rows: Sequence[Row]) -> dict[str, str]:
    for row in rows:
        if row.times.keys() != rows[0].times.keys():
            raise MixedTimelines(
                expected=f"timelines {sorted(rows[0].times)} on every row of chunk {chunk_id!r}",
                found=f"{sorted(row.times)} on row {row.row_id}",
                next_step="put rows with other timelines into a chunk of their own",
            )
    datatypes: dict[str, str] = {}
    for row in rows:
        for component, datatype in row.datatypes().items():
            if datatypes.setdefault(component, datatype) != datatype:
                raise MixedDatatypes(
                    expected=f"{datatypes[component]} in every cell of {component!r} of chunk {chunk_id!r}",
                    found=f"{datatype} in row {row.row_id}",
                    next_step="put rows with another datatype into a chunk of their own",
                    component=component,
                )
    return datatypes


def _checked_rows(rows: object) -> list[Row]:
    listed = list(rows) if isinstance(rows, Iterable) else [rows]
    for row in listed:
        checks.check_kind(row, Row, "a row of a chunk")
    return listed


def _checked_ids(row_ids: object) -> np.ndarray:
    """Row ids in the form that `id_column` returns."""
    if isinstance(row_ids, np.ndarray) and row_ids.ndim == 1:
        if row_ids.dtype == np.int64:
            return row_ids
        return id_column(checks.whole_number(row_id, "a row id") for row_id in row_ids)
    return checks.column_of(row_ids, 0, "the row ids")


def _exact_sum(sizes: np.ndarray) -> int:
    """The exact sum, even if it needs more than 64 bits; no size is below 0."""
    if len(sizes) * int(sizes.max(initial=0)) > INT64_MAX:
        return sum(sizes.tolist())
    return int(sizes.sum())


def _value_column(component: str, datatype: str, rows: Sequence[Row]) -> ComponentColumn:
    values = np.empty(len(rows), dtype=object)
    for index, row in enumerate(rows):
        values[index] = row.data.get(component)
    return ComponentColumn.of(datatype, values, np.array([value is not None for value in values], dtype=bool))
