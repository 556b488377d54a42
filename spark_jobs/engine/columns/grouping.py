"""Whole groups out of a stream of sorted batches, so that a worker keeps one group in memory, not its partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc


def whole_groups(batches: Iterable[pa.RecordBatch], columns: Sequence[str], *, least_rows: int) -> Iterator[pa.Table]:
    """The rows of `batches` in order, cut between groups: rows with equal `columns`, which must be neighbours.

    A table has at least `least_rows` rows, unless it is the last, and no group is in two tables. So at most
    `least_rows` rows, one group and one batch are in memory.
    """
    open_group: list[pa.RecordBatch] = []
    n_open = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        cut = _start_of_last_group(batch, columns)
        if cut == 0 and open_group and not _same_group(open_group[-1], batch, columns):
            complete, remainder = open_group, batch
        elif cut > 0:
            complete, remainder = [*open_group, batch.slice(0, cut)], batch.slice(cut)
        else:
            complete, remainder = [], batch
        if complete and n_open + cut >= least_rows:
            yield pa.Table.from_batches(complete)
            open_group, n_open = [remainder], remainder.num_rows
        else:
            open_group.append(batch)
            n_open += batch.num_rows
    if open_group:
        yield pa.Table.from_batches(open_group)


def _start_of_last_group(batch: pa.RecordBatch, columns: Sequence[str]) -> int:
    """The number of the first row of the batch's last group."""
    last = _equal_to(batch, batch.slice(batch.num_rows - 1), columns)
    different = pc.indices_nonzero(pc.invert(last))
    return different[-1].as_py() + 1 if len(different) else 0


def _same_group(before: pa.RecordBatch, after: pa.RecordBatch, columns: Sequence[str]) -> bool:
    return bool(_equal_to(after.slice(0, 1), before.slice(before.num_rows - 1), columns)[0].as_py())


def _equal_to(batch: pa.RecordBatch, row: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """Booleans of the rows of `batch` that equal the one row `row` in `columns`; null equals null."""
    equal = pa.array([True] * batch.num_rows)
    for name in columns:
        value = row.column(name)[0]
        column = batch.column(name)
        equal = pc.and_(equal, pc.fill_null(pc.equal(column, value), False) if value.is_valid else column.is_null())
    return equal
