"""From a DataFrame to windows: one shuffle by key, then one kernel call a partition, which sorts in the worker.

Only the columns that are needed travel. The DataFrame is touched by names and SQL expressions alone, so that classic
Spark and Spark Connect take the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType, TimestampType

from spark_jobs.kernels.windows import (
    Aggregate,
    Cuts,
    Deltas,
    Inputs,
    NullValues,
    Shape,
    adaptive_table,
    skipped_table,
    stats_type,
    window_tables,
)
from spark_jobs.kernels.windows.monoid import columns_read
from spark_jobs.kernels.windows.rows import as_ticks

from .parameters import Duration, Frame, is_integer, refuse, ticks

STREAM_TIME = "__stream_time"
MIN_END = "__min_end"
SLICE = "__slice"
Task = Callable[[pa.Table], Iterator[pa.Table]]
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_ROWS_A_BATCH = 1 << 17
"""Rows of one output batch: large enough for Arrow, a few MB for the JVM."""
_ROWS_A_PIECE = 1 << 18
"""Rows that become windows at a time: a few dozen MB beside the partition itself."""


@dataclass(frozen=True)
class WindowCall:
    """The checked parameters that all kinds of windows share."""

    frame: Frame
    key: list[str]
    time: str
    time_type: DataType
    aggregates: dict[str, Aggregate]
    outputs: dict[str, pa.DataType]
    grace: int | None
    arrival: str | None
    stream: list[str]
    also_read: list[str]
    """Columns that the windows themselves read, beside key and time."""

    @classmethod
    def checked(
        cls,
        df: DataFrame,
        *,
        key: Any,
        time: Any,
        aggregates: Any,
        aggregates_needed: bool = True,
        grace: Duration | None = None,
        arrival: str | None = None,
        stream: Any = None,
        taken: Sequence[str] = ("window_start", "window_end"),
        also_read: Sequence[str] = (),
    ) -> WindowCall:
        """Check what every kind takes; raises ParameterError that names the first wrong parameter."""
        frame = Frame.of(df)
        keys = frame.columns("key", key)
        time_type = frame.time(time)
        clash = {name.lower() for name in keys} & set(taken)
        if clash:
            raise refuse("key", expected=f"names other than {', '.join(taken)}", found=sorted(clash))
        outputs = frame.aggregates(aggregates, [*keys, *taken], needed=aggregates_needed)
        if arrival is not None:
            frame.column("arrival", arrival)
        if grace is not None and arrival is None:
            raise refuse("arrival", expected="the column that orders arrivals, as grace is given", found=None)
        if stream is not None and grace is None:
            raise refuse("grace", expected="a length of time, as stream is given", found=None)
        allowed = None if grace is None else ticks("grace", grace, time_type, least=0)
        streams = [] if stream is None else frame.columns("stream", stream)
        return cls(frame, keys, time, time_type, dict(aggregates), outputs, allowed, arrival, streams, list(also_read))

    def windows(self, shape: Shape, slices: Duration | None = None) -> DataFrame:
        """The windows of this shape with their aggregates; each key cut into `slices` of time, if any."""
        fields = self.window_fields([])
        if slices is None:
            return self._apply(shape.null_values, WindowsTask(shape, self.inputs()), fields)
        length = ticks("slices", slices, self.time_type, least=1)
        if shape.halo is None:
            raise refuse(
                "slices", expected=f"None for {type(shape).__name__.lower()}, which may be of any length", found=length
            )
        if length <= shape.halo[0]:
            raise refuse("slices", expected=f"more than the size, {shape.halo[0]} ticks", found=length, value=length)
        task = SlicedTask(shape, self.inputs(), length)
        return self._apply(shape.null_values, task, fields, self._slice_numbers(length, shape.halo))

    def adaptive(self, cuts: Cuts, deltas: Deltas) -> DataFrame:
        """Adaptive windows with their statistics and aggregates."""
        ids = ArrayType(self.frame.types[deltas.delta])
        own = [("window_id", StringType()), ("delta_ids", ids), ("stats", from_arrow_type(stats_type()))]
        fields = self.window_fields([*own, ("trigger", StringType())])
        return self._apply("skip_value", AdaptiveTask(cuts, deltas, self.inputs()), fields)

    def skipped(self, shape: Shape) -> DataFrame:
        """The rows, and the pairs of a row and a window, that do not count."""
        fields = [StructField(name, self.frame.types[name]) for name in self._needed()]
        fields += [StructField(name, self._bound()) for name in ("window_start", "window_end")]
        fields += [StructField("reason", StringType(), nullable=False)]
        return self._apply(shape.null_values, SkippedTask(shape, self.inputs()), fields)

    def inputs(self) -> Inputs:
        """Which columns of a worker's table are what."""
        least = None if self.grace is None else MIN_END
        return Inputs(self.key, self.time, self.aggregates, min_end=least, arrival=self.arrival)

    def window_fields(self, own: list[tuple[str, DataType]]) -> list[StructField]:
        """The columns of a window: key, bounds, those of its kind, aggregates."""
        fields = [StructField(name, self.frame.types[name]) for name in self.key]
        fields += [StructField(name, self._bound()) for name in ("window_start", "window_end")]
        fields += [StructField(name, kind) for name, kind in own]
        return fields + [StructField(name, from_arrow_type(kind)) for name, kind in self.outputs.items()]

    def _needed(self) -> list[str]:
        read = [*columns_read(self.aggregates.values()), *self.also_read]
        return list(dict.fromkeys([*self.key, self.time, *read, *([self.arrival] if self.arrival else [])]))

    def _bound(self) -> DataType:
        return LongType() if is_integer(self.time_type) else self.time_type

    def _slice_numbers(self, length: int, halo: tuple[int, int]) -> str:
        """SQL: the slices in which a row bears on windows, mostly one; none for a row without a time."""
        before, after = halo
        time = ticks_of(self.time, self.time_type)
        first = floored(f"(greatest({time}, {_LEAST + before}L) - {before}L)", length)
        last = floored(f"(least({time}, {_GREATEST - after}L) + {after}L)", length)
        # greatest and least pass over nulls
        return f"explode(CASE WHEN {quoted(self.time)} IS NOT NULL THEN sequence({first}, {last}) END)"

    def _apply(
        self, null_values: NullValues, task: Task, fields: list[StructField], slice_numbers: str | None = None
    ) -> DataFrame:
        """`task` over the needed columns, all rows of a key, or of a slice of it, together."""
        # named c0, c1, …: mapInArrow takes no names with dots
        chosen = [f"{quoted(name)} AS c{place}" for place, name in enumerate(self._needed())]
        if self.grace is not None:
            chosen.append(f"{self._stream_time(null_values)} AS {STREAM_TIME}")
        together = [f"c{place}" for place in range(len(self.key))]
        added = [] if self.grace is None else [STREAM_TIME]
        rows = self.frame.df
        if slice_numbers is not None:
            if self.grace is not None:
                # stream time first: copies in a halo arrive once
                rows = rows.selectExpr("*", chosen.pop())
                chosen.append(STREAM_TIME)
            chosen.append(f"{slice_numbers} AS {SLICE}")
            together.append(SLICE)
            added.append(SLICE)
        work = _Partition(task, [*self._needed(), *added], [field.name for field in fields], self.grace)
        return rows.selectExpr(*chosen).repartition(*together).mapInArrow(work, StructType(fields))

    def _stream_time(self, null_values: NullValues) -> str:
        """SQL: the greatest time among the rows that arrived up to this one; rows that can't count don't move it."""
        also_required = columns_read(self.aggregates.values()) if null_values == "skip_row" else self.also_read
        required = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, *also_required])
        partition = f"PARTITION BY {', '.join(map(quoted, self.stream))}" if self.stream else ""
        assert self.arrival is not None
        return (
            f"max(CASE WHEN {required} THEN {quoted(self.time)} END) OVER "
            f"({partition} ORDER BY {quoted(self.arrival)} NULLS FIRST "
            f"RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        )


@dataclass(frozen=True)
class WindowsTask:
    """Windows of a table."""

    shape: Shape
    inputs: Inputs

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """One row a window."""
        return window_tables(table, self.shape, self.inputs, most_rows=_ROWS_A_PIECE)


@dataclass(frozen=True)
class SlicedTask:
    """Windows of slices of keys: a slice makes all windows near it, and keeps those that start in it."""

    shape: Shape
    inputs: Inputs
    length: int

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """One row a window."""
        inputs = replace(self.inputs, key=[SLICE, *self.inputs.key])
        for windows in window_tables(table, self.shape, inputs, most_rows=_ROWS_A_PIECE):
            slices = as_ticks(windows.column("window_start")) // self.length
            yield windows.filter(pa.array(slices == as_ticks(windows.column(SLICE))))


@dataclass(frozen=True)
class SkippedTask:
    """What does not count of a table."""

    shape: Shape
    inputs: Inputs

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """One row for each row, or pair of a row and a window, that does not count."""
        yield skipped_table(table, self.shape, self.inputs)


@dataclass(frozen=True)
class AdaptiveTask:
    """Adaptive windows of a table."""

    cuts: Cuts
    deltas: Deltas
    inputs: Inputs

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """One row a window."""
        yield adaptive_table(table, self.cuts, self.deltas, self.inputs)[0]


@dataclass(frozen=True)
class _Partition:
    """What a worker does with the rows of one partition; it holds them all, as a window may need any row of its key."""

    task: Task
    inputs: list[str]
    outputs: list[str]
    grace: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held).combine_chunks().rename_columns(self.inputs)
        held.clear()
        if self.grace is not None:
            table = table.append_column(MIN_END, pa.array(_closing_times(table.column(STREAM_TIME), self.grace)))
        for found in self.task(table):
            yield from found.select(self.outputs).to_batches(max_chunksize=_ROWS_A_BATCH)


def _closing_times(stream_time: pa.ChunkedArray, grace: int) -> np.ndarray:
    """Stream time less the grace, saturated; a stream without any time closes nothing."""
    reached = as_ticks(stream_time)
    closing = np.where(reached < _LEAST + grace, _LEAST, reached - np.int64(grace))
    if stream_time.null_count:
        closing[stream_time.is_null().to_numpy()] = _LEAST
    return closing


def quoted(name: str) -> str:
    """A column name as SQL takes it, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def ticks_of(time: str, kind: DataType) -> str:
    """SQL: a time column as a bigint of ticks."""
    if is_integer(kind):
        return f"CAST({quoted(time)} AS BIGINT)"
    if isinstance(kind, TimestampType):
        return f"unix_micros({quoted(time)})"
    return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {quoted(time)})"


def floored(number: str, divisor: int) -> str:
    """SQL: the floor of a bigint divided by a positive one; `div` itself rounds towards 0."""
    return f"({number} div {divisor}L - CASE WHEN {number} % {divisor}L < 0 THEN 1L ELSE 0L END)"
