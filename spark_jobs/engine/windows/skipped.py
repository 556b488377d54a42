"""Rows that do not count, by reason: rows without a window, and pairs of a late row and a window that had closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.kinds.adaptive import AdaptiveKind, Counting, counting_rows
from spark_jobs.engine.windows.kinds.kind import SpanKind, WindowKind
from spark_jobs.engine.windows.rows import SortedRows, able_rows
from spark_jobs.engine.windows.spans import Spans
from spark_jobs.engine.windows.streams import Carried, in_portions
from spark_jobs.engine.windows.tables import WindowInputs, bounds_type

Ints = npt.NDArray[np.int64]
_LEAST = -(2**63)


class Skips(ABC):
    """Finds the rows that one kind of windows leaves out; see `skipped_table` for the result."""

    windows_a_row: int
    """The greatest number of windows that a row may be late for."""

    @abstractmethod
    def told_at_once(self, table: pa.Table) -> tuple[list[pa.Table], pa.Table | None]:
        """Tables of the skipped rows that are found row by row, and the rows that need other rows of their key (None:
        no such rows). The table's rows may be in any order."""

    @abstractmethod
    def stream(self, chunks: Iterator[pa.Table], most_rows: int) -> Iterator[pa.Table]:
        """Tables of the skipped rows among the other rows, which come in the order (key, time); about `most_rows` are
        processed at a time."""


@dataclass(frozen=True)
class SpanSkips(Skips):
    """Finds the rows that windows of a `SpanKind` leave out; see `skipped_table`."""

    kind: SpanKind
    inputs: WindowInputs

    @property
    def windows_a_row(self) -> int:  # type: ignore[override]
        """The kind's own number of windows a row."""
        return self.kind.windows_a_row

    def told_at_once(self, table: pa.Table) -> tuple[list[pa.Table], pa.Table | None]:
        """Rows that can't count, and for sessions late rows: their lateness does not depend on other rows, either."""
        able, unable = unable_rows(table, self.kind, self.inputs)
        if self.inputs.min_end is None:
            return unable, None
        if self.kind.halo is None:
            return [*unable, late_table(able, self.kind, self.inputs)], None
        return unable, able

    def stream(self, chunks: Iterator[pa.Table], most_rows: int) -> Iterator[pa.Table]:
        """Pairs of a late row and a window, and late rows that are in no window."""
        return late_stream(chunks, self.kind, self.inputs, most_rows=most_rows)


