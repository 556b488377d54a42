"""The emissions of windows of another kind: early results, and the result, of each window. FiringRules: `firings`.

An emission is a window of its own here: it has the key and the bounds of its window, and the columns `emission` (its
number in the window, from 1), `trigger` (its reason) and `emitted_at`. How emissions lie in time, what changes them and
which rows are late is as for their windows. So all code that makes and restates windows takes emissions, too.

Rows count in a run of windows, but in a window's later emissions alone. So the rows of some windows are listed window
after window; in that list, a row counts in the run from its first emission to its window's last. As many windows are
listed at a time as `_MOST_LISTED` allows, or one: its rows are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from spark_jobs.engine.windows.kinds.firings import Emissions, FiringRules, ListedRows
from spark_jobs.engine.windows.kinds.kind import Bounds, Grain, Settled, SpanKind, WindowKind
from spark_jobs.engine.windows.kinds.own_trigger import OwnTrigger, TriggerRows
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.monoid import Aggregate, WindowRows
from spark_jobs.engine.windows.rows import NullValues, SortedRows, settle_ties, writable
from spark_jobs.engine.windows.spans import Spans, WindowSpans
from spark_jobs.engine.windows.tables import (
    Found,
    Wanted,
    WindowInputs,
    asked_for,
    bounds_type,
    window_columns,
    with_results,
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_MOST_LISTED = 1 << 18
_PLACE = "__emission"


@dataclass(frozen=True)
class EmissionsKind(WindowKind):
    """The emissions of the windows of `base`. `size_bytes`: the column with the bytes of a row, for the trigger
    `size`."""

    base: SpanKind
    rules: FiringRules
    size_bytes: str | None = None
    identity = ("window_start", "emission")
    order_columns = ("window_start",)
    position = _PLACE

    @property
    def null_values(self) -> NullValues:  # type: ignore[override]
        """The treatment of nulls by the windows."""
        return self.base.null_values

    @property
    def drop_negative(self) -> bool:  # type: ignore[override]
        """True if the windows leave out rows before 0."""
        return self.base.drop_negative

    @property
    def half_open(self) -> bool:  # type: ignore[override]
        """True if the windows are half open."""
        return self.base.half_open

    @property
    def tick(self) -> int:  # type: ignore[override]
        """The granularity of the windows."""
        return self.base.tick

    @property
    def windows_a_row(self) -> int:  # type: ignore[override]
        """Two emissions of each window that a row may add: an early one, and the last."""
        return 2 * self.base.windows_a_row

    @property
    def halo(self) -> tuple[int, int] | None:
        """The halo of the windows."""
        return self.base.halo

    @property
    def grain(self) -> Grain | None:
        """The grain of the windows."""
        return self.base.grain

    @property
    def span(self) -> int:
        """The span of the windows."""
        return self.base.span

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The times of rows that can change the window: its first row may change its last emission."""
        return self.base.changed_by(start, end)

    def affected_by(self, start: Ints, end: Ints) -> Bounds:
        """As `changed_by`, or closer."""
        return self.base.affected_by(start, end)

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """The latest end of all windows over rows that can change the window."""
        return self.base.closes(start, end)

    def are_misplaced(self, start: Ints, end: Ints) -> Flags:
        """True if no window can have these bounds."""
        return self.base.are_misplaced(start, end)

    def last_instants(self, times: Ints) -> Bounds:
        """The last instants of the first and of the last window that can contain a row at each time."""
        return self.base.last_instants(times)

    def made_until(self, times: Ints) -> Ints:
        """The last instant of the last window that a row at each time makes."""
        return self.base.made_until(times)

    def within(self, times: Ints, least: int, greatest: int) -> Flags:
        """True if all windows that can contain a row at that time lie from `least` to `greatest`."""
        return self.base.within(times, least, greatest)

    def latest_before(self, times: Ints, limit: Ints) -> Ints:
        """The greatest last instant, up to `limit`, of a window over each time."""
        return self.base.latest_before(times, limit)

    def settle(self, time: int, last_start: int | None) -> Settled:
        """The windows of a key that rows at or after `time` can't change."""
        return self.base.settle(time, last_start)

    def required_columns(self, aggregates: Mapping[str, Aggregate]) -> list[str]:
        """The columns in which a null keeps a row out of every window; those of triggers are not among them."""
        return self.base.required_columns(aggregates)

    def in_place(self, windows: pa.Table) -> pa.Table:
        """Emissions with their number in one more column, which orders those of a window."""
        return windows.append_column(_PLACE, windows.column("emission"))

    def place(self, time: int, number: int) -> tuple[tuple[int, ...], int]:
        """Before the emissions of the first window that starts at or after `time`."""
        return (time,), 0

    def windows(self, table: pa.Table, inputs: WindowInputs) -> Found:
        """The emissions of the windows of a table's rows, in any order."""
        rows, own_times = self.base.placed_rows(table, inputs)
        order = settle_ties(rows.group, rows.times, [own_times, rows.places(inputs.sequence, inputs.arrival)])
        rows = replace(rows, order=rows.order[order], in_place=False)
        windows, spans, chosen = self.base.find(rows.offsets, rows.times, rows.ticks(inputs.min_end))
        content = _Content(
            rows,
            np.flatnonzero(chosen),
            spans,
            _last_rows(spans.first, spans.n_windows),
            None if own_times is None else own_times[order],
            rows.places(inputs.sequence, inputs.arrival),
        )
        emissions = self._emit(content, windows)
        of = emissions.window
        each = WindowSpans(windows.group[of], windows.start[of], windows.end[of])
        number = np.arange(1, of.size + 1) - np.searchsorted(of, of)
        reasons, time_type = pa.array(self.rules.reasons, pa.string()), bounds_type(rows.time_type)

        def make_table(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
            own_columns = {
                "emission": pa.array(number[begin:end]),
                "trigger": reasons.take(pa.array(emissions.reason[begin:end])),
                "emitted_at": pa.array(emissions.at[begin:end]).cast(time_type),
            }
            without_results = pa.table({**window_columns(rows, each.between(begin, end)), **own_columns})
            without_results, is_wanted = asked_for(without_results, wanted)
            numbers = np.arange(begin, end) if is_wanted is None else begin + np.flatnonzero(is_wanted)
            return pa.concat_tables(
                with_results(
                    without_results.slice(first, past - first),
                    inputs,
                    content.read(emissions, numbers[first:past], inputs),
                )
                for first, past in content.parts(of[numbers])
            )

        return Found(rows, each, make_table, int(chosen.size - np.count_nonzero(chosen)))

    def _emit(self, content: _Content, windows: WindowSpans) -> Emissions:
        """All emissions of the windows, some windows at a time."""
        rows, last = content.rows, self.base.window_instants(windows)
        last = windows.end if last is None else last
        sizes = None if self.size_bytes is None else writable(rows.column(self.size_bytes).cast(pa.int64()))
        parts = [Emissions.none()]
        for begin, end in _parts(content.spans.counts):
            taken, bounds = content.list_rows(np.arange(begin, end))
            of = np.repeat(np.arange(end - begin), np.diff(bounds))
            emitted = self.rules.fire(
                ListedRows(
                    bounds, rows.times[taken], np.zeros(taken.size, np.int64) if sizes is None else sizes[taken]
                ),
                (windows.start[begin:end], windows.end[begin:end], last[begin:end]),
                partial(OwnTrigger.flags, rows=TriggerRows(rows, taken, of)),
            )
            parts.append(replace(emitted, window=emitted.window + begin))
        return Emissions(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(Emissions)))


