"""The deltas behind full rows: what changed from each row to the next, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.kernels.deltas.ops import Op, Status
from spark_jobs.kernels.deltas.rows import Rows, need_rows, read_rows
from spark_jobs.kernels.deltas.states import NO_DELTA, States
from spark_jobs.kernels.deltas.tables import states_of

Array = npt.NDArray[Any]


def diff_deltas(
    table: pa.Table,
    *,
    entity: str,
    time: str,
    row_id: str,
    components: Mapping[str, str | int | float],
    prior: pa.Table | None = None,
    diff: str | None = None,
    delete_when: str | None = None,
) -> pa.Table:
    """One delta per full row: entity, event_time, row_id, op, indices, values, in the order (event_time, row_id).

    A Sparse delta of the components whose bits or nullness differ from the row before (of an entity's first row: all);
    Delete for a tombstone and Dense for the row after one. Folding them gives `modes.fold_diff` of the same rows. As a
    late row changes the delta of its successor, a row before its prior state raises RowsNeededError.
    """
    rows = read_rows(
        table, entity=entity, time=time, row_id=row_id, components=components, prior=prior, diff=diff,
        delete_when=delete_when,
    )  # fmt: skip
    base = states_of(prior, rows.keys, list(components), rows.values.dtype)
    last = base.event_time[rows.entity]
    early = (rows.event_time < last) | ((rows.event_time == last) & (rows.row_id <= base.row_id[rows.entity]))
    need_rows(rows, np.unique(rows.entity[(rows.count < 0) | (early & (last != NO_DELTA))]))
    changed, revived = _changes(rows, base)
    op = np.where(rows.flags, Op.DELETE, np.where(revived, Op.DENSE, Op.SPARSE))
    changed[rows.flags] = False
    row, component = np.nonzero(changed)
    offsets = pa.array(np.concatenate(([0], np.cumsum(changed.sum(axis=1)))), pa.int32())
    cells = pa.array(rows.values[row, component], mask=rows.nulls[row, component])
    return pa.table(
        {
            "entity": rows.keys.values.take(pa.array(rows.entity)),
            "event_time": pa.array(rows.event_time).cast(rows.time_type),
            "row_id": pa.array(rows.row_id),
            "op": pa.array([kind.name.lower() for kind in Op]).take(pa.array(op)),
            "indices": pa.ListArray.from_arrays(offsets, pa.array(component, pa.int32())),
            "values": pa.ListArray.from_arrays(offsets, cells),
        }
    )


def _changes(rows: Rows, base: States) -> tuple[Array, Array]:
    """Which cells differ from the row before, and which rows follow a tombstone; `rows` are in chain order."""
    count, width = rows.values.shape
    bits = rows.values.view(np.dtype(f"u{rows.values.dtype.itemsize}"))
    first = np.ones(count, dtype=np.bool_)
    first[1:] = rows.entity[1:] != rows.entity[:-1]
    changed = np.ones((count, width), dtype=np.bool_)
    # a null's bits are always those of 0, so a null row after a null row compares equal
    changed[1:] = (bits[1:] != bits[:-1]) | (rows.nulls[1:] != rows.nulls[:-1])
    revived = np.zeros(count, dtype=np.bool_)
    revived[1:] = rows.flags[:-1]
    at, codes = np.flatnonzero(first), rows.entity[first]
    revived[at] = base.status[codes] == Status.DELETED
    changed[first] = True
    live = base.status[codes] == Status.LIVE
    cells = base.offsets[codes[live]][:, None] + np.arange(width)
    same_bits = base.values[cells].view(bits.dtype) == bits[at[live]]
    same = same_bits & base.seen[cells] & (base.nulls[cells] == rows.nulls[at[live]])
    changed[at[live]] = ~same
    changed[revived] = True
    return changed, revived
