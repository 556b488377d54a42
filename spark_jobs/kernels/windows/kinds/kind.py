"""What every kind of windows tells of itself: how rows become windows, how windows lie in time, what a row can change.

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

from ..monoid import Aggregate, WindowRows, columns_read
from ..rows import NullValues, SortedRows, as_ticks, sort_rows
from ..spans import Settled, Spans, Windows
from ..tables import Found, Inputs, asked_for, rows_between, window_columns, with_results
from .ticks import Ticks

if TYPE_CHECKING:
    from ..tables import Wanted

Ints = npt.NDArray[np.int64]
Bounds = tuple[Ints, Ints]
SpansFound = tuple[Windows, Spans, npt.NDArray[np.bool_]]
"""Windows by (key, start), the spans of the rows that count somewhere, and which rows those are."""
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_PLACED = "__placed"


@dataclass(frozen=True)
class Grain:
    """Instants that no window crosses, and no row bears across: `offset + n * length`."""

    length: int
    offset: int = 0


class Kind(ABC):
    """One kind of windows with its parameters, in ticks."""

    null_values: NullValues = "skip_value"
    drop_negative: bool = False
    half_open: bool = True
    windows_a_row: int = 1
    """The most windows that a row may add."""
    identity: str = "window_start"
    """The column that tells the windows of a key apart."""
    order_columns: tuple[str, ...] = ()
    """Columns that windows are ordered by between their key and `position`; see `in_place`."""
    position: str = "window_start"
    """The column, ascending, by which windows are ordered that are equal in their key and `order_columns`."""

    @property
    @abstractmethod
    def halo(self) -> tuple[int, int] | None:
        """How far before and after a row the windows start that it bears on; None: any distance (sessions)."""

    @property
    def grain(self) -> Grain | None:
        """Instants at which keys may be cut so that no row is needed on both sides; None: there are none."""
        return None

    @property
    def span(self) -> int:
        """No window reaches further than this (and one tick) from a row that can change it; sessions: their gap."""
        assert self.halo is not None, "a kind without a halo says its span itself"
        return max(self.halo)

    @abstractmethod
    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """Per window the first and the last time at which a row that comes or goes can change it."""

    def affected_by(self, start: Ints, end: Ints) -> Bounds:
        """The same, as close as a comparison of published windows with new ones can have it: of a window with no such
        row both are equal."""
        return self.changed_by(start, end)

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """Per window the end, of all windows over rows that can change it, that comes last."""
        return end

    @abstractmethod
    def misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """Per window whether no window of this kind can lie there."""

    @abstractmethod
    def last_instants(self, times: Ints) -> Bounds:
        """Per time the last instants of the first and of the last window that can hold a row there."""

    def within(self, times: Ints, least: int, greatest: int) -> npt.NDArray[np.bool_]:
        """Per time whether all windows that can hold a row there begin at or after `least`, and end by `greatest`."""
        if self.halo is None:
            return (times >= least) & (times <= greatest)
        reach = self.span + 1
        inside = (times >= least + reach) & (times <= greatest - reach)
        near = np.flatnonzero(~inside)
        first, last = self.last_instants(times[near])
        inside[near] = (first >= least + self.halo[0]) & (last <= greatest - int(self.half_open))
        return inside

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """Per time the greatest last instant up to `limit` of a window over it; one such window there is."""
        return np.minimum(self.last_instants(times)[1], limit)

    def settled(self, time: int, last_start: int | None) -> Settled:
        """What rows at or after `time` leave alone; `last_start`: the start of the key's last window so far, if any."""
        assert self.halo is not None, "a kind without a halo says itself what is settled"
        before, after = self.halo
        start = max(time - before, _LEAST)
        return Settled(start, max(start - after, _LEAST))

    def required(self, aggregates: Mapping[str, Aggregate]) -> list[str]:
        """The columns in which a null makes a row count nowhere."""
        return columns_read(aggregates.values()) if self.null_values == "skip_row" else []

    @abstractmethod
    def windows(self, table: pa.Table, inputs: Inputs) -> Found:
        """The windows of a table's rows, in any order."""

    def windows_after(self, standing: Any, table: pa.Table, inputs: Inputs) -> Found:
        """The windows of rows that go on from what `Found.following` gave."""
        raise NotImplementedError(f"{type(self).__name__} windows follow from the rows alone")

    def in_place(self, windows: pa.Table) -> pa.Table:
        """Windows with the columns by which they are ordered."""
        return windows

    def place(self, time: int, number: int) -> tuple[tuple[int, ...], int]:
        """The `order_columns` and the position of the first window at or after `time`, whose number is `number`."""
        return (), time


class SpanKind(Kind):
    """A kind whose windows follow from the times of rows alone."""

    @abstractmethod
    def find(self, offsets: Ints, times: Ints, min_end: Ints | None) -> SpansFound:
        """The windows of rows sorted by key and time."""

    def window_instants(self, windows: Windows) -> Ints | None:
        """Per window the instant that a row's `min_end` is compared with; None if that is the row's own matter."""
        return windows.end

    def sorted_rows(self, table: pa.Table, inputs: Inputs, placed: str | None = None) -> SortedRows:
        """The rows that can count, by key and time; `placed`: the column of times to sort by, if not their own."""
        return sort_rows(
            table,
            key=inputs.key,
            time=inputs.time,
            required=self.required(inputs.aggregates),
            drop_negative=self.drop_negative,
            placed=placed,
        )

    def windows(self, table: pa.Table, inputs: Inputs) -> Found:
        """The windows of a table's rows, in any order; with `forward_to` a row that is late for all its windows counts
        in those over that time."""
        table, placed = self._placed(table, inputs)
        rows = self.sorted_rows(table, inputs, placed)
        event_times = None if inputs.forward_to is None else rows.ticks(inputs.time)
        windows, spans, chosen = self.find(rows.offsets, rows.times, rows.ticks(inputs.min_end))

        def made(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
            bounds, asked = asked_for(pa.table(window_columns(rows, windows.between(begin, end))), wanted)
            held, counted = rows_between(spans, chosen, begin, end, asked)
            read = WindowRows(
                rows, held, counted, event_times, rows.places(inputs.sequence, inputs.arrival), inputs.overflows()
            )
            return with_results(bounds, inputs, read)

        return Found(rows, windows, made, int(chosen.size - np.count_nonzero(chosen)))

    def _placed(self, table: pa.Table, inputs: Inputs) -> tuple[pa.Table, str | None]:
        """The column of times by which rows are placed where a late row moves on; None: their own."""
        if inputs.forward_to is None or inputs.min_end is None:
            return table, None
        if self.halo is None or max(self.halo[1], 0):
            raise TypeError(f"windows of {type(self).__name__} come from rows: no row can move on to the next one")
        own = as_ticks(table.column(inputs.time))
        late = as_ticks(table.column(inputs.min_end)) > self.last_instants(own)[1]
        placed = np.where(late, as_ticks(table.column(inputs.forward_to)), own)
        return table.append_column(_PLACED, pa.array(placed)), _PLACED


def plus(times: Ints, distance: int) -> Ints:
    """`times + distance`, saturated; distance >= 0."""
    return np.where(times > _GREATEST - distance, _GREATEST, times + np.int64(distance))
