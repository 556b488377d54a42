"""Queries of a single chunk: binary search where the times are sorted, a scan where they are not.

All functions but `dedupe_latest` look only at rows with a value of the component. They order rows by (time, row id),
whatever the order of the rows in the chunk. They return row *indices* into the chunk (`latest_index`,
`earliest_index`, `range_indices`) or row ids. For an unknown timeline or component, the result is empty. Functions
that return row ids raise `ParameterError` for a name that is no string and for a time that is no signed 64-bit integer.
"""

from __future__ import annotations

import numpy as np

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.checks import INT64_MAX, INT64_MIN
from spark_jobs.engine.chunks.model import Chunk, time_then_id_order


def latest_index(chunk: Chunk, timeline: str, at: int, component: str) -> int | None:
    """Index of the row with the greatest (time, row id) whose time is at or before `at`; temporal chunks only."""
    rows = range_indices(chunk, timeline, INT64_MIN, at, component)
    return int(rows[-1]) if len(rows) else None


def earliest_index(chunk: Chunk, timeline: str, at: int, component: str) -> int | None:
    """Index of the row with the least (time, row id) whose time is at or after `at`; temporal chunks only."""
    rows = range_indices(chunk, timeline, at, INT64_MAX, component)
    return int(rows[0]) if len(rows) else None


def range_indices(chunk: Chunk, timeline: str, lo: int, hi: int, component: str) -> np.ndarray:
    """Indices of the rows with a time in `[lo, hi]`, both inclusive, by (time, row id); temporal chunks only.

    Cost: O(log rows + answers) if the rows ascend, the timeline is sorted and the component has a value in every row;
    otherwise one scan.
    """
    column, values = chunk.timelines.get(timeline), chunk.components.get(component)
    if column is None or values is None or lo > hi or hi < column.min or lo > column.max:
        return np.empty(0, dtype=np.int64)
    if column.is_sorted and chunk.has_ascending_rows:
        first = 0 if lo <= column.min else int(column.times.searchsorted(lo, side="left"))
        stop = len(column.times) if hi >= column.max else int(column.times.searchsorted(hi, side="right"))
        rows = np.arange(first, stop)
        return rows if values.all_valid else rows[values.valid[first:stop]]
    hit = column.times >= max(lo, column.min)
    hit &= column.times <= min(hi, column.max)
    if not values.all_valid:
        hit &= values.valid
    rows = hit.nonzero()[0]
    if chunk.has_ascending_rows:
        return rows[column.times[rows].argsort(kind="stable")]
    return rows[time_then_id_order(column.times[rows], chunk.row_ids[rows])]


def chunk_latest_at(chunk: Chunk, timeline: str, at: int, component: str) -> int | None:
    """Row id of the latest row at `at`, or None; for a static chunk, the greatest row id with a value."""
    checks.check_names(timeline=timeline, component=component)
    at = checks.time(at, "the time asked for")
    if chunk.is_static:
        return chunk.greatest_row_id(component) if component in chunk.components else None
    index = latest_index(chunk, timeline, at, component)
    return None if index is None else int(chunk.row_ids[index])


def chunk_range(chunk: Chunk, timeline: str, lo: int, hi: int, component: str, *, extended: bool = False) -> list[int]:
    """Row ids with a time in `[lo, hi]` by (time, row id); for a static chunk, its single latest row.

    `extended` adds one row (not one time) before `lo` and one after `hi`, if there are such rows. An inverted range is
    empty.
    """
    checks.check_names(timeline=timeline, component=component)
    lo, hi = checks.time_range((lo, hi), "an end of the range")
    if chunk.is_static:
        latest = chunk_latest_at(chunk, timeline, hi, component)
        return [] if latest is None else [latest]
    if lo > hi:
        return []
    rows = [int(index) for index in range_indices(chunk, timeline, lo, hi, component)]
    if extended:
        before = latest_index(chunk, timeline, lo - 1, component)
        after = earliest_index(chunk, timeline, hi + 1, component)
        rows = [index for index in (before, *rows, after) if index is not None]
    return [int(chunk.row_ids[index]) for index in rows]


def dedupe_latest(chunk: Chunk, timeline: str) -> list[int]:
    """Row ids of the last row of each run of equal times, in the order of the rows in the chunk.

    For a static chunk, the last row; for a chunk without this timeline, every row, as no row repeats a time there.
    """
    checks.check_names(timeline=timeline)
    if chunk.num_rows == 0:
        return []
    if chunk.is_static:
        return [int(chunk.row_ids[-1])]
    if timeline not in chunk.timelines:
        return [int(row_id) for row_id in chunk.row_ids]
    times = chunk.timelines[timeline].times
    ends_a_run = np.append(times[1:] != times[:-1], True)
    return [int(row_id) for row_id in chunk.row_ids[ends_a_run]]
