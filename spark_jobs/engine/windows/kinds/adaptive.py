"""Adaptive windows of an Arrow table: the rows that count, the windows, and the windows' own columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.equality import same_values
from spark_jobs.engine.windows.aggregates import exact_totals
from spark_jobs.engine.windows.exact import integer_means
from spark_jobs.engine.windows.kinds.cuts import (
    REASONS,
    Cuts,
    CutState,
    Cutting,
    adaptive_spans,
    cell_ends,
    first_of_deltas,
    in_time,
    state_before,
)
from spark_jobs.engine.windows.kinds.kind import Bounds, Grain, Settled, WindowKind
from spark_jobs.engine.windows.kinds.seen import Seen
from spark_jobs.engine.windows.kinds.ticks import Ticks
from spark_jobs.engine.windows.monoid import Aggregate, WindowRows
from spark_jobs.engine.windows.rows import SortedRows, encode, settle_ties, sort_rows, writable
from spark_jobs.engine.windows.spans import Spans, WindowSpans
from spark_jobs.engine.windows.sweeps import distinct_counts
from spark_jobs.engine.windows.tables import (
    Found,
    Reached,
    Wanted,
    WindowInputs,
    asked_for,
    rows_between,
    window_columns,
    with_results,
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Deltas:
    """The names of the columns that describe the rows of adaptive windows."""

    delta: str
    """The column with the id of a row: it breaks ties of time, and is listed in the window."""
    vector: str | None = None
    """The column with the vector that a row changes; a window counts the distinct vectors."""
    size_bytes: str | None = None
    """The column with the size of a row in bytes; None: all sizes are 0."""
    unique: bool = False
    """True if no two standing rows have the same id, so that ids need not be remembered."""

    def columns(self) -> list[str]:
        """The columns that must not be null."""
        return [name for name in (self.delta, self.vector, self.size_bytes) if name is not None]


def _stats_type(cuts: Cuts) -> pa.StructType:
    whole = ("delta_count", "vectors_affected", "total_bytes")
    rate = [] if cuts.rate_window is None else [("rate", pa.float64()), ("rate_window", pa.int64())]
    return pa.struct(
        [*((name, pa.int64()) for name in whole), ("avg_delta_size", pa.float64()), ("duration", pa.int64()), *rate]
    )


@dataclass(frozen=True)
class AdaptiveKind(WindowKind):
    """Windows whose length follows the rate of rows, cut by triggers; see `cuts` for the rules.

    A window's own columns are `window_id` (`<cell>.<place in the cell>`, unique within a key), `delta_ids`, `stats` and
    `trigger`. Rows whose key, time, id, vector or size is null are in no window (`null_value`). IntegerOverflow where a
    window's bytes pass int64.
    """

    cuts: Cuts
    deltas: Deltas
    identity = ("window_id",)
    order_columns = ("__cell",)
    position = "__number"

    @property
    def stats_type(self) -> pa.StructType:
        """The type of the column `stats`; `duration` and `rate_window` in ticks."""
        return _stats_type(self.cuts)

    def required_columns(self, aggregates: Mapping[str, Aggregate]) -> list[str]:
        """The columns that describe a row."""
        return self.deltas.columns()

    @property
    def halo(self) -> tuple[int, int]:
        """A cell in either direction: the windows of a cell depend on all rows of the cell."""
        return self.cuts.reset - 1, self.cuts.reset - 1

    @property
    def grain(self) -> Grain:
        """The bounds of the cells, which no window crosses."""
        return Grain(self.cuts.reset)

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """The first and the last instant of the window's cell."""
        cell = start - start % self.cuts.reset
        return cell, cell + (self.cuts.reset - 1)

    def affected_by(self, start: Ints, end: Ints) -> Bounds:
        """From the start of the window's cell to the instant at which the window closes: a cell is cut from its
        beginning on."""
        return start - start % self.cuts.reset, end

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """The end of the window's cell: all windows of a cell close by then."""
        return start - start % self.cuts.reset + self.cuts.reset

    def are_misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """True for bounds that end before they start, or after their cell."""
        return (end < start) | (end - start > self.cuts.reset - start % self.cuts.reset)

    def last_instants(self, times: Ints) -> Bounds:
        """The last instant of each time's cell, twice: a row is late for all windows of its cell, or for none."""
        last = cell_ends(times, self.cuts.reset)
        return last, last

    def settle(self, time: int, last_start: int | None) -> Settled:
        """All windows before the cell of `time`, as windows never cross a cell."""
        start = max(time // self.cuts.reset * self.cuts.reset, -(2**63))
        return Settled(start, start)

    def windows(self, table: pa.Table, inputs: WindowInputs) -> Found:
        """The windows of a table's rows, in any order."""
        return _find(table, self.cuts, self.deltas, inputs, _Standing())

    def windows_after(self, open_windows: _Standing, table: pa.Table, inputs: WindowInputs) -> Found:
        """The windows of a table's rows. The rows of one key continue from `open_windows`."""
        return _find(table, self.cuts, self.deltas, inputs, open_windows)

    def in_place(self, windows: pa.Table) -> pa.Table:
        """Windows with two more columns: the number of their cell, and their place in it."""
        parts = pc.split_pattern(windows.column("window_id"), ".")
        for place, column in enumerate((*self.order_columns, self.position)):
            windows = windows.append_column(column, pc.list_element(parts, place).cast(pa.int64()))
        return windows

    def place(self, time: int, number: int) -> tuple[tuple[int, ...], int]:
        """The number of the cell of `time`, and the window's number in the cell."""
        return (time // self.cuts.reset,), number


@dataclass(frozen=True)
class _Standing:
    """The state of a key before later rows of the cell of `state`: the state of cutting, and the ids that counted in
    that cell."""

    key: pa.Table | None = None
    state: CutState | None = None
    seen: Seen | None = None

    def before(self, rows: SortedRows) -> _Standing:
        """This state if the first of these rows are of its key, else an empty one: all rows of its key may have been
        retracted."""
        goes_on = self.key is not None and rows.offsets.size > 1 and _same_key(rows.keys.slice(0, 1), self.key)
        return self if goes_on else _Standing()


@dataclass(frozen=True)
class Counting:
    """The rows that can count, in the order in which they count, and their ids. `punctual` flags the rows that are not
    late, `chosen` the punctual rows that are the first of their delta in their cell."""

    rows: SortedRows
    ids: pa.Array
    punctual: Flags
    chosen: Flags


def counting_rows(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: WindowInputs) -> Counting:
    """The rows of a table that can count, in the order in which they count; see `Counting`."""
    rows = sort_rows(table, key=inputs.key, time=inputs.time, required=deltas.columns(), placed=inputs.placed)
    ids = rows.column(deltas.delta)
    # rows with one id and one time are ordered by all other columns, so that the order of the table does not matter
    compared = (*inputs.key, inputs.placed or inputs.time, deltas.delta)
    others = (rows.column(n) for n in table.column_names if n not in compared)
    order = settle_ties(rows.group, rows.times, chain([ids], others))
    rows, ids = replace(rows, order=rows.order[order], in_place=False), ids.take(pa.array(order))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    punctual = in_time(rows.times, cuts, rows.ticks(inputs.min_end))
    return Counting(rows, ids, punctual, punctual if deltas.unique else _once(ids, punctual, cells))


def _find(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: WindowInputs, open_windows: _Standing) -> Found:
    """The windows of a table; the first key continues from `open_windows` if that is the state of this key."""
    counting = counting_rows(table, cuts, deltas, inputs)
    rows, ids, punctual = counting.rows, counting.ids, counting.punctual
    before = open_windows.before(rows)
    chosen = counting.chosen & _unseen(rows, ids, cuts, before)
    sizes = np.zeros(rows.times.size, np.int64)
    if deltas.size_bytes is not None:
        sizes = writable(rows.column(deltas.size_bytes).cast(pa.int64()))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    windows, spans, cutting = adaptive_spans(**cells, sizes=sizes, counted=chosen, state=before.state)
    names = _ids(windows, cuts.reset, before.state)

    def make_table(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
        part = windows.between(begin, end)
        bounds = pa.table({**window_columns(rows, part), "window_id": names.slice(begin, end - begin)})
        described, asked = asked_for(bounds, wanted)
        counted_spans, counted = rows_between(spans, chosen, begin, end, asked)
        own_cutting = cutting.select(slice(begin, end))
        if asked is not None:
            part, own_cutting = part.select(asked), own_cutting.select(asked)
        read = WindowRows(
            rows,
            counted_spans,
            counted,
            None if inputs.placed is None else rows.ticks(inputs.time),
            arrival=rows.places(inputs.sequence, inputs.arrival),
            overflows=inputs.overflows(),
        )
        columns = {
            "delta_ids": _lists(ids.filter(pa.array(counted)), counted_spans),
            "stats": _stats(read, part, sizes[counted], deltas, cuts, own_cutting),
            "trigger": pa.array(REASONS, pa.string()).take(pa.array(own_cutting.reason)),
        }
        for name, column in columns.items():
            described = described.append_column(name, column)
        return with_results(described, inputs, read)

    def go_on(reached: Reached) -> tuple[Settled, _Standing]:
        return _continue_after(rows, ids if not deltas.unique else None, chosen, sizes, cuts, open_windows, reached)

    late = int(punctual.size - np.count_nonzero(punctual))
    return Found(rows, windows, make_table, late, go_on)


def _continue_after(
    rows: SortedRows,
    ids: pa.Array | None,
    chosen: Flags,
    sizes: Ints,
    cuts: Cuts,
    open_windows: _Standing,
    reached: Reached,
) -> tuple[Settled, _Standing]:
    """The time from which on rows of the reached key are needed again, and the key's state before that time.

    Later rows may have the last time, too, and count before the present rows of that time; so those decide nothing yet.
    All rows from the start of the open window on are needed. `ids` are remembered in the state (None: no ids are).
    """
    last, cell = reached.time, reached.time // cuts.reset
    opens, past = _rows_of(rows, reached.key)
    same_key = open_windows.key is not None and _same_key(open_windows.key, reached.key)
    goes_on = same_key and open_windows.state is not None and open_windows.state.cell == cell
    state, seen = (open_windows.state, open_windows.seen) if goes_on else (None, None)
    times = rows.times[opens:past]
    first = opens + int(np.searchsorted(times // cuts.reset, cell))

    def until(time: int) -> Ints:
        return first + np.flatnonzero(chosen[first : opens + int(times.searchsorted(time))])

    before, decided = last, until(last)
    after = state_before(rows.times[decided], sizes[decided], cuts, cell, state)
    if after is not None and after.open_since is not None and after.open_at(last, cuts):
        before = after.open_since
        decided = until(before)
        after = state_before(rows.times[decided], sizes[decided], cuts, cell, state)
    if ids is not None:
        seen = Seen.of(ids.type) if seen is None else seen
        seen.add(ids.take(pa.array(decided)))
    number = 0 if after is None else after.windows + int(after.open_since is not None)
    return Settled(before, before, number), _Standing(reached.key, after, seen)


def _rows_of(rows: SortedRows, key: pa.Table) -> tuple[int, int]:
    """The bounds of a key's rows: the key is the last one, or it has no rows."""
    last = rows.offsets.size - 2
    if last >= 0 and _same_key(rows.keys.slice(last, 1), key):
        return int(rows.offsets[last]), int(rows.offsets[last + 1])
    return rows.times.size, rows.times.size


def _same_key(one: pa.Table, other: pa.Table) -> bool:
    """True if two tables of one row are equal; NaN equals NaN."""
    return all(same_values(these, its)[0] for these, its in zip(one.columns, other.columns, strict=True))


def _unseen(rows: SortedRows, ids: pa.Array, cuts: Cuts, open_windows: _Standing) -> Flags:
    """Flags of the rows whose delta has not counted in their cell before."""
    unseen = np.ones(rows.times.size, np.bool_)
    if open_windows.state is not None and open_windows.seen is not None and rows.offsets.size > 1:
        cells = rows.times[: int(rows.offsets[1])] // cuts.reset
        own_cell = slice(*np.searchsorted(cells, [open_windows.state.cell, open_windows.state.cell + 1]).tolist())
        unseen[own_cell] = ~open_windows.seen.holds(ids[own_cell])
    return unseen


def _once(ids: pa.Array, punctual: Flags, cells: dict[str, Any]) -> Flags:
    """Flags of the rows that count: of the rows that are not late, the first of each delta in a cell."""
    encoded = ids.dictionary_encode()
    if len(encoded.dictionary) == len(ids):
        return punctual
    return first_of_deltas(**cells, deltas=writable(encoded.indices.cast(pa.int64())), counted=punctual)


def _ids(windows: WindowSpans, reset: int, state: CutState | None) -> pa.Array:
    cell = windows.start // reset
    opens = np.ones(cell.size, np.bool_)
    opens[1:] = (windows.group[1:] != windows.group[:-1]) | (cell[1:] != cell[:-1])
    places = np.arange(cell.size)
    first = np.maximum.accumulate(np.where(opens, places, 0)) if cell.size else places
    number = places - first
    if state is not None:
        number = number + np.where((windows.group == 0) & (cell == state.cell), state.windows, 0)
    texts = (pa.array(part).cast(pa.string()) for part in (cell, number))
    return pc.binary_join_element_wise(*texts, ".")


def _lists(values: pa.Array, spans: Spans) -> pa.Array:
    ends = np.concatenate(([0], np.cumsum(spans.counts)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _stats(
    read: WindowRows, windows: WindowSpans, sizes: Ints, deltas: Deltas, cuts: Cuts, cutting: Cutting
) -> pa.Array:
    spans = read.spans
    affected: npt.NDArray[Any] = np.zeros(spans.n_windows, np.int64)
    if deltas.vector is not None:
        codes, distinct = encode(read.rows.column(deltas.vector))
        affected = distinct_counts(
            codes[read.chosen], len(distinct), spans.first, spans.past, spans.entry, spans.n_windows
        )
    total = exact_totals(read, deltas.size_bytes or "size", sizes, spans)
    mean = integer_means(sizes, spans.first, spans.past, spans.entry, spans.n_windows)
    fields = [spans.counts, affected, total, mean, windows.end - windows.start]
    if cuts.rate_window is not None:
        fields += [cutting.rate, cutting.rate_window]
    return pa.StructArray.from_arrays([pa.array(part) for part in fields], fields=list(_stats_type(cuts)))
