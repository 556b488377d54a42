"""Corrections of published windows: desired − published, over exactly the windows that an update touches.

A *touched* row is one that an update inserted or retracted. A window of a key is *affected* iff the key has a touched
row placed at a time where it can change the window; `Kind.affected_by` returns those times.

Desired windows are recomputed from the standing rows; published windows are those that readers see now. Only affected
windows of both are compared, by key and start (or by the kind's other `identity`). Windows that are equal bit for bit
yield nothing, so an update that changes no result changes no table.

Rows and published windows are streams in the order (key, time). Kept in memory are the rows that `windows.streams`
keeps, the rows that open windows need, and the touched rows that can change a later window.

Guarantee: given all standing rows within reach of the affected windows, published + corrections = a recomputation
from all rows.
Not guaranteed: anything about windows that are not affected; rows at the edge of those read may form parts of them.
Cost: O(n log n) in the rows and windows given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.restatement.comparison import (
    PLACED,
    Comparison,
    Order,
    PublishedStream,
    key_codes,
    side_by_side,
    whole_parts,
)
from spark_jobs.engine.windows.kinds.kind import Settled, WindowKind
from spark_jobs.engine.windows.rows import sort_rows
from spark_jobs.engine.windows.slices import OwnSlice
from spark_jobs.engine.windows.streams import PortionLimits, Tables, Windowing, steps
from spark_jobs.engine.windows.tables import Found


def restate(
    rows: Iterator[pa.Table],
    published: PublishedStream,
    windowing: Windowing,
    pace: PortionLimits,
    *,
    known_from: int,
    everything: bool = False,
    expired: int | None = None,
) -> Iterator[pa.Table]:
    """The corrections of the keys given, some at a time.

    Args:
        rows: the updates within reach of the affected windows, in the order (key, `placed`): key columns (no nulls),
            `time` and `placed` int64, `row_id` int64, `diff` int64, `touched` bool, and the columns that the aggregates
            read. A row may be inserted (+1) and retracted (−1); it stands if its diffs sum to more than 0.
        published: the published windows, in the order of their kind (`Kind.in_place`): key columns, `window_start`,
            `window_end` int64, the aggregates, `known_from` int64, `revision` int32, `era`: live windows, and closing
            ones that end some of them.
        known_from: time of every correction made here.
        everything: all windows are affected (the definition changed).
        expired: windows that end at or before this time are not kept: published ones are taken back, and no row brings
            them back.

    Yields:
        Columns of `published`, and `known_to` int64: `live` rows are insertions; `closing` rows take a published row
        back.
    """
    order = Order(windowing.key, windowing.kind)
    comparison = Comparison(order, known_from, everything, expired)
    tables = Tables(pace.most_bytes)
    find, settled = partial(_windows_of_current, windowing), partial(_settle, windowing.kind)
    earlier: pa.Table | None = None
    for step in steps(rows, find, settled, most_rows=pace.most_rows, note_rows=pace.note_rows):
        updates = step.windows.rows.table
        touched = updates.select([*windowing.key, PLACED]).filter(updates.column("touched"))
        all_touched = touched.num_rows == updates.num_rows
        if earlier is not None:
            touched = pa.concat_tables([earlier, touched])
        wanted = _Wanted(comparison, None if all_touched else touched, windowing.own_slice)
        desired = (order.kind.in_place(windows) for windows in tables.of(step, wanted))
        parts = whole_parts(desired, None if step.upto is None else order.place(step.upto), order)
        for ours, theirs in side_by_side(parts, published, order):
            pace.made(ours.nbytes + theirs.nbytes)
            if ours.num_rows or theirs.num_rows:
                yield comparison.corrections(ours, theirs, touched)
        if step.upto is not None and step.windows.following is not None:
            earlier = order.touching_after(touched, step.upto)
    yield from _without_rows(published, comparison)


def _without_rows(published: PublishedStream, comparison: Comparison) -> Iterator[pa.Table]:
    """Corrections of the published windows that are left when there are no more rows."""
    none = published.schema.empty_table()
    untouched = none.select(list(comparison.order.key)).append_column(PLACED, pa.array([], pa.int64()))
    for ours, theirs in side_by_side([(none, None)], published, comparison.order):
        if theirs.num_rows:
            yield comparison.corrections(ours, theirs, untouched)


def _windows_of_current(windowing: Windowing, table: pa.Table, open_windows: Any = None) -> Found:
    """The windows of the standing rows of a table of updates. The found `rows` are all the updates, so that they are
    carried over."""
    updates = sort_rows(table, key=list(windowing.key), time=PLACED)
    spans = windowing.find(current_rows(table).drop_columns(["diff", "touched"]), open_windows)
    windows = spans.windows
    if spans.rows.keys.num_rows < updates.keys.num_rows:
        every, counting = key_codes([updates.keys, spans.rows.keys], windowing.key)
        windows = replace(windows, group=np.searchsorted(every, counting)[windows.group])
    return replace(spans, rows=updates, windows=windows)


def _settle(kind: WindowKind, time: int, last_start: int | None) -> Settled:
    """The kind's `settled`, extended: the updates that can change a later window are needed, too."""
    settled = kind.settle(time, last_start)
    start = np.array([settled.before], np.int64)
    return Settled(settled.before, min(settled.rows_from, int(kind.changed_by(start, start)[0][0])))


@dataclass(frozen=True)
class _Wanted:
    """Flags the windows that start in their slice and that the comparison asks for; see `Comparison.asks_for`."""

    comparison: Comparison
    touched: pa.Table | None
    own_slice: OwnSlice | None

    def __call__(self, windows: pa.Table) -> npt.NDArray[np.bool_]:
        asked = self.comparison.asks_for(windows, self.touched)
        return asked if self.own_slice is None else asked & self.own_slice(windows)


def current_rows(rows: pa.Table) -> pa.Table:
    """The rows whose diffs sum to more than zero, once each. Rows are told apart by all their columns except `diff` and
    `touched`."""
    if pc.all(pc.equal(rows.column("diff"), 1)).as_py() is not False:
        return rows
    identity = [name for name in rows.column_names if name not in ("diff", "touched")]
    summed = rows.group_by(identity, use_threads=False).aggregate([("diff", "sum"), ("touched", "max")])
    summed = summed.rename_columns([name.removesuffix("_sum").removesuffix("_max") for name in summed.column_names])
    return summed.filter(pc.greater(summed.column("diff"), 0)).select(rows.column_names)
