"""The tasks of a Python worker on the rows of one partition.

A task sorts the rows within a budget of memory and makes windows as the sorted rows stream by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.restatement.comparison import Order, PublishedStream
from spark_jobs.engine.restatement.window_corrections import restate
from spark_jobs.engine.spark.windows.spill import RunFiles
from spark_jobs.engine.windows.memory import EMERGENCY, HIGH_WATER, MemoryBudget, MemoryUse
from spark_jobs.engine.windows.rows import as_ticks
from spark_jobs.engine.windows.runs import RowSorter
from spark_jobs.engine.windows.skipped import Skips
from spark_jobs.engine.windows.streams import PortionLimits, Windowing, stream_windows
from spark_jobs.engine.windows.tables import WindowInputs

STREAM_TIME = "__stream_time"
MIN_END = "__min_end"
METRICS = ("rows", "flushed_runs", "flushed_bytes", "peak_bytes", "peak_percent")
"""The fields of `MemoryUse` that a worker reports."""
Given = tuple[pa.Table, pa.Table | None]
"""The rows, and the published windows if there are any."""
Task = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]
_LEAST = -(2**63)
_ROWS_A_BATCH = 1 << 17
"""Rows of one output batch: large enough for Arrow, a few MB for the JVM."""


def metric_column(name: str) -> str:
    """The name of the column in which a worker returns a metric."""
    return f"__{name}"


@dataclass(frozen=True)
class Correcting:
    """A correction of published windows, which have the columns of `schema`; see `restatement`.

    A first publication is the case without any published windows."""

    schema: pa.Schema
    known_from: int
    everything: bool
    expired: int | None


@dataclass(frozen=True)
class WindowsTask:
    """Windows of rows in any order, or the corrections of published ones.

    Args:
        time: the column by which rows are sorted.
        most_columns: the greatest number of columns of a window, by which memory is counted.
        required, drop_negative: the conditions under which rows can't count, see `rows.able_rows`.
        most_rows: the number of rows that become windows at a time; None: as many as the budget allows.
        high_water, emergency: shares of the memory for rows, see `MemoryBudget`.
    """

    windowing: Windowing
    time: str
    max_bytes: int
    most_columns: int
    required: Sequence[str] = ()
    drop_negative: bool = False
    correcting: Correcting | None = None
    most_rows: int | None = None
    high_water: float = HIGH_WATER
    emergency: float = EMERGENCY

    def __call__(self, given: Iterator[Given], use: MemoryUse) -> Iterator[pa.Table]:
        """Tables of windows in the order (key, start); the memory that they take is counted in `use`."""
        budget = MemoryBudget(self.max_bytes, use, self.high_water, self.emergency)
        with RunFiles() as store:
            shared: Any = {"key": list(self.windowing.key), "budget": budget, "store": store}
            able: Any = {"required": self.required, "drop_negative": self.drop_negative}
            rows = RowSorter(time=self.time, held_as="rows", **able, **shared)
            order = Order(self.windowing.key, self.windowing.kind)
            of_windows = shared | {"key": order.groups, "time": order.kind.position}
            published = RowSorter(held_as="published", **of_windows)
            if self.correcting is not None:
                rows.share_with(published)
            for fresh, windows in given:
                rows.add(fresh)
                if windows is not None:
                    published.add(order.kind.in_place(windows))
            yield from self._make(rows, published, budget)

    def _make(self, rows: RowSorter, published: RowSorter, budget: MemoryBudget) -> Iterator[pa.Table]:
        per_row = self.windowing.kind.windows_a_row
        most_rows = self.most_rows or budget.rows_at_a_time(rows.row_bytes(), per_row, self.most_columns)

        def note_rows(n_bytes: int, n_rows: int) -> None:
            budget.use.holds(windowing=budget.windowing_bytes(n_bytes, n_rows, per_row), windows=0)

        def note_windows(n_bytes: int) -> None:
            budget.use.holds(windows=n_bytes)

        chunks, pace = rows.chunks(most_rows), PortionLimits(most_rows, budget.table_bytes(), note_rows, note_windows)
        if self.correcting is None:
            return stream_windows(chunks, self.windowing, pace)
        schema = self.windowing.kind.in_place(self.correcting.schema.empty_table()).schema
        stand = PublishedStream(published.chunks(most_rows), schema)
        how: Any = {name: getattr(self.correcting, name) for name in ("known_from", "everything", "expired")}
        return restate(chunks, stand, self.windowing, pace, **how)


@dataclass(frozen=True)
class NewWindows:
    """The task of a call on a DataFrame: windows of rows, without any published windows.

    With `with_metrics`, tables have the METRICS as columns. They are null in windows; a last row has nothing else.
    """

    windows: WindowsTask
    with_metrics: bool = False

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Tables with one row per window."""
        use, blank = MemoryUse(), None

        def rows_alone() -> Iterator[Given]:
            nonlocal blank
            for table in tables:
                blank = table.slice(0, 0) if blank is None else blank
                yield table, None

        for windows in self.windows(rows_alone(), use):
            if windows.num_rows:
                yield _with_metrics(windows, None) if self.with_metrics else windows
        if self.with_metrics and blank is not None:
            # a task without any window may have flushed runs, too
            kinds = self.windows.windowing.find(blank).table(0, 0, None).schema
            no_window = pa.table([pa.nulls(1, kind) for kind in kinds.types], names=kinds.names)
            yield _with_metrics(no_window, use)


