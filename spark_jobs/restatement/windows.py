"""Restating windows: read the rows and windows within reach of the touched rows, exchange them once by key, let the
kernel compare.

The touched times alone decide which rows are read: those within one size (or gap) and one tick. For sessions, all rows
of the published sessions near the touched times are read as well. If the touched times are near sessions that are not
kept any more, all earlier rows are read, too. There is no look-back horizon. Large definitions of a source share one
exchange. A small one is worked on in this process, without a Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.definitions.definition import Definition
from spark_jobs.distribution import ROWS_ALONE, is_for_here, tasks_for_cores
from spark_jobs.engine.columns import Ints, numbers
from spark_jobs.engine.restatement import PLACED
from spark_jobs.engine.spark.windows import DEFAULT_ROWS_A_SLICE, Given
from spark_jobs.engine.windows import SLICE_COLUMN, Account, MemoryBudget, Spread, in_slices, slice_halo, spread
from spark_jobs.exchange import Block, Labelled, exchange
from spark_jobs.memory import with_room
from spark_jobs.restatement.overflows import Overflows
from spark_jobs.restatement.pressure import add_use, metrics_of, no_use
from spark_jobs.restatement.reach import reach, rows_near
from spark_jobs.restatement.restater import Restater, WorkerReport, row_schema, window_schema
from spark_jobs.restatement.slicing import SampledUpdates
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.restatement.window_rows import PublishedWindows, UpdatesInReach, key_hashes
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.threads import THREADS

DROPS_A_FILE = 2
"""The longest span of touched times, in lengths of a drop, whose windows are written in the order of keys, as they come
from the workers. The windows of a daily run are read as a whole when they are restated again. Those of a longer span
are sorted by time."""
LEAST_ROWS_A_PIECE, ROWS_A_PIECE = 1 << 16, 1 << 19
"""The approximate number of rows that one task reads and deals out: the least, and the most."""
ROWS, WINDOWS = "rows", "windows"
"""Labels of blocks."""


@dataclass
class WindowCorrections:
    """The corrections of a definition's table: the `files` to append, and the reports of the workers that wrote them.

    Args:
        account: the account of the touched rows.
        memory: the metrics of the workers' memory, see `pressure`.
        overflows: results that do not fit into their types, and are null.
    """

    files: list[WrittenFile] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    memory: dict[str, int] = field(default_factory=no_use)
    overflows: Overflows = field(default_factory=Overflows)

    def take(self, answer: dict[str, Any]) -> None:
        """Add the answer of one task."""
        self.files += [WrittenFile(**file) for file in answer["files"]]
        self.account += Account(**answer["account"])
        self.overflows.add(Overflows(**answer["overflows"]))
        add_use(self.memory, answer["memory"])


@dataclass(frozen=True)
class _Work:
    """The work for one definition.

    Args:
        by_time: True if the rows of a task are sorted by time before they are written.
    """

    definition: Definition
    rows: UpdatesInReach
    published: PublishedWindows
    over: Spread
    restater: Restater
    to: Destination
    token: int
    by_time: bool

    @cached_property
    def n_bytes(self) -> int:
        """The approximate bytes of the rows and the published windows."""
        return self.rows.n_bytes + self.published.stored.n_bytes

    def pieces(self, first: int) -> list[_Piece]:
        """The rows and published windows to read, in pieces; the tasks of the definition begin at number `first`."""
        most_rows = max(min(self.rows.n_rows // self.over.tasks, ROWS_A_PIECE), LEAST_ROWS_A_PIECE)
        rows = [_Piece(part, self.over, first) for part in self.rows.split(most_rows)]
        return [*rows, *(_Piece(part, self.over, first) for part in self.published.split(most_rows))]

    def restate(self, blocks: Labelled) -> bytes:
        """The answer of one task, as JSON: restate its blocks, write the corrections, and return files and report."""
        outcome = WorkerReport()
        files = self.to.write(self._stamp(self.restater(self._give_rows(blocks), outcome)))
        answer = {"files": as_plain(files), "account": asdict(outcome.account), "memory": metrics_of(outcome.memory)}
        answer |= {"definition": self.definition.name, "overflows": asdict(outcome.overflows)}
        return json.dumps(answer, default=str, ensure_ascii=False).encode()

    def _give_rows(self, blocks: Labelled) -> Iterator[Given]:
        no_rows = row_schema(self.definition, sliced=bool(self.over.hot)).empty_table()
        for label, table in blocks:
            yield (table, None) if label == ROWS else (no_rows, table)

    def _stamp(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        if self.by_time:
            given = list(with_room(tables, lambda table: table))
            whole = pa.concat_tables(given) if given else row_schema(self.definition).empty_table()
            order = [("window_start", "ascending"), *((key, "ascending") for key in self.definition.key)]
            tables = iter([whole.sort_by(order)] if whole.num_rows else [])
        for table in tables:
            yield table.append_column("token", pa.repeat(pa.scalar(self.token, pa.int64()), table.num_rows))


@dataclass(frozen=True)
class _Piece:
    """A part of the rows or published windows of one definition, and the tasks that its blocks are for."""

    part: UpdatesInReach | PublishedWindows
    over: Spread
    first: int

    def blocks(self) -> Iterator[Block]:
        """Yield rows, once per slice that they bear on, and published windows, each in the slice in which it starts."""
        label = ROWS if isinstance(self.part, UpdatesInReach) else WINDOWS
        for table in self.part.tables():
            if self.over.tasks == 1:
                yield Block(self.first, label, table)
                continue
            places, slices, tasks = self._places(table)
            order = np.argsort(tasks, kind="stable")
            dealt = table.take(pa.array(places[order]))
            if self.over.hot:
                dealt = dealt.append_column(SLICE_COLUMN, pa.array(slices[order]))
                dealt = dealt.select(self._sliced_schema(label).names)
            bounds = np.flatnonzero(np.diff(tasks[order], prepend=-1, append=-1))
            for begin, end in pairwise(bounds.tolist()):
                yield Block(self.first + int(tasks[order[begin]]), label, dealt.slice(begin, end - begin))

    def _places(self, table: pa.Table) -> tuple[Ints, Ints, Ints]:
        """Three arrays: the places of rows in `table`, their slices and their tasks. A row occurs once per slice."""
        definition = self.part.definition
        hashed, halo = key_hashes(table, definition.groups), slice_halo(definition.kind)
        if isinstance(self.part, UpdatesInReach):
            times = definition.places(numbers(table["time"]), numbers(table["lo"]))
        else:
            times, halo = numbers(table["window_start"]), None if halo is None else (0, 0)
        places, slices = in_slices(self.over.hot, halo, hashed, times)
        return places, slices, self.over.tasks_of(hashed[places], slices)

    def _sliced_schema(self, label: str) -> pa.Schema:
        schema = row_schema if label == ROWS else window_schema
        return schema(self.part.definition, sliced=True)


def corrections(
    lake: Lake, scope: Scope, definitions: Sequence[Definition], ranges: Mapping[str, list[Range]], token: int
) -> dict[str, WindowCorrections]:
    """The corrections to append to the history tables, by definition.

    A definition is left out if no row with a key and a time was touched, and it keeps all its windows. `ranges` are the
    touched times of each definition.
    """
    works = [work for d in definitions if (work := _work(lake, scope.of_parts(d.part), d, ranges[d.name], token))]
    corrected = {work.definition.name: WindowCorrections() for work in works}
    for answer in _answers(lake, works):
        outcome = json.loads(answer)
        corrected[outcome.pop("definition")].take(outcome)
    return corrected


def _answers(lake: Lake, works: Sequence[_Work]) -> list[bytes]:
    here = [is_for_here(lake.spark, work.n_bytes) for work in works]
    small = [work for work, is_small in zip(works, here, strict=True) if is_small]
    large = [work for work, is_small in zip(works, here, strict=True) if not is_small]
    # one small definition after the other: only the answer of each is kept
    answers = [answer for work in small for answer in _exchange(lake, [work], here=True)]
    return answers + (_exchange(lake, large, here=False) if large else [])


def _exchange(lake: Lake, works: Sequence[_Work], *, here: bool) -> list[bytes]:
    spreading = [replace(work, over=_spread(lake, work, here=here)) for work in works]
    spreading = [replace(work, restater=replace(work.restater, hot=work.over.hot)) for work in spreading]
    firsts = [*accumulate((work.over.tasks for work in spreading), initial=0)]
    pieces = [piece for work, first in zip(spreading, firsts, strict=False) for piece in work.pieces(first)]
    # a task does not need the rows that others read
    of_task = [
        replace(w, rows=w.rows.none(), published=w.published.none()) for w in spreading for _ in range(w.over.tasks)
    ]
    restate = partial(_restate, works=of_task)
    return exchange(lake.spark, pieces, _Piece.blocks, firsts[-1], restate, here=here)


def _restate(task: int, blocks: Labelled, *, works: Sequence[_Work]) -> bytes:
    return works[task].restate(blocks)


def _spread(lake: Lake, work: _Work, *, here: bool) -> Spread:
    n_rows = work.rows.n_rows
    if here:
        rows_of_core = max(n_rows // THREADS, ROWS_ALONE)
    else:
        rows_of_core = -(-n_rows // tasks_for_cores(lake.spark, work.n_bytes))
    rows_a_slice = min(_rows_a_slice(work.definition, work.rows.n_bytes // max(n_rows, 1)), rows_of_core)
    if n_rows <= rows_a_slice:
        return Spread()
    return spread(SampledUpdates(lake.spark, work.rows), work.definition.kind, rows_a_slice)


def _rows_a_slice(definition: Definition, bytes_a_row: int) -> int:
    """The approximate number of rows that a task gets: no more than it can sort without writing any to disk."""
    columns = len({*row_schema(definition, sliced=True).names, *window_schema(definition).names, PLACED, "min_end"})
    memory = definition.source.memory
    budget = MemoryBudget(memory.max_bytes, high_water=memory.high_water)
    return min(DEFAULT_ROWS_A_SLICE, max(budget.rows_held(max(8 * columns, bytes_a_row)), 1))


def _work(lake: Lake, scope: Scope, definition: Definition, ranges: list[Range], token: int) -> _Work | None:
    """The work for a definition; None if there is nothing to restate."""
    expired_us = definition.expired_us(scope.frontiers.reached_us)
    if not ranges and not scope.everything and expired_us is None:
        return None
    near, published = reach(lake, scope, definition, ranges, expired_us)
    since = None if scope.everything else (scope.publication.published_us, scope.publication.reached_us)
    return _Work(
        definition,
        UpdatesInReach(
            definition,
            rows_near(lake, scope, definition, near),
            tuple(near),
            since,
            scope.cutoffs.get(definition.name),
        ),
        PublishedWindows(definition, published),
        Spread(),
        Restater(definition, scope.known_from_us, scope.everything, expired_us),
        lake.destination(definition.table()),
        token,
        # the files of a backfill are cut along time, so that a restatement of a few days reads few of them
        by_time=scope.everything or _span(ranges) > DROPS_A_FILE * definition.source.drops.every_us,
    )


def _span(ranges: list[Range]) -> int:
    """The time from the first to the last of the touched times, in microseconds."""
    return max((hi for _, hi in ranges), default=0) - min((lo for lo, _ in ranges), default=0)
