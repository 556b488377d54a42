"""Windows of a stream of rows sorted by (key, time): only the rows that open windows need are in memory.

Rows become windows in portions. All keys of a portion are complete except the last one, whose later rows may follow.
Its windows are settled up to the start from which on a later row could change them: `Settled.before`. Settled windows
are made now. The rows that the other windows need are carried over to the next portion, which does not make settled
windows again. So each window is made once, from all of its rows. Adaptive windows depend on all rows of a cell; they
carry over the state of cutting and the rows of the open window: `Found.following`.

Each row is processed a bounded number of times, also if one window has more rows than a portion: the next portion then
waits for at least as many new rows as were carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from spark_jobs.engine.windows.kinds.kind import Settled, WindowKind
from spark_jobs.engine.windows.slices import HotKey, OwnSlice
from spark_jobs.engine.windows.tables import Found, Reached, Wanted, WindowInputs

Rows = Iterator[pa.Table]
Settle = Callable[[int, int | None], Settled]
"""The signature of `WindowKind.settle`."""
Made = TypeVar("Made")
_TRIED = 64
"""Number of windows of the first table; its bytes decide how the next tables are cut."""


class Find(Protocol):
    """A function that finds the windows of rows."""

    def __call__(self, table: pa.Table, open_windows: Any = None) -> Found:
        """The windows of a table's rows. `open_windows`: the state that `Found.following` returned, if the rows go on
        from it."""


@dataclass(frozen=True)
class Place:
    """A place in the order (key, start of a window): `key` is a table of one row, `time` is in ticks.

    `number`: see `Settled`."""

    key: pa.Table
    time: int
    number: int = 0


@dataclass(frozen=True)
class StreamStep:
    """A step through a stream: the windows of its rows, of which those numbered `begin .. end-1` are new and
    settled, so that later rows can't change them.

    After this step all windows before `upto` have been made; None: all windows of the stream.
    """

    windows: Found
    begin: int
    end: int
    upto: Place | None


@dataclass(frozen=True)
class Carried:
    """Rows that are processed again with the rows after them. The first key is done before the time `before`.
    `open_windows`: for kinds that remember more than rows, the state from which the rows' windows continue."""

    rows: pa.Table
    before: int
    open_windows: Any = None