def _with_metrics(windows: pa.Table, use: MemoryUse | None) -> pa.Table:
    """The table with the METRICS as columns; nulls if `use` is None."""
    for name in METRICS:
        values = pa.nulls(windows.num_rows, pa.int64()) if use is None else pa.array([getattr(use, name)], pa.int64())
        windows = windows.append_column(metric_column(name), values)
    return windows


@dataclass(frozen=True)
class SkippedTask:
    """The rows that do not count, from rows in any order: listed at once, unless other rows are needed to decide.

    `most_columns` is the greatest number of columns of a window, by which memory is counted.
    """

    skips: Skips
    inputs: WindowInputs
    max_bytes: int
    most_columns: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Tables with one row for each row, or pair of a row and a window, that does not count."""
        budget = MemoryBudget(self.max_bytes)
        with RunFiles() as store:
            sorter = RowSorter(key=self.inputs.key, time=self.inputs.time, budget=budget, store=store)
            waiting = False
            for table in tables:
                listed, others = self.skips.told_at_once(table)
                yield from listed
                if others is not None:
                    sorter.add(others)
                    waiting = True
            if waiting:
                most_rows = budget.rows_at_a_time(sorter.row_bytes(), self.skips.windows_a_row, self.most_columns)
                yield from self.skips.stream(sorter.chunks(most_rows), most_rows)


@dataclass(frozen=True)
class Partition:
    """The function for `mapInArrow`: runs a task on the batches of a partition.

    Args:
        inputs: the names of the columns of the batches.
        outputs: the names of the columns to return, in order.
        grace: the ticks behind the stream time (the column STREAM_TIME) at which a window closes; None: no window
            closes.
    """

    task: Task
    inputs: list[str]
    outputs: list[str]
    grace: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that the task makes of `batches`."""
        for windows in self.task(self._tables(batches)):
            yield from windows.select(self.outputs).to_batches(max_chunksize=_ROWS_A_BATCH)

    def _tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            if batch.num_rows:
                table = pa.Table.from_batches([batch]).rename_columns(self.inputs)
                if self.grace is not None:
                    closing = _closing_times(table.column(STREAM_TIME), self.grace)
                    table = table.append_column(MIN_END, pa.array(closing)).drop_columns([STREAM_TIME])
                yield table


def _closing_times(stream_time: pa.ChunkedArray, grace: int) -> npt.NDArray[np.int64]:
    """The stream times less the grace, saturated; a null stream time closes no window."""
    reached = as_ticks(stream_time)
    closing = np.where(reached < _LEAST + grace, _LEAST, reached - np.int64(grace))
    if stream_time.null_count:
        closing[stream_time.is_null().to_numpy()] = _LEAST
    return closing
