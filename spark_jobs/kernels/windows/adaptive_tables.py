"""Adaptive windows of an Arrow table, see `adaptive` for what they are and `tables` for how workers call this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .adaptive import REASONS, Cuts, adaptive_spans, first_of_deltas, in_time
from .aggregates import exact_totals
from .exact import integer_means
from .monoid import WindowRows
from .rows import SkippedRows, SortedRows, able_rows, encode, own, settle_ties, sort_rows
from .shapes import Settled
from .skipped import Skips, with_bounds
from .spans import Spans, Windows
from .streams import Carried, Found, Maker, Wanted, in_portions
from .sweeps import distinct_counts
from .tables import Inputs, asked_for, rows_between, window_columns, with_results

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

    def columns(self) -> list[str]:
        """The columns that must not be null."""
        return [name for name in (self.delta, self.vector, self.size_bytes) if name is not None]


def stats_type() -> pa.DataType:
    """The type of the column `stats`; `duration` in ticks."""
    whole = ("delta_count", "vectors_affected", "total_bytes")
    return pa.struct(
        [*((name, pa.int64()) for name in whole), ("avg_delta_size", pa.float64()), ("duration", pa.int64())]
    )


def adaptive_table(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: Inputs) -> tuple[pa.Table, SkippedRows]:
    """One row a window: key, `window_start`, `window_end`, `window_id`, `delta_ids`, `stats`, `trigger`, aggregates.

    `window_id` is `<cell>.<place in the cell>`, unique within a key. Rows whose key, time, id, vector or size is null
    are in no window (`null_value`). IntegerOverflow where a window's bytes pass int64.
    """
    found = _find(table, cuts, deltas, inputs)
    return found.table(0, found.windows.start.size, None), found.skipped


@dataclass(frozen=True)
class AdaptiveMaker(Maker):
    """Adaptive windows, for streams."""

    cuts: Cuts
    deltas: Deltas
    inputs: Inputs
    windows_a_row = 1

    @property
    def halo(self) -> tuple[int, int]:
        """Windows of a cell follow from all rows of the cell."""
        return self.cuts.reset - 1, self.cuts.reset - 1

    def find(self, table: pa.Table) -> Found:
        """The windows of a table's rows."""
        return _find(table, self.cuts, self.deltas, self.inputs)

    def settled(self, time: int, last_start: int | None) -> Settled:
        """Windows never cross a cell: all before the cell of `time`."""
        start = max(time // self.cuts.reset * self.cuts.reset, -(2**63))
        return Settled(start, start)


@dataclass(frozen=True)
class _Counting:
    """The rows that can count in the order in which they do, their ids, which are `punctual`, and which are `chosen`:
    punctual, and the first of their delta in their cell."""

    rows: SortedRows
    ids: pa.Array
    punctual: Flags
    chosen: Flags


def _counting(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: Inputs) -> _Counting:
    rows = sort_rows(table, key=inputs.key, time=inputs.time, required=deltas.columns())
    ids = rows.column(deltas.delta)
    # an id that comes twice at one time is told apart by all else, so that no order of rows matters
    rest = (rows.column(n) for n in table.column_names if n not in (*inputs.key, inputs.time, deltas.delta))
    order = settle_ties(rows.group, rows.times, chain([ids], rest))
    rows, ids = replace(rows, order=rows.order[order], in_place=False), ids.take(pa.array(order))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    punctual = in_time(**cells, min_end=rows.ticks(inputs.min_end))
    return _Counting(rows, ids, punctual, _once(ids, punctual, cells))


@dataclass(frozen=True)
class AdaptiveSkips(Skips):
    """What adaptive windows leave out: rows that can't count (`null_key`, `null_time`, `null_value`: an id, a vector or
    a size), rows late for their cell (`late` and `late_row`, as of sessions), and rows whose id another row of the cell
    has that counts (`repeated_id`). None has bounds."""

    cuts: Cuts
    deltas: Deltas
    inputs: Inputs
    windows_a_row = 1

    def told_at_once(self, table: pa.Table) -> tuple[list[pa.Table], pa.Table | None]:
        """Rows that can't count; the others are told of beside the rows of their cell."""
        able, left_out = able_rows(table, self.inputs.key, self.inputs.time, self.deltas.columns(), False)
        kind = table.schema.field(self.inputs.time).type
        return [with_bounds(rows, None, reason, kind) for reason, rows in left_out.items()], able

    def stream(self, chunks: Iterator[pa.Table], most_rows: int) -> Iterator[pa.Table]:
        """Late rows and repeated ones, of whole cells at a time."""

        def work(table: pa.Table, _: Carried | None) -> tuple[pa.Table, Carried]:
            counting = _counting(table, self.cuts, self.deltas, self.inputs)
            times, last_key = counting.rows.times, int(counting.rows.offsets[-2])
            cell = max(int(times[-1]) // self.cuts.reset * self.cuts.reset, -(2**63))
            opens = last_key + int(times[last_key:].searchsorted(cell))
            left = counting.rows.following(opens).select(table.column_names)
            return self._skipped(counting, opens), Carried(left, cell)

        def finish(table: pa.Table, _: Carried | None) -> pa.Table:
            counting = _counting(table, self.cuts, self.deltas, self.inputs)
            return self._skipped(counting, counting.rows.times.size)

        return in_portions(chunks, work, finish, most_rows=most_rows)

    def _skipped(self, counting: _Counting, n: int) -> pa.Table:
        """Of the first `n` rows."""
        rows = counting.rows
        late, repeated = ~counting.punctual[:n], counting.punctual[:n] & ~counting.chosen[:n]
        return pa.concat_tables(
            with_bounds(rows.table.take(pa.array(rows.order[:n][held])), None, reason, rows.time_type)
            for reason, held in (("late", late), ("late_row", late), ("repeated_id", repeated))
        )


def _find(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: Inputs) -> Found:
    """The windows of a table."""
    counting = _counting(table, cuts, deltas, inputs)
    rows, ids, punctual, chosen = counting.rows, counting.ids, counting.punctual, counting.chosen
    sizes = np.zeros(rows.times.size, np.int64)
    if deltas.size_bytes is not None:
        sizes = own(rows.column(deltas.size_bytes).cast(pa.int64()))
    cells: dict[str, Any] = {"offsets": rows.offsets, "times": rows.times, "cuts": cuts}
    windows, spans, reason = adaptive_spans(**cells, sizes=sizes, counted=chosen)
    names = _ids(windows, cuts.reset)

    def made(begin: int, end: int, wanted: Wanted | None) -> pa.Table:
        part = windows.between(begin, end)
        bounds = pa.table({**window_columns(rows, part), "window_id": names.slice(begin, end - begin)})
        described, asked = asked_for(bounds, wanted)
        held, counted = rows_between(spans, chosen, begin, end, asked)
        own_reason = reason[begin:end]
        if asked is not None:
            part, own_reason = part.select(asked), own_reason[asked]
        columns = {
            "delta_ids": _lists(ids.filter(pa.array(counted)), held),
            "stats": _stats(rows, part, held, counted, sizes[counted], deltas),
            "trigger": pa.array(REASONS, pa.string()).take(pa.array(own_reason)),
        }
        for name, column in columns.items():
            described = described.append_column(name, column)
        read = WindowRows(rows, held, counted, arrival=rows.places(inputs.arrival))
        return with_results(described, inputs.aggregates, read)

    return Found(rows, windows, made, int(punctual.size - np.count_nonzero(punctual)))


def _once(ids: pa.Array, punctual: Flags, cells: dict[str, Any]) -> Flags:
    """Of the rows that are not late, those that count: of each delta of a cell the first."""
    encoded = ids.dictionary_encode()
    if len(encoded.dictionary) == len(ids):
        return punctual
    return first_of_deltas(**cells, deltas=own(encoded.indices.cast(pa.int64())), counted=punctual)


def _ids(windows: Windows, reset: int) -> pa.Array:
    cell = windows.start // reset
    opens = np.ones(cell.size, np.bool_)
    opens[1:] = (windows.group[1:] != windows.group[:-1]) | (cell[1:] != cell[:-1])
    places = np.arange(cell.size)
    first = np.maximum.accumulate(np.where(opens, places, 0)) if cell.size else places
    texts = (pa.array(part).cast(pa.string()) for part in (cell, places - first))
    return pc.binary_join_element_wise(*texts, ".")


def _lists(values: pa.Array, spans: Spans) -> pa.Array:
    ends = np.concatenate(([0], np.cumsum(spans.counts)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _stats(rows: SortedRows, windows: Windows, spans: Spans, chosen: Flags, sizes: Ints, deltas: Deltas) -> pa.Array:
    affected: npt.NDArray = np.zeros(spans.n_windows, np.int64)
    if deltas.vector is not None:
        codes, distinct = encode(rows.column(deltas.vector))
        affected = distinct_counts(codes[chosen], len(distinct), spans.first, spans.past, spans.entry, spans.n_windows)
    total = exact_totals(deltas.size_bytes or "size", sizes, spans)
    mean = integer_means(sizes, spans.first, spans.past, spans.entry, spans.n_windows)
    fields = [spans.counts, affected, total, mean, windows.end - windows.start]
    return pa.StructArray.from_arrays([pa.array(part) for part in fields], fields=list(stats_type()))
