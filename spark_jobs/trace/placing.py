"""Writing a source's updates straight into their final batches, in this process or in the tasks of a Spark job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.distribution import cut_work
from spark_jobs.engine.arrangement import AdvanceRequest
from spark_jobs.engine.columns import Ints, numbers, present
from spark_jobs.engine.hashes import hashes
from spark_jobs.engine.updates import DIFF, TIME, Horizon, consolidate_rows, sort_numbers, visible_times
from spark_jobs.exchange import Block, Labelled, exchange
from spark_jobs.memory import with_room
from spark_jobs.sources import Source
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH, TOKEN = "batch", "token"
ROWS_A_TASK = 1 << 19
"""The approximate number of updates that a task sorts and writes."""
BELOW = BELOW_HORIZON.name


class LandedRows(Protocol):
    """Rows that have landed; parts of them may be sent to tasks."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        ...

    @property
    def n_bytes(self) -> int:
        """The approximate bytes of the rows."""
        ...

    def split(self, most_rows: int) -> Sequence[LandedRows]:
        """The rows in parts of about `most_rows` rows."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables with the columns of `tables.row_columns`, and `diff`."""
        ...


@dataclass(frozen=True)
class Placement:
    """The batches into which updates are placed, and the columns that are written of each update.

    Args:
        source: the source of the updates.
        request: the advance, with the new seal.
        handles: the handle of the batch for due updates, then those of the buckets in which the others wait.
        seal_us: the seal when the new updates landed.
        horizon: the horizon by which the new updates, and once more those that waited, are judged.
        order: the columns that a batch is sorted by.
        consolidates: True if updates may cancel, so that they are consolidated.
        token: the token of the attempt.
    """

    source: Source
    request: AdvanceRequest
    handles: tuple[str, ...]
    seal_us: int
    horizon: Horizon
    order: tuple[str, ...]
    consolidates: bool
    token: int
    to: Destination
    n_tasks: int = 1

    def blocks(self, piece: _New | _Moving) -> Iterator[Block]:
        """Yield the updates of a piece as blocks, each update in the task of its entity."""
        for table in piece.updates(self):
            yield from _dealt(table, self.n_tasks)

    def write(self, _: int, blocks: Labelled) -> bytes:
        """Write the updates of a task; returns the files and the numbers that `PlacedFiles` sums up, as JSON."""
        updates = pa.concat_tables([table for _, table in with_room(blocks, itemgetter(1))])
        facts = self._facts(updates)
        updates = updates.drop_columns(["is_new"])
        if self.consolidates:
            updates = consolidate_rows(updates)
        below = int(present(updates[BELOW]).sum())
        files = self.to.write(_by_batch(_with_token(updates, self.token), self.order))
        return json.dumps({**facts, "below": below, "files": as_plain(files)}).encode()

    def _facts(self, updates: pa.Table) -> dict[str, Any]:
        new, times, diffs = numbers(updates["is_new"]) != 0, numbers(updates[TIME]), numbers(updates[DIFF])
        door = self.request.door.time
        below = times[new & (np.ones_like(new) if door is None else times < door)]
        of_new = diffs[new]
        return {
            "new": int(new.sum()),
            "due": int((times < self.request.seal).sum()),
            "magnitude": int(np.abs(of_new).max()) if of_new.size else 0,
            "first_below": int(below.min()) if below.size else None,
        }

    def in_batches(self, updates: pa.Table, times: Ints, *, is_new: bool) -> pa.Table:
        """The updates with the columns `batch`, `below_horizon` and `is_new`."""
        passed = self.horizon.rows_below(numbers(updates["event_time"]), times) | present(updates[BELOW])
        due = times < self.request.seal
        levels = np.zeros(times.size, np.int64)
        levels[~due] = 1 + self.request.buckets.levels(times[~due], self.request.seal)
        place = updates.schema.get_field_index(BELOW)
        updates = updates.set_column(place, BELOW, pa.array(np.ones(times.size, np.int32), mask=~passed))
        handles = pa.DictionaryArray.from_arrays(pa.array(levels), pa.array(self.handles)).cast(pa.string())
        fitted = self.to.fit(updates)
        fitted = fitted.append_column(BATCH, handles)
        return fitted.append_column("is_new", pa.array(np.full(times.size, is_new)))


@dataclass(frozen=True)
class _New:
    """A part of the landed rows."""

    rows: LandedRows

    def updates(self, to: Placement) -> Iterator[pa.Table]:
        """Yield the rows as tables of updates, with their visible times."""
        source = to.source
        for rows in self.rows.tables():
            starts = source.drops.starts(numbers(rows["seq_no"]))
            arrivals = rows[f"t_{source.arrival}"] if source.arrival else None
            times = visible_times(numbers(rows["event_time"]), starts, to.seal_us, arrivals)
            updates = rows.append_column(TIME, pa.array(times, INSTANT))
            unmarked = updates.append_column(BELOW, pa.nulls(rows.num_rows, pa.int32()))
            yield to.in_batches(unmarked, times, is_new=True)


