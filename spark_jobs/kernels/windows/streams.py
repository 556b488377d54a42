"""Windows of a stream of rows sorted by (key, time): memory holds what open windows need, not the stream.

Rows become windows some at a time. All keys of these are complete but the last one, whose later rows may still come;
its windows are settled up to a start from which on a row to come could bear on them: `Settled.before`. They are made
now; the rows that the others need are carried over to the next rows of the stream, and what those make of windows
already settled is left out. So each window is made once, from all of its rows. Adaptive windows, which follow from all
rows of a cell, carry over how cutting stands and the rows of the open window: `Found.following`.

Each row is worked on a bounded number of times, also where one window holds more rows than are taken at a time: then
at least as many new rows are awaited as were carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from .kinds import Kind, Settled
from .slices import HotKey, OwnSlice
from .tables import Found, Inputs, Reached, Wanted

Rows = Iterator[pa.Table]
Settle = Callable[[int, int | None], Settled]
"""`Kind.settled`."""
Made = TypeVar("Made")
_TRIED = 64
"""Windows of a first table, by whose bytes the next ones are cut."""


class Find(Protocol):
    """How windows are found."""

    def __call__(self, table: pa.Table, standing: Any = None) -> Found:
        """The windows of a table's rows; `standing`: what `Found.following` gave, if the rows go on from there."""


@dataclass(frozen=True)
class Place:
    """A place in the order (key, start of a window): the row `key` of a table with one row, and a time.

    `number`: see `Settled`."""

    key: pa.Table
    time: int
    number: int = 0


@dataclass(frozen=True)
class Step:
    """Rows of a stream, and those of their windows that no row to come bears on: the ones numbered `begin .. end-1`.

    All windows before `upto` have been made then; None: all there are.
    """

    found: Found
    begin: int
    end: int
    upto: Place | None


@dataclass(frozen=True)
class Carried:
    """Rows that are worked on again with those after them. Of the first key what lies before `before` is done.
    `standing`: what the windows of the rows go on from, of kinds that remember more than rows."""

    rows: pa.Table
    before: int
    standing: Any = None


class Tables:
    """Cuts the windows of steps into tables of about `most_bytes`, by what tables of them have taken so far."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._window_bytes, self._enough = 1, _TRIED

    def of(self, step: Step, wanted: Wanted | None) -> Rows:
        """The settled windows of a step that are wanted, in order; one empty table where there are none."""
        begin, end = step.begin, step.end
        while True:
            n = end - begin if self._most_bytes is None else min(end - begin, self._enough)
            table = step.found.table(begin, begin + n, wanted)
            self._learn(table)
            yield table
            begin += n
            if begin >= end:
                return

    def _learn(self, table: pa.Table) -> None:
        if self._most_bytes is not None and table.num_rows:
            self._window_bytes = max(self._window_bytes, table.nbytes // table.num_rows)
            # step by step: a key's first windows hold few rows, and the next ones may be larger
            self._enough = max(min(self._most_bytes // self._window_bytes, 2 * self._enough), 1)


@dataclass(frozen=True)
class Windowing:
    """How windows are made of rows.

    Args:
        key: columns whose values are worked on together, SLICE_COLUMN among them where keys are `hot`.
        find: the windows of a table's rows: key columns, `window_start`, `window_end`, a column per aggregate.
        hot: keys that are cut into slices; each makes the windows that start in it.
    """

    key: tuple[str, ...]
    kind: Kind
    find: Find
    hot: tuple[HotKey, ...] = ()

    @classmethod
    def of(cls, kind: Kind, inputs: Inputs, hot: tuple[HotKey, ...] = ()) -> Windowing:
        """Windows of a kind as it finds them."""
        return cls(tuple(inputs.key), kind, partial(find_windows, kind, inputs), hot)

    @property
    def own_slice(self) -> OwnSlice | None:
        """Asks for the windows that start in the slice that makes them; None: there are no slices."""
        return OwnSlice(self.hot) if self.hot else None


def find_windows(kind: Kind, inputs: Inputs, table: pa.Table, standing: Any = None) -> Found:
    """The windows of a table's rows, which go on from `standing` if there is such."""
    return kind.windows(table, inputs) if standing is None else kind.windows_after(standing, table, inputs)


def _ignore(_: int) -> None:
    pass