@dataclass(frozen=True)
class _Content:
    """The rows of windows, in the order in which they count.

    Args:
        counted: the numbers of the `rows` that count, to which `spans` belong.
        last: per window, one more than the place in `counted` of the last row that may be in it.
        own_times, arrival: as in `WindowRows`.
    """

    rows: SortedRows
    counted: Ints
    spans: Spans
    last: Ints
    own_times: Ints | None
    arrival: Ints | None

    def list_rows(self, windows: Ints) -> tuple[Ints, Ints]:
        """The numbers of the rows of these windows, which ascend, window after window, and the bounds of each window's
        rows in this list."""
        places, bounds = _list_rows(self.spans.first, self.spans.past, self.last, windows)
        return self.counted[places], bounds

    def parts(self, windows: Ints) -> Iterator[tuple[int, int]]:
        """Cut emissions, given the window of each, between windows, into parts whose windows have few enough rows."""
        each, begins = np.unique(windows, return_index=True)
        begins = np.append(begins, windows.size)
        for begin, end in _parts(self.spans.counts[each]):
            yield int(begins[begin]), int(begins[end])

    def read(self, emissions: Emissions, numbers: Ints, inputs: WindowInputs) -> WindowRows:
        """The rows of the emissions with these numbers, which ascend."""
        windows = np.unique(emissions.window[numbers])
        taken, bounds = self.list_rows(windows)
        begin, end = (int(numbers[0]), int(numbers[-1]) + 1) if numbers.size else (0, 0)
        is_wanted = np.zeros(end - begin, np.bool_)
        is_wanted[numbers - begin] = True
        spans, has_one = _spans(bounds, emissions, windows).between(begin, end, is_wanted)
        taken, of = taken[has_one], np.repeat(np.arange(windows.size), np.diff(bounds))[has_one]
        rows = replace(
            self.rows,
            order=self.rows.order[taken],
            offsets=np.searchsorted(of, np.arange(windows.size + 1)),
            times=self.rows.times[taken],
        )
        own_times, arrival = (None if each is None else each[taken] for each in (self.own_times, self.arrival))
        return WindowRows(rows, spans, np.ones(taken.size, np.bool_), own_times, arrival, inputs.overflows())


