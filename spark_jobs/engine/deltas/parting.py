"""Groups of rows from a stream of sorted batches. A group that is too large comes in parts, which are spans of time.

An entity may have any number of deltas, so a worker limits the bytes of rows that it keeps in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def parts_of(
    batches: Iterable[pa.RecordBatch], *, group: str, time: str, least_rows: int, most_bytes: int | None
) -> Iterator[tuple[pa.Table, int | None]]:
    """The rows of `batches` in order, as tables, each with a time from which on its last group may have more rows.

    The time is None if the last group is complete.

    Args:
        batches: sorted by the columns `group` and `time`, which have whole numbers without nulls.
        group: the column by whose value rows are in the same group.
        time: rows of a group with equal values in this column are never parted.
        least_rows: the number of rows in memory from which on complete groups are returned.
        most_bytes: the size in bytes from which on a group is parted; None: groups are never parted.
    """
    open_part: list[pa.RecordBatch] = []
    n_open = n_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        open_part.append(batch)
        n_open, n_bytes = n_open + batch.num_rows, n_bytes + batch.nbytes
        if n_open < least_rows and (most_bytes is None or n_bytes < most_bytes):
            continue
        table = pa.Table.from_batches(open_part)
        last = _start_of_last(table, group)
        if last:
            yield table.slice(0, last), None
            table = table.slice(last)
        if most_bytes is not None and table.nbytes >= most_bytes:
            last = _start_of_last(table, time)
            if last:
                yield table.slice(0, last), table[time][-1].as_py()
                table = table.slice(last)
        open_part = table.to_batches()
        n_open, n_bytes = table.num_rows, table.nbytes
    if open_part:
        yield pa.Table.from_batches(open_part), None


def _start_of_last(table: pa.Table, column: str) -> int:
    """The index of the first row of the last run of equal values."""
    values = table[column]
    others = np.flatnonzero(pc.not_equal(values, values[-1]).to_numpy())
    return int(others[-1]) + 1 if len(others) else 0
