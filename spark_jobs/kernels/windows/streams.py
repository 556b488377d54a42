"""Windows of a stream of rows sorted by (key, time): memory holds what open windows need, not the stream.

Rows become windows some at a time. All keys of these are complete but the last one, whose later rows may still come;
its windows are settled up to a start from which on a row to come could bear on them (`Settled.before`). They are made
now; the rows that the others need are carried over to the next rows of the stream, and what those make of windows
already settled is left out. So each window is made once, from all of its rows.

Each row is worked on a bounded number of times, also where one window holds more rows than are taken at a time: then
at least as many new rows are awaited as were carried over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from .rows import SortedRows
from .shapes import Settled
from .spans import Windows

Rows = Iterator[pa.Table]


@dataclass(frozen=True)
class Found:
    """The windows of some rows, made when asked for: `table(begin, end)` gives those numbered `begin .. end-1`."""

    rows: SortedRows
    windows: Windows
    table: Callable[[int, int], pa.Table]


class Maker(ABC):
    """How one kind of windows is made of rows."""

    windows_a_row: int
    """The most windows that a row may add."""

    @property
    @abstractmethod
    def halo(self) -> tuple[int, int] | None:
        """How far before and after a row the windows start that it bears on; None: any distance."""

    @abstractmethod
    def find(self, table: pa.Table) -> Found:
        """The windows of a table's rows."""

    @abstractmethod
    def settled(self, time: int, last_start: int | None) -> Settled:
        """What rows at or after `time` leave alone; `last_start`: the start of the key's last window, if any."""


@dataclass(frozen=True)
class _Carried:
    rows: pa.Table
    before: int
    """Windows of the first key that start earlier are made already."""


def stream_windows(
    chunks: Rows, maker: Maker, *, most_rows: int, held: Callable[[int, int], None] | None = None
) -> Rows:
    """Tables of windows ordered by (key, start), of chunks of rows ordered by (key, time).

    Args:
        most_rows: how many rows become windows at a time, unless one window holds more.
        held: told how many bytes of rows are held, and how many rows.
    """
    carried: _Carried | None = None
    waiting: list[pa.Table] = []
    n_rows, wanted = 0, most_rows
    for chunk in chunks:
        waiting.append(chunk)
        n_rows += chunk.num_rows
        if held is not None:
            held(sum(part.nbytes for part in waiting), n_rows)
        if n_rows < wanted:
            continue
        made, carried = _step(waiting, carried, maker, last=False)
        yield made
        assert carried is not None
        waiting = [carried.rows]
        n_rows = carried.rows.num_rows
        wanted = max(most_rows, 2 * n_rows)
    if n_rows:
        yield _step(waiting, carried, maker, last=True)[0]


def _step(
    waiting: list[pa.Table], carried: _Carried | None, maker: Maker, *, last: bool
) -> tuple[pa.Table, _Carried | None]:
    """Make what is settled of the rows waiting; what is carried over is None for the `last` ones."""
    found = maker.find(pa.concat_tables(waiting).combine_chunks())
    rows, windows = found.rows, found.windows
    begin, end = 0, windows.start.size
    if carried is not None:
        first_key = int(windows.group.searchsorted(0, side="right"))
        begin = int(windows.start[:first_key].searchsorted(carried.before))
    if last:
        return found.table(begin, end), None
    opens = int(rows.offsets[-2])
    last_key = int(windows.group.searchsorted(rows.offsets.size - 2))
    last_start = int(windows.start[-1]) if last_key < end else None
    settled = maker.settled(int(rows.times[-1]), last_start)
    if last_key < end:
        end = max(last_key + int(windows.start[last_key:].searchsorted(settled.before)), begin)
    kept = opens + int(rows.times[opens:].searchsorted(settled.rows_from))
    return found.table(begin, end), _Carried(rows.following(kept), settled.before)
