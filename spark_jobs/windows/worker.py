"""What a Python worker does with the rows of one partition: sort them within a budget of memory, make windows as the
sorted rows stream by, hand them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.kernels.windows import (
    Inputs,
    Maker,
    MemoryBudget,
    MemoryUse,
    RowSorter,
    Skips,
    Wanted,
)
from spark_jobs.kernels.windows.rows import as_ticks
from spark_jobs.kernels.windows.slices import HotKey, kept
from spark_jobs.kernels.windows.streams import stream_windows

from .hot_keys import SLICE_COLUMN
from .spill import RunFiles

STREAM_TIME = "__stream_time"
MIN_END = "__min_end"
METRICS = ("rows", "flushed_runs", "flushed_bytes", "peak_bytes")
"""What a worker tells about itself, of `MemoryUse`."""
Task = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]
_LEAST = -(2**63)
_ROWS_A_BATCH = 1 << 17
"""Rows of one output batch: large enough for Arrow, a few MB for the JVM."""


def metric_column(name: str) -> str:
    """The column in which a metric travels."""
    return f"__{name}"


@dataclass(frozen=True)
class OwnSlice:
    """Asks for the windows that start in the slice that makes them, which SLICE_COLUMN names: not those of its halo."""

    hot: tuple[HotKey, ...]

    def __call__(self, windows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of these windows."""
        return kept(self.hot, as_ticks(windows.column(SLICE_COLUMN)), as_ticks(windows.column("window_start")))


@dataclass(frozen=True)
class WindowsTask:
    """Windows of rows in any order.

    Args:
        required, drop_negative: which rows can't count, see `rows.able_rows`.
        wanted: the windows asked for; None: all.
        most_columns: of a window, for counting memory.
        with_metrics: tables have the METRICS as columns, null but in a row of their own, the task's last, which has
            nothing else.
    """

    maker: Maker
    inputs: Inputs
    required: list[str]
    drop_negative: bool
    max_bytes: int
    most_columns: int
    wanted: Wanted | None = None
    with_metrics: bool = False

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """One row a window."""
        budget, blank = MemoryBudget(self.max_bytes), None
        with RunFiles() as store:
            sorter = RowSorter(
                key=self.inputs.key,
                time=self.inputs.time,
                budget=budget,
                store=store,
                required=self.required,
                drop_negative=self.drop_negative,
            )
            for table in tables:
                blank = table.slice(0, 0) if blank is None else blank
                sorter.add(table)
            for windows in self._windows(sorter, budget):
                if windows.num_rows:
                    yield _with_metrics(windows, None) if self.with_metrics else windows
            if self.with_metrics and blank is not None:
                # a task may have no window, but it has flushed all the same
                kinds = self.maker.find(blank).table(0, 0, None).schema
                no_window = pa.table([pa.nulls(1, kind) for kind in kinds.types], names=kinds.names)
                yield _with_metrics(no_window, budget.use)

    def _windows(self, sorter: RowSorter, budget: MemoryBudget) -> Iterator[pa.Table]:
        per_row = self.maker.windows_a_row
        most_rows = budget.rows_at_a_time(sorter.row_bytes(), per_row, self.most_columns)

        def held(n_bytes: int, n_rows: int) -> None:
            budget.use.holds(windowing=budget.windowing_bytes(n_bytes, n_rows, per_row), windows=0)

        chunks, most_bytes = sorter.chunks(most_rows), budget.table_bytes()
        how: Any = {"most_rows": most_rows, "most_bytes": most_bytes, "wanted": self.wanted, "held": held}
        for windows in stream_windows(chunks, self.maker, **how):
            budget.use.holds(windows=windows.nbytes)
            yield windows


def _with_metrics(windows: pa.Table, use: MemoryUse | None) -> pa.Table:
    """The table with the METRICS; None: with nulls in their place."""
    for name in METRICS:
        values = pa.nulls(windows.num_rows, pa.int64()) if use is None else pa.array([getattr(use, name)], pa.int64())
        windows = windows.append_column(metric_column(name), values)
    return windows


@dataclass(frozen=True)
class SkippedTask:
    """What does not count of rows in any order: told of at once, but for what takes other rows to tell.

    `most_columns`: of a window, for counting memory.
    """

    skips: Skips
    inputs: Inputs
    max_bytes: int
    most_columns: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """One row for each row, or pair of a row and a window, that does not count."""
        budget = MemoryBudget(self.max_bytes)
        with RunFiles() as store:
            sorter = RowSorter(key=self.inputs.key, time=self.inputs.time, budget=budget, store=store)
            waiting = False
            for table in tables:
                told, rest = self.skips.told_at_once(table)
                yield from told
                if rest is not None:
                    sorter.add(rest)
                    waiting = True
            if waiting:
                most_rows = budget.rows_at_a_time(sorter.row_bytes(), self.skips.windows_a_row, self.most_columns)
                yield from self.skips.stream(sorter.chunks(most_rows), most_rows)


@dataclass(frozen=True)
class Partition:
    """The function for `mapInArrow`.

    Args:
        inputs: names of the columns that come.
        outputs: names of the columns to hand back, in order.
        grace: how far behind the stream time, which comes as STREAM_TIME, a window closes; None: no window does.
    """

    task: Task
    inputs: list[str]
    outputs: list[str]
    grace: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow in, Arrow out."""
        for found in self.task(self._tables(batches)):
            yield from found.select(self.outputs).to_batches(max_chunksize=_ROWS_A_BATCH)

    def _tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            if batch.num_rows:
                table = pa.Table.from_batches([batch]).rename_columns(self.inputs)
                if self.grace is not None:
                    closing = _closing_times(table.column(STREAM_TIME), self.grace)
                    table = table.append_column(MIN_END, pa.array(closing)).drop_columns([STREAM_TIME])
                yield table


def _closing_times(stream_time: pa.ChunkedArray, grace: int) -> npt.NDArray[np.int64]:
    """Stream time less the grace, saturated; a stream without any time closes nothing."""
    reached = as_ticks(stream_time)
    closing = np.where(reached < _LEAST + grace, _LEAST, reached - np.int64(grace))
    if stream_time.null_count:
        closing[stream_time.is_null().to_numpy()] = _LEAST
    return closing
