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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .monoid import Aggregate, WindowRows, columns_read
from .rows import NullValues, SkippedRows, SortedRows, as_ticks, sort_rows
from .shapes import Hopping, Sessions, Settled, Shape, Sliding
from .spans import Spans, Windows
from .streams import Found, Maker, Wanted

Ints = npt.NDArray[np.int64]
Aggregates = Mapping[str, Aggregate]
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


def window_table(table: pa.Table, shape: Shape, inputs: Inputs) -> tuple[pa.Table, SkippedRows]:
    """The windows of any kind; see the module."""
    found = _find(table, shape, inputs)
    return found.table(0, found.windows.start.size, None), found.skipped


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
        return _find(table, self.shape, self.inputs)

    def settled(self, time: int, last_start: int | None) -> Settled:
        """As the shape has it."""
        return self.shape.settled(time, last_start)


def _find(table: pa.Table, shape: Shape, inputs: Inputs) -> Found:
    """The windows of a table."""
    rows = sorted_rows(*_placed(table, shape, inputs), shape, inputs)
    event_times = None if inputs.forward_to is None else rows.ticks(inputs.time)
    windows, spans, chosen = shape.find(rows.offsets, rows.times, rows.ticks(inputs.min_end))

    def made(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
        bounds, asked = asked_for(pa.table(window_columns(rows, windows.between(begin, end))), wanted)
        held, counted = rows_between(spans, chosen, begin, end, asked)
        read = WindowRows(rows, held, counted, event_times, rows.places(inputs.arrival))
        return with_results(bounds, inputs.aggregates, read)

    return Found(rows, windows, made, int(chosen.size - np.count_nonzero(chosen)))


def asked_for(windows: pa.Table, wanted: Wanted | None) -> tuple[pa.Table, npt.NDArray[np.bool_] | None]:
    """The windows that are asked for, and which those are; None: all of them."""
    asked = None if wanted is None else wanted(windows)
    return (windows, None) if asked is None or asked.all() else (windows.filter(pa.array(asked)), asked)


def rows_between(
    spans: Spans,
    chosen: npt.NDArray[np.bool_],
    begin: int,
    end: int,
    asked: npt.NDArray[np.bool_] | None,
) -> tuple[Spans, npt.NDArray[np.bool_]]:
    """The spans over the windows `begin .. end-1` alone (those `asked` for) of the `chosen` rows, and which of all rows
    have one."""
    if asked is None and end - begin == spans.n_windows:
        return spans, chosen
    held, has_one = spans.between(begin, end, asked)
    counted = np.zeros(chosen.size, np.bool_)
    counted[np.flatnonzero(chosen)[has_one]] = True
    return held, counted


def with_results(windows: pa.Table, aggregates: Aggregates, rows: WindowRows) -> pa.Table:
    """Windows with one column per aggregate."""
    for name, aggregate in aggregates.items():
        windows = windows.append_column(name, aggregate.evaluate(rows))
    return windows


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


def sorted_rows(table: pa.Table, placed: str | None, shape: Shape, inputs: Inputs) -> SortedRows:
    """The rows that can count, by key and time; `placed`: the column of times to sort by, if not their own."""
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
