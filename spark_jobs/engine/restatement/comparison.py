"""Desired and published windows side by side, part by part. Finds the published windows that an update can have changed
and the corrections that turn them into the desired ones.

Both streams are in the order (key, start). Windows that are equal bit for bit yield nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spark_jobs.engine.columns.equality import same_values
from spark_jobs.engine.corrections.buffer import CodedCorrections
from spark_jobs.engine.corrections.columns import Updates
from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.rows import encode, group_rows, sorted_order, writable
from spark_jobs.engine.windows.streams import Place
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LIVE, CLOSING = "live", "closing"
PLACED = "placed"
"""Name of the column of rows with the time at which a row counts: its own time, unless it was moved on."""


class RepeatedWindowError(TidemarkError):
    """An identity occurs twice among windows, so it is undefined which window replaces which. Facts: `window`, its
    identity."""

    code = "repeated_window"


@dataclass(frozen=True)
class Order:
    """The order and the identity of a kind's windows: by their key, then the kind's `order_columns` and `position`."""

    key: tuple[str, ...]
    kind: WindowKind

    @property
    def groups(self) -> list[str]:
        """The columns before the position."""
        return [*self.key, *self.kind.order_columns]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns whose values, taken together, occur in one window at most."""
        return (*self.key, *self.kind.identity)

    @property
    def added(self) -> set[str]:
        """The ordering columns that `Kind.in_place` adds to windows; `window_start` is never one of them."""
        return {*self.kind.order_columns, self.kind.position} - {"window_start"}

    def place(self, upto: Place) -> Place:
        """A place of the stream of rows as one of the stream of windows."""
        columns, position = self.kind.place(upto.time, upto.number)
        key = upto.key
        for name, value in zip(self.kind.order_columns, columns, strict=True):
            key = key.append_column(name, pa.array([value], pa.int64()))
        return Place(key, position)

    def begin(self, windows: pa.Table) -> Place:
        """The place of the last of these windows; windows before this place do not belong with that window."""
        last = windows.slice(windows.num_rows - 1)
        return Place(last.select(self.groups), last.column(self.kind.position)[0].as_py())

    def before(self, windows: pa.Table, place: Place) -> int:
        """The number of these windows, which are in order, that come before a place."""
        if not windows.num_rows:
            return 0
        groups = windows.select(self.groups)
        both = pa.concat_tables([groups, place.key.select(groups.column_names).cast(groups.schema)])
        codes, _ = group_rows(both.combine_chunks(), groups.column_names)
        earlier = codes[:-1] < codes[-1]
        earlier |= (codes[:-1] == codes[-1]) & (windows.column(self.kind.position).to_numpy() < place.time)
        return int(np.count_nonzero(earlier))

    def touching_after(self, touched: pa.Table, upto: Place) -> pa.Table:
        """The first touched row (key columns, PLACED) that can change a window at `upto` or later, or an empty table.

        For kinds that read no row again: the first such row affects all that a later touched row affects."""
        rows, key = key_codes([touched, upto.key.cast(touched.select(list(self.key)).schema)], self.key)
        times = touched.column(PLACED).to_numpy()
        start = np.array([upto.time], np.int64)
        near = np.flatnonzero((rows == key[0]) & (times >= self.kind.affected_by(start, start)[0][0]))
        return touched.take(pa.array(near[times[near].argsort(kind="stable")[:1]]))


class PublishedStream:
    """A stream of published windows with the columns of `schema`, in order, taken part by part."""

    def __init__(self, chunks: Iterable[pa.Table], schema: pa.Schema) -> None:
        self._chunks = iter(chunks)
        self.schema = schema
        self._left = schema.empty_table()

    def take(self, place: Place | None, order: Order) -> tuple[pa.Table, Place | None]:
        """The next windows before `place` (None: any), and the place before which no window is left. Once all windows
        before `place` were taken, the second is `place` itself."""
        while True:
            self._left = self._left if self._left.num_rows else next(self._chunks, self._left)
            left = self._left
            n = left.num_rows if place is None else order.before(left, place)
            more = None if n < left.num_rows else next(self._chunks, None)
            if more is None:
                self._left = left.slice(n)
                return left.slice(0, n), place
            # windows that belong together may continue in the next chunk
            begin = order.begin(left) if left.num_rows else None
            n = 0 if begin is None else order.before(left, begin)
            self._left = pa.concat_tables([left.slice(n), more])
            if n:
                return left.slice(0, n), begin


