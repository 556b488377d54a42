"""Queries over many chunks: latest-at and range. These functions change no chunk.

A latest-at at `t` looks up the greatest chunk start `s <= t` in the index of its (entity, timeline, component). There
is a row with a value at exactly that time, so the answer is at or after `s`. Only the `k` chunks that overlap `[s, t]`
can have it: O(log n + k).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.checks import INT64_MAX
from spark_jobs.engine.chunks.errors import DifferentDatatypes
from spark_jobs.engine.chunks.index import ChunkCatalog
from spark_jobs.engine.chunks.interval_index import IntervalIndex
from spark_jobs.engine.chunks.model import Chunk, concat_values, time_then_id_order
from spark_jobs.engine.chunks.query import earliest_index, latest_index, range_indices
from spark_jobs.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Latest:
    """One row's value; `time` is None for a static value."""

    row_id: int
    time: int | None
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class RangeAnswer:
    """Rows with a value, by (time, row id), as columns of equal length.

    Args:
        row_ids: row ids.
        times: times; None for a static value.
        values: values; Python objects if the columns of the chunks differ in type.
        datatypes: datatypes of the component in the chunks that the rows come from.
    """

    row_ids: np.ndarray
    times: np.ndarray | None
    values: np.ndarray
    datatypes: frozenset[str]

    def __len__(self) -> int:
        return len(self.row_ids)


def latest(catalog: ChunkCatalog, entity: str, timeline: str, at: int, component: str) -> Latest | None:
    """See `ChunkStore.latest`."""
    checks.check_names(entity=entity, timeline=timeline, component=component)
    at = checks.time(at, "the time asked for")
    static = _static_row(catalog, entity, component)
    if static is not None:
        chunk, index = static
        return Latest(int(chunk.row_ids[index]), None, _scalar(chunk, component, index))
    row = _latest_row(catalog, entity, timeline, at, component)
    if row is None:
        return None
    chunk, index = row
    return Latest(
        int(chunk.row_ids[index]), int(chunk.timelines[timeline].times[index]), _scalar(chunk, component, index)
    )


def range_rows(
    catalog: ChunkCatalog, entity: str, timeline: str, lo: int, hi: int, component: str, *, extended: bool = False
) -> RangeAnswer:
    """See `ChunkStore.range`."""
    checks.check_names(entity=entity, timeline=timeline, component=component)
    lo, hi = checks.time_range((lo, hi), "an end of the range")
    static = _static_row(catalog, entity, component)
    if static is not None:
        chunk, index = static
        one = slice(index, index + 1)
        column = chunk.components[component]
        return RangeAnswer(chunk.row_ids[one], None, column.values[one], frozenset([column.datatype]))
    parts = list(_range_parts(catalog, entity, timeline, lo, hi, component, extended=extended))
    if not parts:
        return RangeAnswer(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, object), frozenset())
    row_ids = np.concatenate([chunk.row_ids[rows] for chunk, rows in parts])
    times = np.concatenate([chunk.timelines[timeline].times[rows] for chunk, rows in parts])
    values = concat_values([chunk.components[component].values[rows] for chunk, rows in parts])
    datatypes = frozenset(chunk.components[component].datatype for chunk, _ in parts)
    if len(parts) == 1:
        return RangeAnswer(row_ids, times, values, datatypes)
    order = time_then_id_order(times, row_ids)
    return RangeAnswer(row_ids[order], times[order], values[order], datatypes)


def range_table(
    catalog: ChunkCatalog, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]
) -> pa.Table:
    """See `ChunkStore.range_query`."""
    asked = checks.names(components, "components")
    answers = {name: range_rows(catalog, entity, timeline, lo, hi, name) for name in asked}
    for name, answer in answers.items():
        if len(answer.datatypes) > 1:
            raise DifferentDatatypes(
                expected=f"one datatype of {name!r} in the range",
                found=f"{sorted(answer.datatypes)}",
                next_step="ask for the ranges before and after the change, or read the rows with `range`",
            )
    static_ids = np.unique(_join([answer.row_ids for answer in answers.values() if answer.times is None]))
    temporal = [answer for answer in answers.values() if answer.times is not None]
    ids, first = np.unique(_join([answer.row_ids for answer in temporal]), return_index=True)
    times = _join([answer.times for answer in temporal if answer.times is not None])[first]
    order = np.argsort(times, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) + len(static_ids)
    total = len(static_ids) + len(ids)
    is_static = np.arange(total) < len(static_ids)
    columns = {
        "row_id": _column_of("row_id", np.concatenate([static_ids, ids[order]]), np.zeros(total, dtype=bool)),
        "time": pa.array(np.concatenate([np.zeros(len(static_ids), np.int64), times[order]]), mask=is_static),
    }
    for name, answer in answers.items():
        static = answer.times is None
        places = np.searchsorted(static_ids if static else ids, answer.row_ids)
        columns[name] = _column_at(name, answer.values, places if static else rank[places], total)
    return pa.table(columns)


