"""The interface of a kind of windows: the windows of rows, their places in time, and the windows that a row can change.

A row counts in a window iff the window's last instant is at or after the row's `min_end`. The last instant is `end` for
closed windows, `end - 1` for half-open ones; a row at t is in a session iff `t + gap` is at or after its `min_end`.
Bounds saturate at the ends of int64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.monoid import Aggregate, WindowRows, columns_read
from spark_jobs.engine.windows.rows import NullValues, SortedRows, sort_rows
from spark_jobs.engine.windows.spans import Settled, Spans, WindowSpans
from spark_jobs.engine.windows.tables import Found, WindowInputs, asked_for, rows_between, window_columns, with_results

if TYPE_CHECKING:
    from spark_jobs.engine.windows.tables import Wanted

Ints = npt.NDArray[np.int64]
Bounds = tuple[Ints, Ints]
SpansFound = tuple[WindowSpans, Spans, npt.NDArray[np.bool_]]
"""Windows ordered by (key, start), the spans of the rows that count in a window, and flags of those rows."""
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Grain:
    """Instants, `offset + n * length` in ticks, that no window crosses; a row changes no window on their other side."""

    length: int
    offset: int = 0


class WindowKind(ABC):
    """One kind of windows with its parameters, in ticks."""

    null_values: NullValues = "skip_value"
    drop_negative: bool = False
    half_open: bool = True
    tick: int = 1
    """The granularity of windows: rows count at whole ticks."""
    windows_a_row: int = 1
    """The greatest number of windows that a row may add."""
    identity: tuple[str, ...] = ("window_start",)
    """The columns that tell the windows of a key apart."""
    order_columns: tuple[str, ...] = ()
    """The columns by which the windows of a key are ordered before `position`; see `in_place`."""
    position: str = "window_start"
    """The column that orders, ascending, the windows with the same key and `order_columns`."""

    @property
    @abstractmethod
    def halo(self) -> tuple[int, int] | None:
        """The greatest distances, before and after a row, at which a window that the row can change starts. In ticks;
        None: any distance (sessions)."""

    @property
    def grain(self) -> Grain | None:
        """The instants at which the times of a key may be cut so that no row is needed on both sides; None: none."""
        return None

    @property
    def span(self) -> int:
        """The greatest distance, in ticks, that a window reaches from a row that can change it (plus one tick). For
        sessions, the gap."""
        assert self.halo is not None, "a kind without a halo says its span itself"
        return max(self.halo)

    @abstractmethod
    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """Per window, the first and the last time at which an inserted or retracted row can change it."""

    def affected_by(self, start: Ints, end: Ints) -> Bounds:
        """Per window, the first and the last time of a touched row that can make the published window and the new one
        differ. Within the bounds of `changed_by`, and for some kinds closer."""
        return self.changed_by(start, end)

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """Per window, the latest end of all windows over rows that can change it."""
        return end

    @abstractmethod
    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """Per window, True if no window of this kind can have these bounds."""

    @abstractmethod
    def last_instants(self, times: Ints) -> Bounds:
        """Per time, the last instants of the first and of the last window that can contain a row at that time."""

    def in_ticks(self, times: Ints) -> Ints:
        """The last whole tick up to each time."""
        return times if self.tick == 1 else times - times % self.tick

    def made_until(self, times: Ints) -> Ints:
        """Per time, the last instant of the last window that a row there makes, whatever other rows there are."""
        return self.last_instants(times)[1]

    def within(self, times: Ints, least: int, greatest: int) -> npt.NDArray[np.bool_]:
        """Per time, True if all windows that can contain a row at that time lie from `least` to `greatest`."""
        if self.halo is None:
            return (times >= least) & (times <= greatest)
        reach = self.span + 1
        inside = (times >= least + reach) & (times <= greatest - reach)
        near = np.flatnonzero(~inside)
        first, last = self.last_instants(times[near])
        inside[near] = (first >= least + self.halo[0]) & (last <= greatest - int(self.half_open))
        return inside

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """Per time, the greatest last instant, up to `limit`, of a window over it. The caller makes sure that there is
        such a window."""
        return np.minimum(self.last_instants(times)[1], limit)

    def settle(self, time: int, last_start: int | None) -> Settled:
        """The windows of a key that rows at or after `time` can't change. `last_start`: the start of the key's last
        window so far, if it has one."""
        assert self.halo is not None, "a kind without a halo says itself what is settled"
        before, after = self.halo
        start = max(time - before, _LEAST)
        return Settled(start, max(start - after, _LEAST))

    def required_columns(self, aggregates: Mapping[str, Aggregate]) -> list[str]:
        """The columns in which a null keeps a row out of every window."""
        return columns_read(aggregates.values()) if self.null_values == "skip_row" else []

    @abstractmethod
    def windows(self, table: pa.Table, inputs: WindowInputs) -> Found:
        """The windows of a table's rows, in any order."""

    def windows_after(self, open_windows: Any, table: pa.Table, inputs: WindowInputs) -> Found:
        """The windows of rows that continue from `open_windows`, which `Found.following` returned."""
        raise NotImplementedError(f"{type(self).__name__} windows follow from the rows alone")

    def in_place(self, windows: pa.Table) -> pa.Table:
        """Windows with the columns `order_columns` and `position` added, if they lack them."""
        return windows

    def place(self, time: int, number: int) -> tuple[tuple[int, ...], int]:
        """The values of `order_columns` and of `position` for the first window at or after `time`; `number`: its number
        within a cell, see `Settled`."""
        return (), time


class SpanKind(WindowKind):
    """A kind whose windows depend only on the times of rows."""

    @abstractmethod
    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """The windows of rows sorted by key and time."""

    def window_instants(self, windows: WindowSpans) -> Ints | None:
        """Per window, the instant that a row's `min_end` is compared with; None if a row's lateness does not depend on
        the window."""
        return windows.end

    def sorted_rows(self, table: pa.Table, inputs: WindowInputs) -> SortedRows:
        """The rows that can count, sorted by key and by the time at which they count."""
        return sort_rows(
            table,
            key=inputs.key,
            time=inputs.time,
            required=self.required_columns(inputs.aggregates),
            drop_negative=self.drop_negative,
            placed=inputs.placed,
        )

    def windows(self, table: pa.Table, inputs: WindowInputs) -> Found:
        """The windows of a table's rows, in any order."""
        rows, event_times = self.placed_rows(table, inputs)
        windows, spans, chosen = self.find(rows.offsets, rows.times, rows.ticks(inputs.min_end))

        def make_table(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
            bounds, asked = asked_for(pa.table(window_columns(rows, windows.between(begin, end))), wanted)
            counted_spans, counted = rows_between(spans, chosen, begin, end, asked)
            read = WindowRows(
                rows,
                counted_spans,
                counted,
                event_times,
                rows.places(inputs.sequence, inputs.arrival),
                inputs.overflows(),
            )
            return with_results(bounds, inputs, read)

        return Found(rows, windows, make_table, int(chosen.size - np.count_nonzero(chosen)))

    def placed_rows(self, table: pa.Table, inputs: WindowInputs) -> tuple[SortedRows, Ints | None]:
        """The rows that can count, sorted by key and by the time at which they count; and their own times, if rows may
        count at another time."""
        rows = self.sorted_rows(table, inputs)
        return rows, None if inputs.placed is None else rows.ticks(inputs.time)


def plus(times: Ints, distance: int) -> Ints:
    """`times + distance`, saturated; distance >= 0."""
    return np.where(times > _GREATEST - distance, _GREATEST, times + np.int64(distance))