def _parts(counts: Ints) -> Iterator[tuple[int, int]]:
    """Cut windows with these numbers of rows into parts of at most `_MOST_LISTED` rows, or of one window; at least one
    part."""
    ends = np.cumsum(counts)
    begin = 0
    while True:
        before = int(ends[begin - 1]) if begin else 0
        end = max(int(ends.searchsorted(before + _MOST_LISTED, side="right")), min(begin + 1, counts.size))
        yield begin, end
        begin = end
        if begin >= counts.size:
            return


def _spans(bounds: Ints, emissions: Emissions, windows: Ints) -> Spans:
    """The spans of listed rows over all emissions: from a row's first emission to its window's last."""
    of = emissions.window
    begins, ends = of.searchsorted(windows), of.searchsorted(windows, side="right")
    return Spans(*_first_emissions(bounds, begins, ends, emissions.upto), of.size)


@njit(cache=True, nogil=True)
def _first_emissions(bounds: Ints, begins: Ints, ends: Ints, upto: Ints) -> tuple[Ints, Ints]:
    first, past = np.empty(bounds[-1], np.int64), np.empty(bounds[-1], np.int64)
    for window in range(begins.size):
        emission = begins[window]
        for row in range(bounds[window], bounds[window + 1]):
            while upto[emission] <= row - bounds[window]:
                emission += 1
            first[row], past[row] = emission, ends[window]
    return first, past


@njit(cache=True, nogil=True)
def _last_rows(first: Ints, n_windows: int) -> Ints:
    """Per window, one more than the last row whose first window is not after it."""
    last = np.zeros(n_windows, np.int64)
    for row in range(first.size):
        last[first[row]] = row + 1
    for window in range(1, n_windows):
        last[window] = max(last[window], last[window - 1])
    return last


@njit(cache=True, nogil=True)
def _list_rows(first: Ints, past: Ints, last: Ints, windows: Ints) -> tuple[Ints, Ints]:
    """The rows of each of the windows, window after window, and the bounds of each window's rows."""
    bounds = np.zeros(windows.size + 1, np.int64)
    listed = np.empty(0, np.int64)
    for fills in (False, True):
        n, begin = 0, 0
        for place in range(windows.size):
            window = windows[place]
            while begin < past.size and past[begin] <= window:
                begin += 1
            for row in range(begin, last[window]):
                # a row that is late for this window alone is between rows that count in it
                if first[row] <= window:
                    if fills:
                        listed[n] = row
                    n += 1
            bounds[place + 1] = n
        if not fills:
            listed = np.empty(n, np.int64)
    return listed, bounds
