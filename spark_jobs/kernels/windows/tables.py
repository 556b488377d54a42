"""From the spans of windows to tables of them, whatever their kind.

A kind takes a table in any order that holds all rows of its keys, and gives one row per window (key columns,
`window_start`, `window_end`, one column per aggregate; ordered by key and start) and the counts of rows that count
nowhere. Times are integer or timestamp columns, one unit of their resolution being the tick; bounds have the time
column's type (int64 for every integer).

`min_end` names an int64 column, see `kinds.kind`; what it holds makes the policy:

    never late              the least int64, or no column
    grace                   greatest time up to the row's arrival - grace
    of a source file        see `lateness`

`arrival` names a column that breaks ties of time for `first` and `last`, `sequence` one that does so before it.
`null_values`: see `rows.NullValues`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .monoid import Aggregate, Overflow, WindowRows
from .rows import SkippedRows, SortedRows
from .spans import Settled, Spans, Windows

Ints = npt.NDArray[np.int64]
Aggregates = Mapping[str, Aggregate]
Overflowed = Callable[[str, pa.Table], None]
"""Takes a result column, and the windows whose result does not fit: key columns, `window_start`, and `about` how much
it is."""
Wanted = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Of windows given by key columns, `window_start` and `window_end`: which are asked for. The others are not made: at
the edge of what was read a window may have half its rows, whose sum need not fit where the sum of all of them does."""


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
    sequence: str | None = None
    overflowed: Overflowed | None = None
    """Who is told of results that do not fit into their types, which are null then; None: they are an error."""

    def overflows(self) -> list[Overflow] | None:
        """Where results that do not fit are to be listed; None: they are an error."""
        return None if self.overflowed is None else []

    def report(self, column: str, windows: pa.Table, rows: WindowRows) -> None:
        """Tell of the results of a column that did not fit; they are listed no longer."""
        if rows.overflows and self.overflowed is not None:
            for beyond, about in rows.overflows:
                of_windows = windows.select([*self.key, "window_start"]).append_column("about", pa.array(about))
                self.overflowed(column, of_windows.filter(pa.array(beyond)))
            rows.overflows.clear()


@dataclass(frozen=True)
class Reached:
    """How far the rows of a stream have come: to a key, which is the row of a table with its columns, and a time."""

    key: pa.Table
    time: int


@dataclass(frozen=True)
class Found:
    """The windows of some rows, made when asked for: `table(begin, end, wanted)` gives those numbered `begin .. end-1`,
    of them the `wanted` ones (None: all).

    `late_rows`: how many rows are late for all their windows. `following`: of a kind that remembers more than rows,
    where a key stands after its last row.
    """

    rows: SortedRows
    windows: Windows
    table: Callable[[int, int, Wanted | None], pa.Table]
    late_rows: int = 0
    following: Callable[[Reached], tuple[Settled, Any]] | None = None
    """What rows to come leave alone, and what `Kind.windows_after` is given with them."""

    @property
    def skipped(self) -> SkippedRows:
        """Rows that count in no window, by reason."""
        return replace(self.rows.skipped, late_rows=self.late_rows)


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


def with_results(windows: pa.Table, inputs: Inputs, rows: WindowRows) -> pa.Table:
    """Windows with one column per aggregate; `inputs.overflowed` is told of results that do not fit."""
    results = windows
    inputs.report("stats", windows, rows)
    for name, aggregate in inputs.aggregates.items():
        results = results.append_column(name, aggregate.evaluate(rows))
        inputs.report(name, windows, rows)
    return results


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
