"""Groups of rows out of a stream of sorted batches, a group that is too large in parts: stretches of time.

A worker holds so many bytes of rows, not a group: an entity may have had any number of deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def parts_of(
    batches: Iterable[pa.RecordBatch], *, group: str, time: str, least_rows: int, most_bytes: int | None
) -> Iterator[tuple[pa.Table, int | None]]:
    """The rows of `batches` in order, in tables; and after each the time from which on there may be more of its last
    group, None if that is over.

    Args:
        batches: sorted by the columns `group` and `time`, whole numbers without null.
        group: rows with equal values are together, up to the time that is told.
        time: rows with equal values are never parted.
        least_rows: held from which on the groups that are over are given.
        most_bytes: of a group from which on it is parted; None: it never is.
    """
    held: list[pa.RecordBatch] = []
    n_held = n_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        n_held, n_bytes = n_held + batch.num_rows, n_bytes + batch.nbytes
        if n_held < least_rows and (most_bytes is None or n_bytes < most_bytes):
            continue
        table = pa.Table.from_batches(held)
        last = _start_of_last(table, group)
        if last:
            yield table.slice(0, last), None
            table = table.slice(last)
        if most_bytes is not None and table.nbytes >= most_bytes:
            last = _start_of_last(table, time)
            if last:
                yield table.slice(0, last), table[time][-1].as_py()
                table = table.slice(last)
        held = table.to_batches()
        n_held, n_bytes = table.num_rows, table.nbytes
    if held:
        yield pa.Table.from_batches(held), None


def _start_of_last(table: pa.Table, column: str) -> int:
    """The first of the rows at the end that have equal values."""
    values = table[column]
    others = np.flatnonzero(pc.not_equal(values, values[-1]).to_numpy())
    return int(others[-1]) + 1 if len(others) else 0
