"""The cuts of runs of rows into chunks, as compiled loops over whole columns.

The rules are those of the batcher (see `batcher`): first flush segments per entity, then, within a segment and a set of
timelines, the unsorted limit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NO_LIMIT = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def flush_segments(entity_runs: np.ndarray, row_bytes: np.ndarray, max_rows: int, max_bytes: int) -> np.ndarray:
    """Per row, the number of its flush, ascending.

    Args:
        entity_runs: a value per row that changes with the entity.
        row_bytes: the size of each row in bytes.
        max_rows: a flush happens after the row that reaches this many rows of its entity; `NO_LIMIT` for never.
        max_bytes: the same for bytes.
    """
    segments = np.empty(len(entity_runs), np.int64)
    segment, rows, size_bytes = -1, 0, 0
    full = True
    for i in range(len(entity_runs)):
        if full or entity_runs[i] != entity_runs[i - 1]:
            segment, rows, size_bytes = segment + 1, 0, 0
        segments[i] = segment
        rows += 1
        size_bytes += row_bytes[i]
        full = rows >= max_rows or size_bytes >= max_bytes
    return segments


@njit(cache=True, nogil=True)
def piece_starts(groups: np.ndarray, times: np.ndarray, max_rows_if_unsorted: int, split_first: bool) -> np.ndarray:
    """True for each row that starts a chunk.

    Args:
        groups: a value per row; rows with different values are never in the same chunk.
        times: one row of int64 times per timeline; constant within a group on timelines that the group lacks.
        max_rows_if_unsorted: an unsorted piece with this many rows or more gets no further row.
        split_first: a sorted piece with so many rows gets no row that would unsort it.
    """
    starts = np.empty(len(groups), np.bool_)
    rows = 0
    is_unsorted = False
    for i in range(len(groups)):
        breaks_order = False
        fresh = i == 0 or groups[i] != groups[i - 1]
        if not fresh:
            for timeline in range(len(times)):
                breaks_order |= times[timeline, i] < times[timeline, i - 1]
            fresh = rows >= max_rows_if_unsorted and (is_unsorted or (split_first and breaks_order))
        if fresh:
            rows = 0
            is_unsorted = False
        else:
            is_unsorted |= breaks_order
        starts[i] = fresh
        rows += 1
    return starts