@dataclass(frozen=True)
class _Moving:
    """A part of the stored updates that are moved to other batches."""

    rows: StoredRows

    def updates(self, to: Placement) -> Iterator[pa.Table]:
        """Yield the stored updates as tables."""
        for rows in self.rows.tables():
            yield to.in_batches(rows, numbers(rows[TIME]), is_new=False)


@dataclass(frozen=True)
class PlacedFiles:
    """The files that `place` has written, and numbers about their updates.

    Args:
        new, due: the number of new updates; the number of all updates that belong to the trace.
        magnitude: a bound that no sum of the new updates' diffs exceeds.
        first_below: the least time of a new update below the door's frontier, if there is one.
        below: the number of updates below the horizon.
    """

    files: list[WrittenFile]
    new: int
    due: int
    magnitude: int
    first_below: int | None
    below: int


def place(
    spark: SparkSession | None, to: Placement, landed: LandedRows | None, moving: StoredRows | None, n_rows: int
) -> PlacedFiles:
    """Write the landed rows and the updates that move; `n_rows`: the approximate number of both."""
    n_bytes = sum(rows.n_bytes for rows in (landed, moving) if rows is not None)
    cut = cut_work(spark, n_rows, n_bytes, ROWS_A_TASK)
    to = replace(to, n_tasks=cut.tasks)
    pieces: list[_New | _Moving] = [] if landed is None else [_New(part) for part in landed.split(cut.rows_a_piece)]
    pieces += [] if moving is None else [_Moving(part) for part in moving.split(cut.rows_a_piece)]
    answers = exchange(spark, pieces, to.blocks, cut.tasks, to.write, here=cut.here)
    results = [json.loads(answer) for answer in answers]
    first = [of_task["first_below"] for of_task in results if of_task["first_below"] is not None]
    new = sum(of_task["new"] for of_task in results)
    return PlacedFiles(
        [WrittenFile(**file) for of_task in results for file in of_task["files"]],
        new,
        sum(of_task["due"] for of_task in results),
        new * max((of_task["magnitude"] for of_task in results), default=0),
        min(first, default=None),
        sum(of_task["below"] for of_task in results),
    )


@dataclass(frozen=True)
class Merging:
    """The batch into which two batches of the trace are merged.

    Args:
        handle: the handle of the merged batch.
        since: the least visible time of reads; earlier updates are moved up to it. None: they stay.
        order: the columns that the batch is sorted by.
        token: the token of the attempt.
    """

    handle: str
    since: int | None
    order: tuple[str, ...]
    token: int
    to: Destination

    def write(self, _: int, blocks: Labelled) -> bytes:
        """Write the updates of a task, consolidated; returns the files as JSON."""
        updates = pa.concat_tables([table for _, table in with_room(blocks, itemgetter(1))])
        if self.since is not None:
            place = updates.schema.get_field_index(TIME)
            moved = pa.array(np.maximum(numbers(updates[TIME]), self.since)).cast(updates.schema.field(place).type)
            updates = updates.set_column(place, TIME, moved)
        updates = consolidate_rows(updates)
        updates = updates.append_column(BATCH, pa.repeat(self.handle, updates.num_rows))
        return json.dumps(as_plain(self.to.write(_by_batch(_with_token(updates, self.token), self.order)))).encode()


def merge(spark: SparkSession | None, to: Merging, stored: StoredRows) -> list[WrittenFile]:
    """Write the updates `stored` as one batch; returns its files."""
    cut = cut_work(spark, stored.n_rows, stored.n_bytes, ROWS_A_TASK)

    def blocks(part: StoredRows) -> Iterator[Block]:
        for table in part.tables():
            yield from _dealt(table, cut.tasks)

    answers = exchange(spark, stored.split(cut.rows_a_piece), blocks, cut.tasks, to.write, here=cut.here)
    return [WrittenFile(**file) for answer in answers for file in json.loads(answer)]


def _dealt(updates: pa.Table, n_tasks: int) -> Iterator[Block]:
    """Yield the updates as blocks, each update in the task of its entity."""
    if n_tasks == 1:
        yield Block(0, "", updates)
        return
    tasks = hashes([updates["entity"]]) % np.uint64(n_tasks)
    for task in np.unique(tasks).tolist():
        yield Block(task, "", updates.filter(pa.array(tasks == task)))


def _with_token(updates: pa.Table, token: int) -> pa.Table:
    """The updates under the token of the attempt that writes them."""
    column = pa.repeat(pa.scalar(token, pa.int64()), updates.num_rows)
    place = updates.schema.get_field_index(TOKEN)
    return updates.append_column(TOKEN, column) if place < 0 else updates.set_column(place, TOKEN, column)


def _by_batch(updates: pa.Table, order: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the updates of each batch in the order of its columns."""
    for handle in pc.unique(updates[BATCH]).to_pylist():
        of_batch = np.flatnonzero(pc.equal(updates[BATCH], handle))
        yield updates.take(pa.array(sort_numbers(updates, of_batch, order)))
