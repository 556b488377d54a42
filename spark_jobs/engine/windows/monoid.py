"""The interface of an aggregate, and of a `Monoid`, by which users add their own: `lift`, `combine`, `lower`, each over
whole columns.

The engine folds any `Monoid` over any kind of windows without being changed. Rows count in runs of windows
(`spans.Spans`). So a row is attached to the O(log windows) nodes of a binary tree over windows that cover its run, and
a window's result is the fold of the nodes above it. Cost: O((rows + windows) * log(windows)) array operations, in
O(log) calls of `combine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.rows import SortedRows, settle_ties
from spark_jobs.engine.windows.spans import Spans
from spark_jobs.errors import ParameterError, TidemarkError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
State = tuple[npt.NDArray[Any], ...]
"""The states of rows, one per row: arrays of equal length."""


class Overflow(NamedTuple):
    """Per window, True if a result does not fit into its type, and the approximate result of these."""

    beyond: Flags
    about: Floats


@dataclass(frozen=True)
class WindowRows:
    """The rows that count in a window, in (key, time) order, and the windows that each counts in.

    Args:
        chosen: flags of the `rows` that count in a window.
        event_times: per row of `rows`, its own time, if rows were placed by another time.
        arrival: per row of `rows`, its place in the order of arrival, which breaks ties of time.
    """

    rows: SortedRows
    spans: Spans
    chosen: npt.NDArray[np.bool_]
    event_times: Ints | None = None
    arrival: Ints | None = None
    overflows: list[Overflow] | None = None
    """The results that did not fit into their types, in the order in which they were found; None: such a result is an
    error."""
    _read: dict[str, tuple[Spans, pa.Array, Ints]] = field(default_factory=dict, repr=False, compare=False)

    def overflow(self, beyond: Flags, about: Floats, refusal: Callable[[float], TidemarkError]) -> None:
        """List the windows, if any, whose result does not fit into its type; the caller makes it null.

        Args:
            beyond: flags of these windows.
            about: per window, the approximate result.
            refusal: makes, of the first such result, the error that is raised if an overflow is an error.
        """
        if beyond.any():
            if self.overflows is None:
                raise refusal(float(about[np.argmax(beyond)]))
            self.overflows.append(Overflow(beyond, about))

    def values(self, column: str) -> tuple[Spans, pa.Array, Ints]:
        """The rows with a value in `column`: their spans, their values, and their numbers in `rows`."""
        if column not in self._read:
            self._read[column] = self._values(column)
        return self._read[column]

    def _values(self, column: str) -> tuple[Spans, pa.Array, Ints]:
        taken = np.flatnonzero(self.chosen)
        values = self.rows.column(column, None if taken.size == self.chosen.size else taken)
        if not values.null_count:
            return self.spans, values, taken
        present = values.is_valid().to_numpy(zero_copy_only=False)
        return self.spans.select(present), values.drop_null(), taken[present]

    def order_of(self, values: pa.Array, taken: Ints) -> Ints:
        """int64 numbers that order these rows by (key, time, arrival, value)."""
        times = self.rows.times if self.event_times is None else self.event_times
        group = np.searchsorted(self.rows.offsets, taken, side="right")
        arrival = None if self.arrival is None else self.arrival[taken]
        position = np.empty(taken.size, np.int64)
        position[settle_ties(group, times[taken], [arrival, values])] = np.arange(taken.size)
        return position

    def places_of(self, spans: Spans, values: pa.Array, taken: Ints) -> Ints:
        """The permutation that sorts these rows by (last window, time by which they are placed, own time, arrival,
        value). Rows of one time may be in different windows (adaptive ones)."""
        times = None if self.event_times is None else self.event_times[taken]
        arrival = None if self.arrival is None else self.arrival[taken]
        return settle_ties(spans.past, self.rows.times[taken], [times, arrival, values])


class Aggregate(ABC):
    """One output column of a window. Nulls are passed over, so there may be no value left."""

    column: str | None
    """The column that the aggregate reads; None: it reads none."""

    @abstractmethod
    def output_type(self, values: pa.DataType) -> pa.DataType:
        """The result type for a column of this type. Raises ParameterError for a type that the aggregate doesn't
        take."""

    @abstractmethod
    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The result in each window, in the order of windows."""

    def refuse(self, values: pa.DataType, expected: str) -> ParameterError:
        """The error for a column type that the aggregate doesn't take; `expected` names those that it takes."""
        return ParameterError(
            expected=f"{expected} for {type(self).__name__.lower()}",
            found=f"column {self.column} of type {values}",
            parameter="aggregates",
            column=self.column,
            type=str(values),
        )