def _join(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(columns) if columns else np.empty(0, dtype=np.int64)


def _column_at(name: str, values: np.ndarray, positions: np.ndarray, total: int) -> pa.Array:
    """A column of `total` rows with these values at these positions and null elsewhere."""
    column = np.zeros(total, dtype=values.dtype)
    column[positions] = values
    absent = np.ones(total, dtype=bool)
    absent[positions] = False
    return _column_of(name, column, absent)


def _column_of(name: str, column: np.ndarray, absent: np.ndarray) -> pa.Array:
    try:
        return pa.array(column, mask=absent)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as refused:
        raise ParameterError(
            expected=f"values of {name!r} that one column of a table holds",
            found=str(refused),
            next_step="read the rows with `range`, which gives any values",
        ) from None


def _latest_row(catalog: ChunkCatalog, entity: str, timeline: str, at: int, component: str) -> tuple[Chunk, int] | None:
    intervals = _intervals(catalog, entity, timeline, component)
    start = None if intervals is None else intervals.start_before(at + 1)
    if intervals is None or start is None:
        return None
    rows = []
    for key in intervals.overlapping_keys(start, at):
        chunk = catalog.stored[key].chunk
        index = latest_index(chunk, timeline, at, component)
        if index is not None:
            rows.append((*_position(chunk, timeline, index), key, index))
    _, _, key, index = max(rows)
    return catalog.stored[key].chunk, index


def _earliest_row(
    catalog: ChunkCatalog, entity: str, timeline: str, at: int, component: str
) -> tuple[Chunk, int] | None:
    """The mirror image of `_latest_row`: the least start at or after `at` has a row, so the answer is not after it."""
    intervals = _intervals(catalog, entity, timeline, component)
    if intervals is None:
        return None
    start = intervals.start_after(at - 1)
    rows = []
    for key in intervals.overlapping_keys(at, INT64_MAX if start is None else start):
        chunk = catalog.stored[key].chunk
        index = earliest_index(chunk, timeline, at, component)
        if index is not None:
            rows.append((*_position(chunk, timeline, index), key, index))
    if not rows:
        return None
    _, _, key, index = min(rows)
    return catalog.stored[key].chunk, index


def _position(chunk: Chunk, timeline: str, index: int) -> tuple[int, int]:
    return int(chunk.timelines[timeline].times[index]), int(chunk.row_ids[index])


def _range_parts(
    catalog: ChunkCatalog, entity: str, timeline: str, lo: int, hi: int, component: str, *, extended: bool
) -> Iterator[tuple[Chunk, np.ndarray]]:
    """The chunks with the indices of their rows in the range; the two extra rows are parts of their own."""
    intervals = _intervals(catalog, entity, timeline, component)
    if intervals is None or lo > hi:
        return
    for key in intervals.overlapping_keys(lo, hi):
        chunk = catalog.stored[key].chunk
        rows = range_indices(chunk, timeline, lo, hi, component)
        if len(rows):
            yield chunk, rows
    if extended:
        for row in (
            _latest_row(catalog, entity, timeline, lo - 1, component),
            _earliest_row(catalog, entity, timeline, hi + 1, component),
        ):
            if row is not None:
                yield row[0], np.array([row[1]])


def _intervals(catalog: ChunkCatalog, entity: str, timeline: str, component: str) -> IntervalIndex | None:
    index = catalog.entities.get(entity)
    return None if index is None else index.intervals(timeline, component)


def _static_row(catalog: ChunkCatalog, entity: str, component: str) -> tuple[Chunk, int] | None:
    index = catalog.entities.get(entity)
    if index is None or component not in index.static:
        return None
    chunk = catalog.stored[index.static[component]].chunk
    return chunk, chunk.greatest_row(component)


def _scalar(chunk: Chunk, component: str, index: int) -> Any:
    value = chunk.components[component].values[index]
    return value.item() if isinstance(value, np.generic) else value
