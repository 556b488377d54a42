"""From the spans of windows to tables of windows, for all kinds.

A kind takes a table, in any order, with all rows of its keys. It returns one row per window (key columns,
`window_start`, `window_end`, one column per aggregate; ordered by key and start) and the counts of rows that count
nowhere. Times are integer or timestamp columns; a tick is one unit of their resolution. Bounds have the time column's
type (int64 for every integer).

`min_end` names an int64 column, see `kinds.kind`; its values make the policy:

    never late              the least int64, or no column
    grace                   greatest time up to the row's arrival - grace
    of a source file        see `lateness`

`arrival` names a column that breaks ties of time for `first` and `last`; `sequence` one that breaks them before it.
`null_values`: see `rows.NullValues`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.monoid import Aggregate, Overflow, WindowRows
from spark_jobs.engine.windows.rows import SkippedRows, SortedRows
from spark_jobs.engine.windows.spans import Settled, Spans, WindowSpans

Ints = npt.NDArray[np.int64]
Aggregates = Mapping[str, Aggregate]
Overflowed = Callable[[str, pa.Table], None]
"""Takes the name of a result column, and the windows whose result does not fit: key columns, `window_start`, and
`about`, the approximate result."""
Wanted = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Flags the wanted windows, given their key columns, `window_start` and `window_end`. The others are not made: at the
edge of the rows read, a window may have only half its rows, and their sum may overflow where the whole sum does not."""


@dataclass(frozen=True)
class WindowInputs:
    """The input columns of windows, by their names in a table, and the aggregates."""

    key: list[str]
    time: str
    aggregates: Aggregates
    min_end: str | None = None
    placed: str | None = None
    """An int64 column of the times at which rows count; None: at their own. `first` and `last` go by a row's own
    time."""
    arrival: str | None = None
    sequence: str | None = None
    overflowed: Overflowed | None = None
    """Called with results that do not fit into their types, which become null; None: such a result is an error."""

    def overflows(self) -> list[Overflow] | None:
        """A new list for results that do not fit into their types; None: such a result is an error."""
        return None if self.overflowed is None else []

    def report(self, column: str, windows: pa.Table, rows: WindowRows) -> None:
        """Pass the listed overflows of a result column to `overflowed`, and clear the list."""
        if rows.overflows and self.overflowed is not None:
            for beyond, about in rows.overflows:
                of_windows = windows.select([*self.key, "window_start"]).append_column("about", pa.array(about))
                self.overflowed(column, of_windows.filter(pa.array(beyond)))
            rows.overflows.clear()


@dataclass(frozen=True)
class Reached:
    """The last place that the rows of a stream have reached: a key, as a table of one row, and a time."""

    key: pa.Table
    time: int


@dataclass(frozen=True)
class Found:
    """The windows of some rows, made when asked for: `table(begin, end, wanted)` returns the windows numbered
    `begin .. end-1`, only the `wanted` ones (None: all).

    `late_rows`: the number of rows that are late for all their windows. `following`: for a kind that remembers more
    than rows, the state of a key after its last row.
    """

    rows: SortedRows
    windows: WindowSpans
    table: Callable[[int, int, Wanted | None], pa.Table]
    late_rows: int = 0
    following: Callable[[Reached], tuple[Settled, Any]] | None = None
    """Returns the windows that later rows can't change, and the state that `Kind.windows_after` takes with those rows;
    None for kinds whose windows depend on rows alone."""

    @property
    def skipped(self) -> SkippedRows:
        """The numbers of rows that count in no window, by reason."""
        return replace(self.rows.skipped, late_rows=self.late_rows)


def asked_for(windows: pa.Table, wanted: Wanted | None) -> tuple[pa.Table, npt.NDArray[np.bool_] | None]:
    """The windows that `wanted` asks for, and flags of them among `windows`; None: all of them."""
    asked = None if wanted is None else wanted(windows)
    return (windows, None) if asked is None or asked.all() else (windows.filter(pa.array(asked)), asked)


def rows_between(
    spans: Spans,
    chosen: npt.NDArray[np.bool_],
    begin: int,
    end: int,
    asked: npt.NDArray[np.bool_] | None,
) -> tuple[Spans, npt.NDArray[np.bool_]]:
    """The spans of the `chosen` rows over the windows `begin .. end-1` (only those `asked` for, unless None), and flags
    of the rows, of all rows, that have such a span."""
    if asked is None and end - begin == spans.n_windows:
        return spans, chosen
    counted_spans, has_one = spans.between(begin, end, asked)
    counted = np.zeros(chosen.size, np.bool_)
    counted[np.flatnonzero(chosen)[has_one]] = True
    return counted_spans, counted


def with_results(windows: pa.Table, inputs: WindowInputs, rows: WindowRows) -> pa.Table:
    """Windows with one column added per aggregate; `inputs.overflowed` is called with results that do not fit."""
    results = windows
    inputs.report("stats", windows, rows)
    for name, aggregate in inputs.aggregates.items():
        results = results.append_column(name, aggregate.evaluate(rows))
        inputs.report(name, windows, rows)
    return results


def window_columns(rows: SortedRows, windows: WindowSpans) -> dict[str, pa.Array]:
    """The key columns and the bounds of windows, by their names."""
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