@dataclass(frozen=True)
class AdaptiveSkips(Skips):
    """Finds the rows that adaptive windows leave out; none of them has bounds.

    These are rows that can't count: `null_key`, `null_time`, `null_value` (an id, a vector or a size). Rows late for
    their cell are listed twice, as for sessions: `late` and `late_row`. `repeated_id`: another row of the cell has the
    same id and counts."""

    kind: AdaptiveKind
    inputs: WindowInputs
    windows_a_row = 1

    def told_at_once(self, table: pa.Table) -> tuple[list[pa.Table], pa.Table | None]:
        """Rows that can't count; all others need the rows of their cell."""
        able, left_out = able_rows(table, self.inputs.key, self.inputs.time, self.kind.deltas.columns(), False)
        time_type = table.schema.field(self.inputs.time).type
        return [with_bounds(rows, None, reason, time_type) for reason, rows in left_out.items()], able

    def stream(self, chunks: Iterator[pa.Table], most_rows: int) -> Iterator[pa.Table]:
        """Late rows and rows with a repeated id, found in whole cells at a time."""

        reset = self.kind.cuts.reset

        def work(table: pa.Table, _: Carried | None) -> tuple[pa.Table, Carried]:
            counting = counting_rows(table, self.kind.cuts, self.kind.deltas, self.inputs)
            times, last_key = counting.rows.times, int(counting.rows.offsets[-2])
            cell = max(int(times[-1]) // reset * reset, -(2**63))
            opens = last_key + int(times[last_key:].searchsorted(cell))
            left = counting.rows.rows_from(opens).select(table.column_names)
            return self._skip(counting, opens), Carried(left, cell)

        def finish(table: pa.Table, _: Carried | None) -> pa.Table:
            counting = counting_rows(table, self.kind.cuts, self.kind.deltas, self.inputs)
            return self._skip(counting, counting.rows.times.size)

        return in_portions(chunks, work, finish, most_rows=most_rows)

    def _skip(self, counting: Counting, n: int) -> pa.Table:
        """The late rows and those with a repeated id among the first `n` rows."""
        rows = counting.rows
        late, repeated = ~counting.punctual[:n], counting.punctual[:n] & ~counting.chosen[:n]
        return pa.concat_tables(
            with_bounds(rows.table.take(pa.array(rows.order[:n][table])), None, reason, rows.time_type)
            for reason, table in (("late", late), ("late_row", late), ("repeated_id", repeated))
        )


def skips_of(kind: WindowKind, inputs: WindowInputs) -> Skips:
    """The finder of the rows that windows of a kind leave out."""
    if isinstance(kind, AdaptiveKind):
        return AdaptiveSkips(kind, inputs)
    assert isinstance(kind, SpanKind), "there are no others"
    return SpanSkips(kind, inputs)


def skipped_table(table: pa.Table, kind: SpanKind, inputs: WindowInputs) -> pa.Table:
    """The rows that do not count: the table's columns, `window_start`, `window_end`, `reason`.

    There is one row, without bounds, for each row that can't count (`null_key`, `null_time`, `null_value`,
    `negative_time`). There is one row for each pair of a late row and a window that it is too late for (`late`). Such a
    window exists when no row is taken as late, contains the row's time, and has its last instant before the row's
    `min_end`. Rows late for their session have no bounds. A late row that is in no window occurs once more, without
    bounds: `late_row`.
    """
    able, unable = unable_rows(table, kind, inputs)
    return pa.concat_tables([*unable, late_table(able, kind, inputs)])


def unable_rows(table: pa.Table, kind: SpanKind, inputs: WindowInputs) -> tuple[pa.Table, list[pa.Table]]:
    """The rows that can count, and the rows of `skipped_table` for those that can't."""
    required = kind.required_columns(inputs.aggregates)
    able, left_out = able_rows(table, inputs.key, inputs.time, required, kind.drop_negative)
    time_type = table.schema.field(inputs.time).type
    return able, [with_bounds(rows, None, reason, time_type) for reason, rows in left_out.items()]


def late_table(able: pa.Table, kind: SpanKind, inputs: WindowInputs) -> pa.Table:
    """The rows of `skipped_table` for rows that can count but are late."""
    rows = kind.sorted_rows(able, inputs)
    return _late(rows, kind, inputs, np.ones(rows.times.size, np.bool_))


def late_stream(
    chunks: Iterator[pa.Table],
    kind: SpanKind,
    inputs: WindowInputs,
    *,
    most_rows: int,
) -> Iterator[pa.Table]:
    """The tables of `late_table` for chunks of rows that can count, in the order (key, time); only for kinds with a
    `halo`.

    A row is listed once no later row can change a window over it. Rows that can change windows over later rows are
    carried over.

    Args:
        most_rows: the number of rows processed at a time, unless more are within reach of one row.
    """
    assert kind.halo is not None
    reach = sum(kind.halo)

    def work(table: pa.Table, carried: Carried | None) -> tuple[pa.Table, Carried]:
        rows = kind.sorted_rows(table, inputs)
        opens, until = int(rows.offsets[-2]), max(int(rows.times[-1]) - reach, _LEAST)
        asked = _told_first(rows, carried)
        asked[opens:] &= rows.times[opens:] < until
        left = rows.rows_from(opens + int(rows.times[opens:].searchsorted(max(until - reach, _LEAST))))
        return _late(rows, kind, inputs, asked), Carried(left, until)

    def finish(table: pa.Table, carried: Carried | None) -> pa.Table:
        rows = kind.sorted_rows(table, inputs)
        return _late(rows, kind, inputs, _told_first(rows, carried))

    return in_portions(chunks, work, finish, most_rows=most_rows)


def _told_first(rows: SortedRows, carried: Carried | None) -> npt.NDArray[np.bool_]:
    """Flags of all rows except those of the first key that have been listed already."""
    asked = np.ones(rows.times.size, np.bool_)
    if carried is not None:
        asked[: rows.offsets[1]] = rows.times[: rows.offsets[1]] >= carried.before
    return asked


def _late(rows: SortedRows, kind: SpanKind, inputs: WindowInputs, listed: npt.NDArray[np.bool_]) -> pa.Table:
    """The table of late rows and their windows, only for the rows that `listed` flags."""
    least = rows.ticks(inputs.min_end)
    if least is None or not np.any(least > rows.times):
        return with_bounds(rows.table.slice(0, 0), None, "", rows.time_type)
    counted = kind.find(rows.offsets, rows.times, least)[2]
    windows, spans, chosen = kind.find(rows.offsets, rows.times, None)
    nowhere = rows.table.take(pa.array(rows.order[~counted & listed]))
    last = kind.window_instants(windows)
    if last is None:
        pairs = with_bounds(nowhere, None, "late", rows.time_type)
    else:
        pair_rows, pair_windows = _late_pairs(spans.select(listed[chosen]), last, least[chosen & listed])
        numbers = rows.order[np.flatnonzero(chosen & listed)[pair_rows]]
        bounds = (windows.start[pair_windows], windows.end[pair_windows])
        pairs = with_bounds(rows.table.take(pa.array(numbers)), bounds, "late", rows.time_type)
    return pa.concat_tables([pairs, with_bounds(nowhere, None, "late_row", rows.time_type)])


def _late_pairs(spans: Spans, last: Ints, least: Ints) -> tuple[Ints, Ints]:
    """Pairs (row, window): the windows over each row that end too early for it, which come first in its span."""
    # last instants ascend within a span but not from key to key, so a binary search is made in each row's span
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


def with_bounds(table: pa.Table, bounds: tuple[Ints, Ints] | None, reason: str, time_type: pa.DataType) -> pa.Table:
    """The rows with `window_start`, `window_end` (null without bounds) and `reason`."""
    kind = bounds_type(time_type)
    for place, name in enumerate(("window_start", "window_end")):
        column = pa.nulls(table.num_rows, kind) if bounds is None else pa.array(bounds[place]).cast(kind)
        table = table.append_column(name, column)
    return table.append_column("reason", pa.array([reason] * table.num_rows, pa.string()))
