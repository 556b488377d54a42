"""Adaptive windows of an Arrow table: who counts, which windows there are, and what these tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.equality import same_values

from ..aggregates import exact_totals
from ..exact import integer_means
from ..monoid import Aggregate, WindowRows
from ..rows import SortedRows, encode, own, settle_ties, sort_rows
from ..spans import Spans, Windows
from ..sweeps import distinct_counts
from ..tables import Found, Inputs, Reached, Wanted, asked_for, rows_between, window_columns, with_results
from .cuts import REASONS, Cuts, CutState, adaptive_spans, cell_ends, first_of_deltas, in_time, state_before
from .kind import Bounds, Grain, Kind, Settled
from .seen import Seen
from .ticks import Ticks

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Deltas:
    """Which columns describe the rows of adaptive windows."""

    delta: str
    """The id of a row: it breaks ties of time, and is listed in the window."""
    vector: str | None = None
    """What a row changes; a window counts the different ones."""
    size_bytes: str | None = None
    """The size of a row; None: 0."""
    unique: bool = False
    """No two rows that stand have one id: none need be remembered."""

    def columns(self) -> list[str]:
        """The columns that must not be null."""
        return [name for name in (self.delta, self.vector, self.size_bytes) if name is not None]


def stats_type() -> pa.DataType:
    """The type of the column `stats`; `duration` in ticks."""
    whole = ("delta_count", "vectors_affected", "total_bytes")
    return pa.struct(
        [*((name, pa.int64()) for name in whole), ("avg_delta_size", pa.float64()), ("duration", pa.int64())]
    )


@dataclass(frozen=True)
class Adaptive(Kind):
    """Windows whose length follows the rate of rows, cut by triggers; see `cuts` for the rules.

    A window's own columns are `window_id` (`<cell>.<place in the cell>`, unique within a key), `delta_ids`, `stats` and
    `trigger`. Rows whose key, time, id, vector or size is null are in no window (`null_value`). IntegerOverflow where a
    window's bytes pass int64.
    """

    cuts: Cuts
    deltas: Deltas
    identity = "window_id"
    order_columns = ("__cell",)
    position = "__number"

    def required(self, aggregates: Mapping[str, Aggregate]) -> list[str]:
        """What describes a row."""
        return self.deltas.columns()

    @property
    def halo(self) -> tuple[int, int]:
        """Windows of a cell follow from all rows of the cell."""
        return self.cuts.reset - 1, self.cuts.reset - 1

    @property
    def grain(self) -> Grain:
        """Nothing crosses a cell."""
        return Grain(self.cuts.reset)

    def changed_by(self, start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
        """Rows of its cell."""
        cell = start - start % self.cuts.reset
        return cell, cell + (self.cuts.reset - 1)

    def affected_by(self, start: Ints, end: Ints) -> Bounds:
        """Rows of its cell up to the instant at which it closes: a cell is cut from its beginning on."""
        return start - start % self.cuts.reset, end

    def closes(self, start: Ticks, end: Ticks) -> Ticks:
        """All windows of a cell close with it."""
        return start - start % self.cuts.reset + self.cuts.reset

    def misplaced(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """None ends before it starts, or after its cell."""
        return (end < start) | (end - start > self.cuts.reset - start % self.cuts.reset)

    def last_instants(self, times: Ints) -> Bounds:
        """A row is late for all windows of its cell, or for none."""
        last = cell_ends(times, self.cuts.reset)
        return last, last

    def settled(self, time: int, last_start: int | None) -> Settled:
        """Windows never cross a cell: all before the cell of `time`."""
        start = max(time // self.cuts.reset * self.cuts.reset, -(2**63))
        return Settled(start, start)

    def windows(self, table: pa.Table, inputs: Inputs) -> Found:
        """The windows of a table's rows, in any order."""
        return _find(table, self.cuts, self.deltas, inputs, _Standing())

    def windows_after(self, standing: _Standing, table: pa.Table, inputs: Inputs) -> Found:
        """The windows of a table's rows, of which those of one key go on from where it stands."""
        return _find(table, self.cuts, self.deltas, inputs, standing)

    def in_place(self, windows: pa.Table) -> pa.Table:
        """Windows with the number of their cell and their place in it."""
        parts = pc.split_pattern(windows.column("window_id"), ".")
        for place, column in enumerate((*self.order_columns, self.position)):
            windows = windows.append_column(column, pc.list_element(parts, place).cast(pa.int64()))
        return windows

    def place(self, time: int, number: int) -> tuple[tuple[int, ...], int]:
        """The cell, and the number in it."""
        return (time // self.cuts.reset,), number


@dataclass(frozen=True)
class _Standing:
    """How a key stands before the rows to come, within the cell of `state`: the ids that counted in it."""

    key: pa.Table | None = None
    state: CutState | None = None
    seen: Seen | None = None

    def before(self, rows: SortedRows) -> _Standing:
        """Itself if the first of these rows are the key's that go on, else nothing: all of them may have been taken
        back."""
        goes_on = self.key is not None and rows.offsets.size > 1 and _same_key(rows.keys.slice(0, 1), self.key)
        return self if goes_on else _Standing()


@dataclass(frozen=True)
class Counting:
    """The rows that can count in the order in which they do, their ids, which are `punctual`, and which are `chosen`:
    punctual, and the first of their delta in their cell."""

    rows: SortedRows
    ids: pa.Array
    punctual: Flags
    chosen: Flags


def counting_rows(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: Inputs) -> Counting:
    """Of a table's rows those that can count, in the order in which they do."""
    rows = sort_rows(table, key=inputs.key, time=inputs.time, required=deltas.columns())
    ids = rows.column(deltas.delta)
    # an id that comes twice at one time is told apart by all else, so that no order of rows matters
    rest = (rows.column(n) for n in table.column_names if n not in (*inputs.key, inputs.time, deltas.delta))
    order = settle_ties(rows.group, rows.times, chain([ids], rest))
    rows, ids = replace(rows, order=rows.order[order], in_place=False), ids.take(pa.array(order))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    punctual = in_time(rows.times, cuts, rows.ticks(inputs.min_end))
    return Counting(rows, ids, punctual, punctual if deltas.unique else _once(ids, punctual, cells))


def _find(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: Inputs, standing: _Standing) -> Found:
    """The windows of a table; those of its first key's cell go on from where it stands."""
    counting = counting_rows(table, cuts, deltas, inputs)
    rows, ids, punctual = counting.rows, counting.ids, counting.punctual
    before = standing.before(rows)
    chosen = counting.chosen & _unseen(rows, ids, cuts, before)
    sizes = np.zeros(rows.times.size, np.int64)
    if deltas.size_bytes is not None:
        sizes = own(rows.column(deltas.size_bytes).cast(pa.int64()))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    windows, spans, reason = adaptive_spans(**cells, sizes=sizes, counted=chosen, state=before.state)
    names = _ids(windows, cuts.reset, before.state)

    def made(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
        part = windows.between(begin, end)
        bounds = pa.table({**window_columns(rows, part), "window_id": names.slice(begin, end - begin)})
        described, asked = asked_for(bounds, wanted)
        held, counted = rows_between(spans, chosen, begin, end, asked)
        own_reason = reason[begin:end]
        if asked is not None:
            part, own_reason = part.select(asked), own_reason[asked]
        read = WindowRows(
            rows, held, counted, arrival=rows.places(inputs.sequence, inputs.arrival), overflows=inputs.overflows()
        )
        columns = {
            "delta_ids": _lists(ids.filter(pa.array(counted)), held),
            "stats": _stats(read, part, sizes[counted], deltas),
            "trigger": pa.array(REASONS, pa.string()).take(pa.array(own_reason)),
        }
        for name, column in columns.items():
            described = described.append_column(name, column)
        return with_results(described, inputs, read)

    def following(reached: Reached) -> tuple[Settled, _Standing]:
        return _following(rows, ids if not deltas.unique else None, chosen, sizes, cuts, standing, reached)

    late = int(punctual.size - np.count_nonzero(punctual))
    return Found(rows, windows, made, late, following)


def _following(
    rows: SortedRows,
    ids: pa.Array | None,
    chosen: Flags,
    sizes: Ints,
    cuts: Cuts,
    standing: _Standing,
    reached: Reached,
) -> tuple[Settled, _Standing]:
    """From when on the rows of the key that is reached are needed again, and how it stands before them.

    Rows of the last time may be followed by others of that time which count before them, so that nothing is decided by
    them yet. From the start of the window that is open on all rows are needed. `ids` are remembered (None: none are).
    """
    last, cell = reached.time, reached.time // cuts.reset
    opens, past = _rows_of(rows, reached.key)
    same_key = standing.key is not None and _same_key(standing.key, reached.key)
    goes_on = same_key and standing.state is not None and standing.state.cell == cell
    state, seen = (standing.state, standing.seen) if goes_on else (None, None)
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
    """Where the rows of a key begin and end: they are the last ones, or there are none."""
    last = rows.offsets.size - 2
    if last >= 0 and _same_key(rows.keys.slice(last, 1), key):
        return int(rows.offsets[last]), int(rows.offsets[last + 1])
    return rows.times.size, rows.times.size


def _same_key(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables with one row are equal; NaN is NaN."""
    return all(same_values(these, its)[0] for these, its in zip(one.columns, other.columns, strict=True))


def _unseen(rows: SortedRows, ids: pa.Array, cuts: Cuts, standing: _Standing) -> Flags:
    """Which rows are not of a delta that counted in their cell already."""
    unseen = np.ones(rows.times.size, np.bool_)
    if standing.state is not None and standing.seen is not None and rows.offsets.size > 1:
        cells = rows.times[: int(rows.offsets[1])] // cuts.reset
        own_cell = slice(*np.searchsorted(cells, [standing.state.cell, standing.state.cell + 1]).tolist())
        unseen[own_cell] = ~standing.seen.holds(ids[own_cell])
    return unseen


def _once(ids: pa.Array, punctual: Flags, cells: dict[str, Any]) -> Flags:
    """Of the rows that are not late, those that count: of each delta of a cell the first."""
    encoded = ids.dictionary_encode()
    if len(encoded.dictionary) == len(ids):
        return punctual
    return first_of_deltas(**cells, deltas=own(encoded.indices.cast(pa.int64())), counted=punctual)


def _ids(windows: Windows, reset: int, state: CutState | None) -> pa.Array:
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


def _stats(read: WindowRows, windows: Windows, sizes: Ints, deltas: Deltas) -> pa.Array:
    spans = read.spans
    affected: npt.NDArray = np.zeros(spans.n_windows, np.int64)
    if deltas.vector is not None:
        codes, distinct = encode(read.rows.column(deltas.vector))
        affected = distinct_counts(
            codes[read.chosen], len(distinct), spans.first, spans.past, spans.entry, spans.n_windows
        )
    total = exact_totals(read, deltas.size_bytes or "size", sizes, spans)
    mean = integer_means(sizes, spans.first, spans.past, spans.entry, spans.n_windows)
    fields = [spans.counts, affected, total, mean, windows.end - windows.start]
    return pa.StructArray.from_arrays([pa.array(part) for part in fields], fields=list(stats_type()))