class Monoid(Aggregate):
    """An aggregate by three functions over whole columns; the way for users to add their own.

    `combine` must be associative and commutative *exactly*: with floats, lift to a state that adds without rounding,
    or do not compare the last bits of results. An aggregate that depends on the order of rows needs that order (a time,
    a value) in its state.

    >>> class Product(Monoid):
    ...     def output_type(self, values): return pa.int64()
    ...     def lift(self, values): return (values.to_numpy(),)
    ...     def combine(self, left, right): return (left[0] * right[0],)
    ...     def lower(self, state): return pa.array(state[0])
    """

    def __init__(self, column: str) -> None:
        self.column = column

    @abstractmethod
    def lift(self, values: pa.Array) -> State:
        """The states of single values, without nulls."""

    @abstractmethod
    def combine(self, left: State, right: State) -> State:
        """The states of the unions of `left` and `right`, element by element."""

    @abstractmethod
    def lower(self, state: State) -> pa.Array:
        """The results of states, in the output type or in one that Arrow casts to it."""

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """Fold the states of each window's rows; null where a window has no value."""
        assert self.column is not None
        spans, values, _ = rows.values(self.column)
        output = self.output_type(values.type)
        if not len(values):
            return pa.nulls(spans.n_windows, output)
        filled, state = _fold_spans(self, self.lift(values), spans)
        results = self.lower(state).cast(output)
        return results.take(pa.array(np.where(filled, np.cumsum(filled) - 1, 0), mask=~filled))


def _take(state: State, at: npt.NDArray[Any]) -> State:
    return tuple(part[at] for part in state)


def _canonical_nodes(spans: Spans, width: int) -> tuple[Ints, Ints]:
    """Pairs (node, row): each row at the fewest nodes that cover exactly its windows. Window w is node `width + w`."""
    low, high = spans.first + width, spans.past + width
    rows = np.arange(low.size, dtype=np.int64)
    nodes: list[Ints] = []
    holders: list[Ints] = []
    while rows.size:
        odd = (low & 1) == 1
        nodes.append(low[odd])
        holders.append(rows[odd])
        low = low + odd
        odd = (high & 1) == 1
        high = high - odd
        covered = odd & (high >= low)
        nodes.append(high[covered])
        holders.append(rows[covered])
        low, high = low >> 1, high >> 1
        left = low < high
        low, high, rows = low[left], high[left], rows[left]
    return np.concatenate(nodes), np.concatenate(holders)


def _fold_runs(monoid: Monoid, state: State, lengths: Ints) -> State:
    """Fold each run of neighbouring states into one, pair by pair; `lengths` are the lengths of the runs."""
    while lengths.size and lengths.max() > 1:
        starts = np.cumsum(lengths) - lengths
        place = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        heads = np.flatnonzero(place % 2 == 0)
        paired = place[heads] + 1 < np.repeat(lengths, (lengths + 1) // 2)
        merged = monoid.combine(_take(state, heads[paired]), _take(state, heads[paired] + 1))
        state = _take(state, heads)
        for part, values in zip(state, merged, strict=True):
            part[paired] = values
        lengths = (lengths + 1) // 2
    return state


def _fold_spans(monoid: Monoid, lifted: State, spans: Spans) -> tuple[npt.NDArray[np.bool_], State]:
    """Flags of the windows that have a row, and the states of those windows."""
    width = 1 << max(int(spans.n_windows - 1).bit_length(), 0)
    nodes, holders = _canonical_nodes(spans, width)
    by_node = np.argsort(nodes, kind="stable")
    present, lengths = np.unique(nodes[by_node], return_counts=True)
    folded = _fold_runs(monoid, _take(lifted, holders[by_node]), lengths)
    filled = np.zeros(spans.n_windows, np.bool_)
    slot = np.zeros(spans.n_windows, np.int64)
    state = _take(folded, slot) if spans.n_windows else folded
    above = width + np.arange(spans.n_windows, dtype=np.int64)
    while above.size and above[0] >= 1:
        slot = np.minimum(np.searchsorted(present, above), present.size - 1)
        met = present[slot] == above
        fresh, again = met & ~filled, met & filled
        for part, values in zip(state, _take(folded, slot[fresh]), strict=True):
            part[fresh] = values
        if again.any():
            merged = monoid.combine(_take(state, np.flatnonzero(again)), _take(folded, slot[again]))
            for part, values in zip(state, merged, strict=True):
                part[again] = values
        filled |= met
        above = above >> 1
    return filled, _take(state, np.flatnonzero(filled))


def columns_read(aggregates: Iterable[Aggregate]) -> list[str]:
    """The names of the columns that aggregates read, each once."""
    return list(dict.fromkeys(aggregate.column for aggregate in aggregates if aggregate.column is not None))