class Tables:
    """Cuts the windows of steps into tables of about `most_bytes`, by the bytes a window in the tables so far."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._window_bytes, self._enough = 1, _TRIED

    def of(self, step: StreamStep, wanted: Wanted | None) -> Rows:
        """Tables of the step's settled windows that are wanted, in order; one empty table if there are none."""
        begin, end = step.begin, step.end
        while True:
            n = end - begin if self._most_bytes is None else min(end - begin, self._enough)
            table = step.windows.table(begin, begin + n, wanted)
            self._learn(table)
            yield table
            begin += n
            if begin >= end:
                return

    def _learn(self, table: pa.Table) -> None:
        if self._most_bytes is not None and table.num_rows:
            self._window_bytes = max(self._window_bytes, table.nbytes // table.num_rows)
            # at most twice as many at once: a key's first windows have few rows, and the next ones may be larger
            self._enough = max(min(self._most_bytes // self._window_bytes, 2 * self._enough), 1)


@dataclass(frozen=True)
class Windowing:
    """The definition of how windows are made of rows.

    Args:
        key: the columns by which rows are grouped, with SLICE_COLUMN if there are `hot` keys.
        find: finds the windows of a table's rows: key columns, `window_start`, `window_end`, a column per aggregate.
        hot: the keys that are cut into slices; each slice makes the windows that start in it.
    """

    key: tuple[str, ...]
    kind: WindowKind
    find: Find
    hot: tuple[HotKey, ...] = ()

    @classmethod
    def of(cls, kind: WindowKind, inputs: WindowInputs, hot: tuple[HotKey, ...] = ()) -> Windowing:
        """The windowing of a kind, with the windows that the kind itself finds."""
        return cls(tuple(inputs.key), kind, partial(find_windows, kind, inputs), hot)

    @property
    def own_slice(self) -> OwnSlice | None:
        """A filter for the windows that start in the slice that makes them; None: there are no slices."""
        return OwnSlice(self.hot) if self.hot else None


def find_windows(kind: WindowKind, inputs: WindowInputs, table: pa.Table, open_windows: Any = None) -> Found:
    """The windows of a table's rows, which continue from `open_windows` unless that is None."""
    return kind.windows(table, inputs) if open_windows is None else kind.windows_after(open_windows, table, inputs)


def _ignore(_: int) -> None:
    pass


@dataclass(frozen=True)
class PortionLimits:
    """Limits of a portion: `most_rows` rows, unless one window has more, and about `most_bytes` bytes in a table of
    windows (None: no limit).

    `note_rows` is called with the bytes and the number of the rows in memory, `made` with the bytes of windows.
    """

    most_rows: int
    most_bytes: int | None = None
    note_rows: Callable[[int, int], None] | None = None
    made: Callable[[int], None] = _ignore


def stream_windows(chunks: Rows, windowing: Windowing, pace: PortionLimits) -> Rows:
    """Tables of windows, ordered by (key, start), from chunks of rows ordered by (key, time)."""
    tables = Tables(pace.most_bytes)
    for step in steps(
        chunks, windowing.find, windowing.kind.settle, most_rows=pace.most_rows, note_rows=pace.note_rows
    ):
        for windows in tables.of(step, windowing.own_slice):
            pace.made(windows.nbytes)
            yield windows


def steps(
    chunks: Rows, find: Find, settled: Settle, *, most_rows: int, note_rows: Callable[[int, int], None] | None = None
) -> Iterator[StreamStep]:
    """The windows of chunks of rows ordered by (key, time), step by step.

    Args:
        most_rows: the number of rows that become windows at a time, unless one window has more.
        note_rows: called with the bytes and the number of the rows in memory.
    """

    def find_on(rows: pa.Table, carried: Carried | None) -> Found:
        return find(rows, None if carried is None else carried.open_windows)

    return in_portions(
        chunks,
        lambda rows, carried: _step(rows, find_on(rows, carried), carried, settled),
        lambda rows, carried: _last(find_on(rows, carried), carried),
        most_rows=most_rows,
        note_rows=note_rows,
    )


def in_portions(
    chunks: Rows,
    work: Callable[[pa.Table, Carried | None], tuple[Made, Carried]],
    finish: Callable[[pa.Table, Carried | None], Made],
    *,
    most_rows: int,
    note_rows: Callable[[int, int], None] | None = None,
) -> Iterator[Made]:
    """The results of `work` for portions of the chunks' rows. A portion begins with the rows that the call of `work`
    before carried over. Last comes the result of `finish` for the rows that are left, if there are any.

    Args:
        most_rows: the number of rows in a portion; twice the rows carried over, if that is more.
        note_rows: called with the bytes and the number of the rows in memory.
    """
    carried: Carried | None = None
    waiting: list[pa.Table] = []
    n_rows, wanted = 0, most_rows
    for chunk in chunks:
        waiting.append(chunk)
        n_rows += chunk.num_rows
        if note_rows is not None:
            note_rows(sum(part.nbytes for part in waiting), n_rows)
        if n_rows < wanted:
            continue
        made, carried = work(pa.concat_tables(waiting).combine_chunks(), carried)
        yield made
        waiting = [carried.rows]
        n_rows = carried.rows.num_rows
        wanted = max(most_rows, 2 * n_rows)
    if n_rows:
        yield finish(pa.concat_tables(waiting).combine_chunks(), carried)


def _made_already(result: Found, carried: Carried | None) -> int:
    """The number of windows that earlier steps have made."""
    if carried is None:
        return 0
    first_key = int(result.windows.group.searchsorted(0, side="right"))
    return int(result.windows.start[:first_key].searchsorted(carried.before))


def _last(result: Found, carried: Carried | None) -> StreamStep:
    """The last step, with all windows that have not been made yet."""
    return StreamStep(result, _made_already(result, carried), result.windows.start.size, None)


def _step(table: pa.Table, result: Found, carried: Carried | None, settle: Settle) -> tuple[StreamStep, Carried]:
    """The step with the windows that are settled, and the rows that are carried over."""
    rows, windows = result.rows, result.windows
    begin, end = _made_already(result, carried), windows.start.size
    opens, last = int(rows.offsets[-2]), rows.offsets.size - 2
    last_key = int(windows.group.searchsorted(last))
    last_start = int(windows.start[-1]) if last_key < end else None
    reached = Reached(rows.keys.slice(last, 1), int(rows.times[-1]))
    if result.following is None:
        settled, open_windows = settle(reached.time, last_start), None
    else:
        settled, open_windows = result.following(reached)
    if last_key < end:
        end = max(last_key + int(windows.start[last_key:].searchsorted(settled.before)), begin)
    kept = opens + int(rows.times[opens:].searchsorted(settled.rows_from))
    left = Carried(rows.rows_from(kept).select(table.column_names), settled.before, open_windows)
    return StreamStep(result, begin, end, Place(reached.key, settled.before, settled.number)), left
