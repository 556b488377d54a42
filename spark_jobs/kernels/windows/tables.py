"""Windows of an Arrow table: the entry points that Spark workers call inside `mapInArrow`, once per partition.

Each takes a table in any order that holds all rows of its keys, and returns one row per window (key columns,
`window_start`, `window_end`, one column per aggregate; ordered by key and start) and the counts of rows that count
nowhere. Times are integer or timestamp columns, one unit of their resolution being the tick; bounds have the time
column's type (int64 for every integer).

`min_end` names an int64 column: the row counts in a window iff the window's last instant is at or after it. The last
instant is `end` for sliding windows (closed), `end - 1` for hopping and tumbling ones (half open), the row's own
`time + gap` for sessions.

    never late              the least int64, or no column
    grace                   greatest time up to the row's arrival - grace
    discard                 lo (start of the row's drop)
    reemit(L)               closed and sessions: lo - L; half open: lo - L - 1, as `end == lo` is late by 0 there

`arrival` names a column that breaks ties of time for `first` and `last`. `null_values`: see `rows.NullValues`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .aligned import hopping_spans, latest_instant
from .monoid import Aggregate, WindowRows, columns_read
from .rows import NullValues, SkippedRows, SortedRows, as_ticks, order_keys, sort_rows
from .sessions import session_spans
from .sliding import sliding_spans
from .spans import Spans, Windows

Ints = npt.NDArray[np.int64]
Aggregates = Mapping[str, Aggregate]


def sliding_table(
    table: pa.Table,
    *,
    key: list[str],
    time: str,
    size: int,
    aggregates: Aggregates,
    clip_at_zero: bool,
    min_end: str | None = None,
    arrival: str | None = None,
    null_values: NullValues = "skip_row",
) -> tuple[pa.Table, SkippedRows]:
    """Sliding windows of `size` ticks, see `sliding`; `clip_at_zero` skips rows before 0 as `negative_time`."""
    required = columns_read(aggregates.values()) if null_values == "skip_row" else ()
    rows = sort_rows(table, key=key, time=time, required=required, drop_negative=clip_at_zero)
    windows, spans, chosen = sliding_spans(
        offsets=rows.offsets, times=rows.times, size=size, clip_at_zero=clip_at_zero, min_end=rows.ticks(min_end)
    )
    return _assemble(rows, windows, spans, chosen, aggregates, arrival)


def session_table(
    table: pa.Table,
    *,
    key: list[str],
    time: str,
    gap: int,
    aggregates: Aggregates,
    min_end: str | None = None,
    arrival: str | None = None,
    null_values: NullValues = "skip_value",
) -> tuple[pa.Table, SkippedRows]:
    """Session windows with a greatest distance of `gap` ticks, see `sessions`."""
    required = columns_read(aggregates.values()) if null_values == "skip_row" else ()
    rows = sort_rows(table, key=key, time=time, required=required)
    windows, spans, chosen = session_spans(offsets=rows.offsets, times=rows.times, gap=gap, min_end=rows.ticks(min_end))
    return _assemble(rows, windows, spans, chosen, aggregates, arrival)


def hopping_table(
    table: pa.Table,
    *,
    key: list[str],
    time: str,
    size: int,
    advance: int,
    offset: int = 0,
    aggregates: Aggregates,
    min_end: str | None = None,
    forward_to: str | None = None,
    arrival: str | None = None,
    null_values: NullValues = "skip_value",
) -> tuple[pa.Table, SkippedRows]:
    """Hopping windows `[k*advance + offset, +size)`, see `aligned`; tumbling ones with `advance == size`.

    `forward_to` names a column of times: a row that is late for all its windows counts in the windows over that time
    instead, with its own time for `first` and `last` (the late policy `next_window`; the column holds `lo`).
    """
    required = columns_read(aggregates.values()) if null_values == "skip_row" else ()
    shape = {"size": size, "advance": advance, "offset": offset}
    placed = None
    if forward_to is not None and min_end is not None:
        own = as_ticks(table.column(time))
        late = as_ticks(table.column(min_end)) > latest_instant(own, **shape)
        placed = np.where(late, as_ticks(table.column(forward_to)), own)
    rows = sort_rows(table, key=key, time=time, required=required, placed=placed)
    event_times = None if placed is None else rows.ticks(time)
    windows, spans, chosen = hopping_spans(offsets=rows.offsets, times=rows.times, min_end=rows.ticks(min_end), **shape)
    return _assemble(rows, windows, spans, chosen, aggregates, arrival, event_times)


def tumbling_table(
    table: pa.Table, *, size: int, offset: int = 0, **parameters: object
) -> tuple[pa.Table, SkippedRows]:
    """Tumbling windows `[k*size + offset, +size)`: `hopping_table` with an advance of `size`."""
    return hopping_table(table, size=size, advance=size, offset=offset, **parameters)  # type: ignore[arg-type]


def bounds_type(time: pa.DataType) -> pa.DataType:
    """The type of window bounds for a time column: its own, int64 for every integer."""
    return time if pa.types.is_timestamp(time) else pa.int64()


def _assemble(
    rows: SortedRows,
    windows: Windows,
    spans: Spans,
    chosen: npt.NDArray[np.bool_],
    aggregates: Aggregates,
    arrival: str | None,
    event_times: Ints | None = None,
) -> tuple[pa.Table, SkippedRows]:
    arrived = None if arrival is None else order_keys(rows.table.column(arrival).combine_chunks())[rows.order]
    counted = WindowRows(rows, spans, chosen, event_times, arrived)
    group = pa.array(windows.group)
    columns = {name: rows.keys.column(name).combine_chunks().take(group) for name in rows.keys.column_names}
    of_time = bounds_type(rows.time_type)
    columns["window_start"] = pa.array(windows.start).cast(of_time)
    columns["window_end"] = pa.array(windows.end).cast(of_time)
    for name, aggregate in aggregates.items():
        columns[name] = aggregate.evaluate(counted)
    late = int(chosen.size - np.count_nonzero(chosen))
    return pa.table(columns), replace(rows.skipped, late_rows=late)
