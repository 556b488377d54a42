"""Windows of an Arrow table: the entry points that Spark workers call inside `mapInArrow`, once per partition.

Each takes a table in any order that holds all rows of its keys, and returns one row per window (key columns,
`window_start`, `window_end`, one column per aggregate; ordered by key and start) and the counts of rows that count
nowhere. Times are integer or timestamp columns, one unit of their resolution being the tick; bounds have the time
column's type (int64 for every integer).

`min_end` names an int64 column, see `shapes`; what it holds makes the policy:

    never late              the least int64, or no column
    grace                   greatest time up to the row's arrival - grace
    discard                 lo (start of the row's drop)
    reemit(L)               closed and sessions: lo - L; half open: lo - L - 1, as `end == lo` is late by 0 there

`arrival` names a column that breaks ties of time for `first` and `last`. `null_values`: see `rows.NullValues`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .monoid import Aggregate, WindowRows, columns_read
from .rows import NullValues, SkippedRows, SortedRows, as_ticks, sort_rows
from .shapes import Hopping, Sessions, Settled, Shape, Sliding
from .spans import Spans, Windows
from .streams import Found, Maker

Ints = npt.NDArray[np.int64]
Aggregates = Mapping[str, Aggregate]
Wanted = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Of windows given by key columns, `window_start` and `window_end`: which are asked for."""
_PLACED = "__placed"


@dataclass(frozen=True)
class Inputs:
    """Which columns of a table are what."""

    key: list[str]
    time: str
    aggregates: Aggregates
    min_end: str | None = None
    forward_to: str | None = None
    """Times: a row that is late for all its windows counts in the windows over this time instead, with its own time
    for `first` and `last` (the late policy `next_window`; the column holds `lo`). Hopping and tumbling windows only."""
    arrival: str | None = None
    wanted: Wanted | None = None
    """The windows asked for; None: all. The others are not made: at the edge of what was read a window may have half
    its rows, whose sum need not fit where the sum of all of them does."""


def window_table(table: pa.Table, shape: Shape, inputs: Inputs) -> tuple[pa.Table, SkippedRows]:
    """The windows of any kind; see the module."""
    found, late = _find(table, shape, inputs)
    return found.table(0, found.windows.start.size), replace(found.rows.skipped, late_rows=late)


@dataclass(frozen=True)
class ShapeMaker(Maker):
    """Windows of a shape, for streams."""

    shape: Shape
    inputs: Inputs

    @property
    def windows_a_row(self) -> int:  # type: ignore[override]
        """As the shape has it."""
        return self.shape.windows_a_row

    @property
    def halo(self) -> tuple[int, int] | None:
        """As the shape has it."""
        return self.shape.halo

    def find(self, table: pa.Table) -> Found:
        """The windows of a table's rows."""
        return _find(table, self.shape, self.inputs)[0]

    def settled(self, time: int, last_start: int | None) -> Settled:
        """As the shape has it."""
        return self.shape.settled(time, last_start)


def _find(table: pa.Table, shape: Shape, inputs: Inputs) -> tuple[Found, int]:
    """The windows of a table, and how many rows are late for all of theirs."""
    rows = _sorted(*_placed(table, shape, inputs), shape, inputs)
    event_times = None if inputs.forward_to is None else rows.ticks(inputs.time)
    windows, spans, chosen = shape.find(rows.offsets, rows.times, rows.ticks(inputs.min_end))

    def made(begin: int, end: int) -> pa.Table:
        bounds, asked = asked_for(pa.table(window_columns(rows, windows.between(begin, end))), inputs.wanted)
        counted, held = chosen, spans
        if bounds.num_rows < spans.n_windows:
            held, has_one = spans.between(begin, end, asked)
            counted = np.zeros(chosen.size, np.bool_)
            counted[np.flatnonzero(chosen)[has_one]] = True
        read = WindowRows(rows, held, counted, event_times, rows.places(inputs.arrival))
        return with_results(bounds, inputs.aggregates, read)

    return Found(rows, windows, made), int(chosen.size - np.count_nonzero(chosen))


def asked_for(bounds: pa.Table, wanted: Wanted | None) -> tuple[pa.Table, npt.NDArray[np.bool_] | None]:
    """The windows that are asked for, and which those are; None: all of them."""
    asked = None if wanted is None else wanted(bounds)
    return (bounds, None) if asked is None or asked.all() else (bounds.filter(pa.array(asked)), asked)


def with_results(windows: pa.Table, aggregates: Aggregates, rows: WindowRows) -> pa.Table:
    """Windows with one column per aggregate."""
    for name, aggregate in aggregates.items():
        windows = windows.append_column(name, aggregate.evaluate(rows))
    return windows


def skipped_table(table: pa.Table, shape: Shape, inputs: Inputs) -> pa.Table:
    """What does not count: the table's columns, `window_start`, `window_end`, `reason`.

    One row for each row that can't count (`null_key`, `null_time`, `null_value`, `negative_time`; no bounds), and one
    for each pair of a late row and a window that it is too late for (`late`): a window of the definition with no row
    late that holds the row's time and whose last instant is before the row's `min_end`. Rows late for their session
    have no bounds. A row that is in no window, being late, is there once more, without bounds: `late_row`.
    """
    rows = _sorted(table, None, shape, inputs)
    parts = [_with_bounds(left_out, None, reason, rows.time_type) for reason, left_out in rows.left_out.items()]
    least = rows.ticks(inputs.min_end)
    if least is not None and np.any(least > rows.times):
        windows, spans, chosen = shape.find(rows.offsets, rows.times, None)
        last = shape.last_instants(windows)
        nowhere = rows.table.take(pa.array(rows.order[~shape.find(rows.offsets, rows.times, least)[2]]))
        if last is None:
            parts.append(_with_bounds(nowhere, None, "late", rows.time_type))
        else:
            pair_rows, pair_windows = _late_pairs(spans, last, least[chosen])
            numbers = rows.order[np.flatnonzero(chosen)[pair_rows]]
            bounds = (windows.start[pair_windows], windows.end[pair_windows])
            parts.append(_with_bounds(rows.table.take(pa.array(numbers)), bounds, "late", rows.time_type))
        parts.append(_with_bounds(nowhere, None, "late_row", rows.time_type))
    return pa.concat_tables(parts) if parts else _with_bounds(rows.table.slice(0, 0), None, "", rows.time_type)