@dataclass(frozen=True)
class Pace:
    """How much is worked on at a time: rows, unless one window holds more, and about how many bytes of windows (None:
    as many as there are).

    `held` is told the bytes of the rows that are held and their number, `made` the bytes of windows.
    """

    most_rows: int
    most_bytes: int | None = None
    held: Callable[[int, int], None] | None = None
    made: Callable[[int], None] = _ignore


def stream_windows(chunks: Rows, windowing: Windowing, pace: Pace) -> Rows:
    """Tables of windows ordered by (key, start), of chunks of rows ordered by (key, time)."""
    tables = Tables(pace.most_bytes)
    for step in steps(chunks, windowing.find, windowing.kind.settled, most_rows=pace.most_rows, held=pace.held):
        for windows in tables.of(step, windowing.own_slice):
            pace.made(windows.nbytes)
            yield windows


def steps(
    chunks: Rows, find: Find, settled: Settle, *, most_rows: int, held: Callable[[int, int], None] | None = None
) -> Iterator[Step]:
    """The windows of chunks of rows ordered by (key, time), step by step.

    Args:
        most_rows: how many rows become windows at a time, unless one window holds more.
        held: told how many bytes of rows are held, and how many rows.
    """

    def found(rows: pa.Table, carried: Carried | None) -> Found:
        return find(rows, None if carried is None else carried.standing)

    return in_portions(
        chunks,
        lambda rows, carried: _step(rows, found(rows, carried), carried, settled),
        lambda rows, carried: _last(found(rows, carried), carried),
        most_rows=most_rows,
        held=held,
    )


def in_portions(
    chunks: Rows,
    work: Callable[[pa.Table, Carried | None], tuple[Made, Carried]],
    finish: Callable[[pa.Table, Carried | None], Made],
    *,
    most_rows: int,
    held: Callable[[int, int], None] | None = None,
) -> Iterator[Made]:
    """What `work` makes of chunks of rows, some at a time, with the rows that it carries over; and `finish` of the last
    ones, if there are any.

    Args:
        most_rows: how many rows are worked on at a time, unless as many are carried over.
        held: told how many bytes of rows are held, and how many rows.
    """
    carried: Carried | None = None
    waiting: list[pa.Table] = []
    n_rows, wanted = 0, most_rows
    for chunk in chunks:
        waiting.append(chunk)
        n_rows += chunk.num_rows
        if held is not None:
            held(sum(part.nbytes for part in waiting), n_rows)
        if n_rows < wanted:
            continue
        made, carried = work(pa.concat_tables(waiting).combine_chunks(), carried)
        yield made
        waiting = [carried.rows]
        n_rows = carried.rows.num_rows
        wanted = max(most_rows, 2 * n_rows)
    if n_rows:
        yield finish(pa.concat_tables(waiting).combine_chunks(), carried)


def _made_already(found: Found, carried: Carried | None) -> int:
    """How many windows were made of earlier rows."""
    if carried is None:
        return 0
    first_key = int(found.windows.group.searchsorted(0, side="right"))
    return int(found.windows.start[:first_key].searchsorted(carried.before))


def _last(found: Found, carried: Carried | None) -> Step:
    """All that is left."""
    return Step(found, _made_already(found, carried), found.windows.start.size, None)


def _step(table: pa.Table, found: Found, carried: Carried | None, settle: Settle) -> tuple[Step, Carried]:
    """What is settled of the rows, and what is carried over."""
    rows, windows = found.rows, found.windows
    begin, end = _made_already(found, carried), windows.start.size
    opens, last = int(rows.offsets[-2]), rows.offsets.size - 2
    last_key = int(windows.group.searchsorted(last))
    last_start = int(windows.start[-1]) if last_key < end else None
    reached = Reached(rows.keys.slice(last, 1), int(rows.times[-1]))
    if found.following is None:
        settled, standing = settle(reached.time, last_start), None
    else:
        settled, standing = found.following(reached)
    if last_key < end:
        end = max(last_key + int(windows.start[last_key:].searchsorted(settled.before)), begin)
    kept = opens + int(rows.times[opens:].searchsorted(settled.rows_from))
    left = Carried(rows.following(kept).select(table.column_names), settled.before, standing)
    return Step(found, begin, end, Place(reached.key, settled.before, settled.number)), left