def side_by_side(
    parts: Iterable[tuple[pa.Table, Place | None]], published: PublishedStream, order: Order
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Desired windows and the published ones that belong with them: windows of one identity are yielded together.

    Args:
        parts: tables of desired windows in order, each with the place before which no more windows follow.
    """
    for windows, place in parts:
        left = windows
        while True:
            theirs, bound = published.take(place, order)
            if bound is None or bound is place:
                yield left, theirs
                break
            n = order.before(left, bound)
            yield left.slice(0, n), theirs
            left = left.slice(n)


def whole_parts(
    tables: Iterable[pa.Table], upto: Place | None, order: Order
) -> Iterator[tuple[pa.Table, Place | None]]:
    """All windows before `upto`, in order, as tables that are cut between windows of different places. Each table
    comes with the place before which no more windows follow."""
    left: pa.Table | None = None
    for table in tables:
        if left is None or not left.num_rows:
            left = table
            continue
        begin = order.begin(left)
        n = order.before(left, begin)
        if n:
            yield left.slice(0, n), begin
        left = pa.concat_tables([left.slice(n), table])
    if left is not None:
        yield left, upto


@dataclass(frozen=True)
class Comparison:
    """The comparison that turns published windows into desired ones. `expired`, `everything`, `known_from`: see
    `restatement`."""

    order: Order
    known_from: int
    everything: bool
    expired: int | None

    def asks_for(self, desired: pa.Table, touched: pa.Table | None) -> Mask:
        """Flags of the windows that are not expired and that rows of `touched` (key columns, PLACED) can change.

        With `touched` None (all rows are touched), or `everything`, every window that is not expired is flagged."""
        kept = ~_end_at(desired, self.expired)
        return kept if touched is None or self.everything else kept & self._select_affected(desired, touched)

    def corrections(self, desired: pa.Table, published: pa.Table, touched: pa.Table) -> pa.Table:
        """Corrections of the published windows that expired or that rows of `touched` can have changed. `desired` has
        the windows that `asks_for` flags."""
        published = without_closed(published, self.order.identity)
        if not self.everything:
            concerned = self._select_affected(published, touched) | _end_at(published, self.expired)
            published = published.filter(pa.array(concerned))
        desired, published = (windows.drop_columns([*self.order.added]) for windows in (desired, published))
        return _difference(desired, published, self.order.identity, self.known_from)

    def _select_affected(self, windows: pa.Table, touched: pa.Table) -> Mask:
        if not windows.num_rows or not touched.num_rows:
            return np.zeros(windows.num_rows, np.bool_)
        window_codes, codes = key_codes([windows, touched], self.order.key)
        start, end = (writable(windows.column(name).combine_chunks()) for name in ("window_start", "window_end"))
        times = writable(touched.column(PLACED).combine_chunks())
        order = sorted_order(codes, times)
        if order is not None:
            codes, times = codes[order], times[order]
        begin = np.searchsorted(codes, np.arange(max(int(codes[-1]), int(window_codes.max())) + 2))
        return _is_one_between(begin, times, window_codes, *self.order.kind.affected_by(start, end))


@njit(cache=True, nogil=True)
def _is_one_between(begin: Ints, times: Ints, codes: Ints, low: Ints, high: Ints) -> Mask:
    """Per window, True if its key has a time from `low` to `high`, both inclusive.

    Key c has the times at `begin[c] .. begin[c+1]-1`, which ascend."""
    flags = np.zeros(codes.size, np.bool_)
    for window in range(codes.size):
        first, past = begin[codes[window]], begin[codes[window] + 1]
        stop = past
        while first < past:
            middle = (first + past) >> 1
            if times[middle] < low[window]:
                first = middle + 1
            else:
                past = middle
        flags[window] = first < stop and times[first] <= high[window]
    return flags


def without_closed(rows: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The live rows of `rows` that no closing row ends, without the column `era`.

    A closing row ends the live row with equal `identity` and `known_from`; `rows` has these columns and `era`.
    """
    is_closing = pc.equal(rows.column("era"), CLOSING)
    live = rows.filter(pc.invert(is_closing)).drop_columns(["era"])
    closings = rows.filter(is_closing)
    if closings.num_rows == 0:
        return live
    same = [*identity, "known_from"]
    # join only the columns that tell rows apart: Arrow can't join columns of lists
    places = live.select(same).append_column("place", pa.array(range(live.num_rows), pa.int64()))
    left = places.join(closings.select(same), keys=same, join_type="left anti")
    return live.take(left.column("place"))


def key_codes(tables: list[pa.Table], key: tuple[str, ...]) -> list[Ints]:
    """Per table, one number per row that is equal for equal keys across all tables; null equals null."""
    sizes = np.cumsum([0, *(table.num_rows for table in tables)])
    codes = np.zeros(sizes[-1], np.int64)
    for name in key:
        column = pa.chunked_array(
            [chunk for table in tables for chunk in table.column(name).chunks], tables[0].schema.field(name).type
        )
        flat = column.combine_chunks()
        values, distinct = _with_nulls(flat)
        codes, _ = encode(pa.array(codes * (distinct + 1) + values))
    return [codes[sizes[i] : sizes[i + 1]] for i in range(len(tables))]


def _with_nulls(values: pa.Array) -> tuple[Ints, int]:
    codes = np.full(len(values), 0, np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    present, distinct = encode(values.drop_null())
    codes[valid] = present + 1
    return codes, len(distinct) + 1


def _end_at(windows: pa.Table, expired: int | None) -> Mask:
    if expired is None:
        return np.zeros(windows.num_rows, np.bool_)
    ended: Mask = windows.column("window_end").to_numpy() <= expired
    return ended


def _difference(desired: pa.Table, published: pa.Table, identity: tuple[str, ...], known_from: int) -> pa.Table:
    """Insertions and closings that turn `published` into `desired`; each has an identity once.

    Raises:
        RepeatedWindowError: an identity is repeated in one of them.
    """
    values = [name for name in published.column_names if name not in ("known_from", "revision")]
    desired = desired.select(values).cast(published.select(values).schema)
    if not published.num_rows:
        return _insertions(desired, np.zeros(desired.num_rows, np.int32), known_from, published.schema)
    ours, theirs = _matches(desired, published, identity)
    same = np.ones(ours.size, np.bool_)
    for name in values:
        same &= same_values(desired.column(name).take(pa.array(ours)), published.column(name).take(pa.array(theirs)))
    n, m = desired.num_rows, published.num_rows
    codes = np.arange(n, n + m, dtype=np.int64)
    codes[theirs[same]] = ours[same]
    inserted, closed = remaining_codes(np.arange(n, dtype=np.int64), codes)
    revision = np.zeros(n, np.int32)
    revision[ours] = published.column("revision").to_numpy()[theirs] + 1
    insertions = _insertions(desired.take(pa.array(inserted)), revision[inserted], known_from, published.schema)
    closings = published.take(pa.array(np.flatnonzero(np.isin(codes, closed))))
    closings = closings.append_column("known_to", pa.array(np.full(closed.size, known_from, np.int64)))
    closings = closings.append_column("era", pa.repeat(CLOSING, closed.size))
    return pa.concat_tables([insertions, closings.select(insertions.column_names).cast(insertions.schema)])


def _repeat(desired: pa.Table, published: pa.Table, row: int, identity: tuple[str, ...]) -> RepeatedWindowError:
    rows, row = (desired, row) if row < desired.num_rows else (published, row - desired.num_rows)
    values = rows.select(list(identity)).slice(row, 1).to_pylist()[0]
    return RepeatedWindowError(
        expected=f"each window once among the {'published' if rows is published else 'computed'} ones",
        found=f"the one with {', '.join(f'{name} {value}' for name, value in values.items())} several times",
        next_step="`tidemark audit SOURCE` names the tables and rows; restore them from a backup",
        window=values,
    )


def remaining_codes(desired: Ints, published: Ints) -> tuple[Ints, Ints]:
    """The codes of the desired rows to insert and of the published rows to close, both ascending. Equal rows have equal
    codes.

    Desired rows are inserted into the buffer with diff +1 and published rows negated, all at the one time of this
    publication. The updates left in the buffer are the ones to write.
    """
    buffer = CodedCorrections()
    buffer.insert(_at_once(desired))
    buffer.insert_negated(_at_once(published))
    left = buffer.updates_before(Frontier.at(1))
    return left.data[left.diffs > 0], left.data[left.diffs < 0]


def _at_once(codes: Ints) -> Updates:
    return Updates(np.zeros(codes.size, np.uint64), codes, np.ones(codes.size, np.int64))


def _insertions(desired: pa.Table, revision: npt.NDArray[np.int32], known_from: int, columns: pa.Schema) -> pa.Table:
    """Desired windows as live rows, with the columns of published windows, `known_to` and `era`."""
    n = desired.num_rows
    own_columns = {"known_from": pa.array(np.full(n, known_from, np.int64)), "revision": pa.array(revision)}
    arrays = [own_columns[name] if name in own_columns else desired.column(name) for name in columns.names]
    table = pa.table(arrays, names=columns.names)
    return table.append_column("known_to", pa.nulls(n, pa.int64())).append_column("era", pa.repeat(LIVE, n))


def _matches(desired: pa.Table, published: pa.Table, identity: tuple[str, ...]) -> tuple[Ints, Ints]:
    """The row numbers of the pairs with the same identity: in `desired`, and in `published`."""
    ours, theirs = key_codes([desired, published], tuple(name for name in identity if name != "window_start"))
    codes = np.concatenate([ours, theirs])
    starts = np.zeros(codes.size, np.int64)
    if "window_start" in identity:
        starts = np.concatenate([table.column("window_start").to_numpy() for table in (desired, published)])
    side = np.repeat(np.array([0, 1], np.int8), [desired.num_rows, published.num_rows])
    order = np.lexsort((side, starts, codes))
    pair = np.flatnonzero((codes[order][1:] == codes[order][:-1]) & (starts[order][1:] == starts[order][:-1]))
    repeated = pair[side[order[pair]] == side[order[pair + 1]]]
    if repeated.size:
        raise _repeat(desired, published, int(order[repeated[0]]), identity)
    return order[pair], order[pair + 1] - desired.num_rows
