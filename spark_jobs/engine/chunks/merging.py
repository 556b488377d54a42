"""The rows of chunks taken apart and cut anew, so that an entity has few chunks instead of many small ones.

All rows of an entity are put into row-id order and cut by the batcher's limits: smaller chunks are merged up to the
limits, larger ones are split. A row id may occur several times, if a row came, went and came again. As row ids ascend
within a chunk, the first rows of all ids are merged with one another, then the second rows, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns.plain import Flags, Ints


def chunk_rows(chunks: pa.Table, *, rows: str, arrays: Mapping[str, str], same: Sequence[str]) -> pa.Table:
    """The rows of chunks, one chunk after the other.

    Args:
        rows: the column with the number of rows of a chunk, never null.
        arrays: the name of a column of rows, mapped to the chunks' column of lists; each list is null or has one value
            per row.
        same: columns whose value in a chunk is that of all its rows.
    """
    counts = chunks[rows].to_numpy().astype(np.int64)
    chunk_of = np.repeat(np.arange(counts.size), counts)
    columns = {name: chunks[name].combine_chunks().take(pa.array(chunk_of)) for name in same}
    columns |= {name: _flat(chunks[column], counts, chunk_of) for name, column in arrays.items()}
    return pa.table(columns)


def _flat(lists: pa.ChunkedArray, counts: Ints, chunk_of: Ints) -> pa.Array:
    """The values of the lists one after another; a null list gives one null per row of its chunk."""
    array = lists.combine_chunks()
    values = array.flatten()
    if array.null_count == 0:
        return values
    present = array.is_valid().to_numpy(zero_copy_only=False)[chunk_of]
    place = np.cumsum(present) - 1
    return values.take(pa.array(place, mask=~present))


def not_taken_back(row_ids: Ints, landings: Ints, diffs: Ints) -> Flags:
    """Flags of the rows that came and that no later landing has taken back. A landing that changes a row takes back the
    old one, and brings the new one with the same id."""
    order = np.lexsort((landings, row_ids))
    back = order[diffs[order] < 0]
    # the last time that each row was taken back
    last = back[np.append(row_ids[back][1:] != row_ids[back][:-1], True)[: back.size]]
    place = np.searchsorted(row_ids[last], row_ids)
    matches = place < last.size
    matches[matches] = row_ids[last][place[matches]] == row_ids[matches]
    was_taken_back = np.zeros(row_ids.size, np.bool_)
    was_taken_back[matches] = landings[matches] < landings[last][place[matches]]
    counts: Flags = (diffs > 0) & ~was_taken_back
    return counts


def layers(codes: Ints, row_ids: Ints, landings: Ints) -> tuple[Ints, Ints]:
    """The order of rows by layer, code and row id, and the layers of the rows in that order.

    The layer of a row is the number of rows with the same code and row id that landed before it."""
    order = np.lexsort((landings, row_ids, codes))
    ordered_codes, ordered_ids = codes[order], row_ids[order]
    repeats = np.zeros(order.size, np.bool_)
    repeats[1:] = (ordered_codes[1:] == ordered_codes[:-1]) & (ordered_ids[1:] == ordered_ids[:-1])
    layer = np.zeros(order.size, np.int64)
    if repeats.any():
        places = np.arange(order.size)
        layer = places - np.maximum.accumulate(np.where(repeats, 0, places))
        by_layer = np.argsort(layer, kind="stable")
        order, layer = order[by_layer], layer[by_layer]
    return order, layer


FEWEST_RUNS = 8
"""The least number of runs that are merged at once: with fewer, every row would be rewritten more often."""


def due_runs(sizes: Sequence[int], fewest: int = FEWEST_RUNS) -> int:
    """The number of newest runs to merge into one; 0: none. `sizes` are the sizes of the runs, oldest first.

    They are the longest stretch of newest runs whose oldest run is no larger than all the others together. So the
    merged run has at least twice the size of each run in it. For n runs of equal size, each row is rewritten O(log n)
    times, and O(`fewest` + log n) runs are left.
    """
    for first in range(len(sizes) - fewest + 1):
        if sizes[first] <= sum(sizes[first + 1 :]):
            return len(sizes) - first
    return 0