def _late_pairs(spans: Spans, last: Ints, least: Ints) -> tuple[Ints, Ints]:
    """Pairs (row, window): the windows over each row that end too early for it, which come first in its span."""
    # last instants rise within a span but not from key to key: each row's own run is searched by halves
    low, high = spans.first.copy(), spans.past.copy()
    while np.any(low < high):
        middle = (low + high) >> 1
        open_ = low < high
        early = open_ & (last[np.minimum(middle, last.size - 1)] < least)
        low = np.where(early, middle + 1, low)
        high = np.where(open_ & ~early, middle, high)
    counts = low - spans.first
    rows = np.repeat(np.arange(counts.size), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, spans.first[rows] + within


def _with_bounds(held: pa.Table, bounds: tuple[Ints, Ints] | None, reason: str, time_type: pa.DataType) -> pa.Table:
    kind = bounds_type(time_type)
    for place, name in enumerate(("window_start", "window_end")):
        column = pa.nulls(held.num_rows, kind) if bounds is None else pa.array(bounds[place]).cast(kind)
        held = held.append_column(name, column)
    return held.append_column("reason", pa.array([reason] * held.num_rows, pa.string()))


def _placed(table: pa.Table, shape: Shape, inputs: Inputs) -> tuple[pa.Table, str | None]:
    """The column of times by which rows are placed where a late row moves on; None: their own."""
    if inputs.forward_to is None or inputs.min_end is None:
        return table, None
    own = as_ticks(table.column(inputs.time))
    latest = shape.latest_instants(own)
    if latest is None:
        raise TypeError(f"windows of {type(shape).__name__} come from rows: no row can move on to the next one")
    late = as_ticks(table.column(inputs.min_end)) > latest
    placed = np.where(late, as_ticks(table.column(inputs.forward_to)), own)
    return table.append_column(_PLACED, pa.array(placed)), _PLACED


def required_columns(shape: Shape, aggregates: Aggregates) -> list[str]:
    """The columns in which a null makes a row count nowhere."""
    return columns_read(aggregates.values()) if shape.null_values == "skip_row" else []


def _sorted(table: pa.Table, placed: str | None, shape: Shape, inputs: Inputs) -> SortedRows:
    return sort_rows(
        table,
        key=inputs.key,
        time=inputs.time,
        required=required_columns(shape, inputs.aggregates),
        drop_negative=shape.drop_negative,
        placed=placed,
    )


def window_columns(rows: SortedRows, windows: Windows) -> dict[str, pa.Array]:
    """Key columns and bounds of windows."""
    group, kind = pa.array(windows.group), bounds_type(rows.time_type)
    columns: dict[str, pa.Array] = {
        name: rows.keys.column(name).combine_chunks().take(group) for name in rows.keys.column_names
    }
    columns["window_start"] = pa.array(windows.start).cast(kind)
    columns["window_end"] = pa.array(windows.end).cast(kind)
    return columns


def bounds_type(time: pa.DataType) -> pa.DataType:
    """The type of window bounds for a time column: its own, int64 for every integer."""
    return time if pa.types.is_timestamp(time) else pa.int64()


def sliding_table(
    table: pa.Table,
    *,
    size: int,
    clip_at_zero: bool,
    null_values: NullValues = "skip_row",
    **inputs: Any,
) -> tuple[pa.Table, SkippedRows]:
    """Sliding windows of `size` ticks, see `sliding`; `clip_at_zero` skips rows before 0 as `negative_time`.

    Args:
        inputs: the fields of `Inputs`.
    """
    return window_table(table, Sliding(size, clip_at_zero, null_values), Inputs(**inputs))


def session_table(
    table: pa.Table, *, gap: int, null_values: NullValues = "skip_value", **inputs: Any
) -> tuple[pa.Table, SkippedRows]:
    """Session windows with a greatest distance of `gap` ticks, see `sessions`; `inputs`: the fields of `Inputs`."""
    return window_table(table, Sessions(gap, null_values), Inputs(**inputs))


def hopping_table(
    table: pa.Table,
    *,
    size: int,
    advance: int,
    offset: int = 0,
    null_values: NullValues = "skip_value",
    **inputs: Any,
) -> tuple[pa.Table, SkippedRows]:
    """Hopping windows `[k*advance + offset, +size)`, see `aligned`; `inputs`: the fields of `Inputs`."""
    return window_table(table, Hopping(size, advance, offset, null_values), Inputs(**inputs))


def tumbling_table(table: pa.Table, *, size: int, offset: int = 0, **inputs: Any) -> tuple[pa.Table, SkippedRows]:
    """Tumbling windows `[k*size + offset, +size)`: `hopping_table` with an advance of `size`."""
    return hopping_table(table, size=size, advance=size, offset=offset, **inputs)
