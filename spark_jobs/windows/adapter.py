"""From a DataFrame to windows: one shuffle by key, then workers that sort and make windows, see `worker`.

Only the columns that are needed travel. The DataFrame is touched by names and SQL expressions alone, so that classic
Spark and Spark Connect take the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from spark_jobs.kernels.windows import (
    AdaptiveMaker,
    AdaptiveSkips,
    Aggregate,
    Cuts,
    Deltas,
    Inputs,
    Maker,
    NullValues,
    Sessions,
    Shape,
    ShapeMaker,
    ShapeSkips,
    Skips,
    required_columns,
    stats_type,
)
from spark_jobs.kernels.windows.monoid import columns_read

from .expressions import column, quoted, ticks_of
from .hot_keys import SLICE_COLUMN, Spread, slices_sql, spread
from .parameters import DEFAULT_ROWS_A_SLICE, Duration, Frame, Running, is_integer, refuse, ticks
from .stream_times import Arrivals
from .worker import METRICS, MIN_END, STREAM_TIME, OwnSlice, Partition, SkippedTask, Task, WindowsTask, metric_column


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
    running: Running

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
        rows_a_slice: Any = DEFAULT_ROWS_A_SLICE,
        memory_max_bytes: Any = Running.memory_max_bytes,
        metrics: Any = None,
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
        running = Running.checked(rows_a_slice, memory_max_bytes, metrics)
        return cls(
            frame, keys, time, time_type, dict(aggregates), outputs, allowed, arrival, streams, list(also_read), running
        )

    def windows(self, shape: Shape) -> DataFrame:
        """The windows of this shape with their aggregates."""
        required = required_columns(shape, self.aggregates)
        gap = shape.gap if isinstance(shape, Sessions) else None

        def maker(inputs: Inputs) -> Maker:
            return ShapeMaker(shape, inputs)

        over = self._spread(shape.halo, gap)
        task = self._task(maker, over, required, drop_negative=shape.drop_negative)
        return self._apply(shape.null_values, task, self.window_fields([]), over, shape.halo)

    def adaptive(self, cuts: Cuts, deltas: Deltas) -> DataFrame:
        """Adaptive windows with their statistics and aggregates."""
        ids = ArrayType(self.frame.types[deltas.delta])
        own = [("window_id", StringType()), ("delta_ids", ids), ("stats", from_arrow_type(stats_type()))]
        fields = self.window_fields([*own, ("trigger", StringType())])

        def maker(inputs: Inputs) -> Maker:
            return AdaptiveMaker(cuts, deltas, inputs)

        halo = maker(self.inputs()).halo
        over = self._spread(halo, None)
        return self._apply("skip_value", self._task(maker, over, deltas.columns()), fields, over, halo)

    def skipped(self, shape: Shape) -> DataFrame:
        """The rows, and the pairs of a row and a window, that do not count in windows of this shape."""
        return self._skipped(ShapeSkips(shape, self.inputs()), shape.null_values)

    def adaptive_skipped(self, cuts: Cuts, deltas: Deltas) -> DataFrame:
        """The rows that do not count in adaptive windows."""
        return self._skipped(AdaptiveSkips(cuts, deltas, self.inputs()), "skip_value")

    def _skipped(self, skips: Skips, null_values: NullValues) -> DataFrame:
        fields = [StructField(name, self.frame.types[name]) for name in self._needed()]
        fields += [StructField(name, self._bound()) for name in ("window_start", "window_end")]
        fields += [StructField("reason", StringType(), nullable=False)]
        task = SkippedTask(skips, self.inputs(), self.running.memory_max_bytes, most_columns=len(fields))
        return self._apply(null_values, task, fields)

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

    def _hash(self) -> str:
        return f"xxhash64({', '.join(map(quoted, self.key))})"

    def _spread(self, halo: tuple[int, int] | None, gap: int | None) -> Spread | None:
        """How rows are spread over tasks; None: as Spark has it."""
        if self.running.rows_a_slice is None:
            return None
        able = self.frame.df.where(" AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, self.time]))
        rows = able.selectExpr(f"{self._hash()} AS h", f"{ticks_of(self.time, self.time_type)} AS t")
        return spread(rows, rows_a_slice=self.running.rows_a_slice, halo=halo, gap=gap)

    def _task(
        self, maker: Any, over: Spread | None, required: list[str], *, drop_negative: bool = False
    ) -> WindowsTask:
        inputs, wanted = self.inputs(), None
        if over is not None and over.hot:
            inputs, wanted = replace(inputs, key=[*self.key, SLICE_COLUMN]), OwnSlice(over.hot)
        return WindowsTask(
            maker(inputs),
            inputs,
            required,
            drop_negative,
            max_bytes=self.running.memory_max_bytes,
            most_columns=len(self.key) + len(self.outputs) + 2,
            wanted=wanted,
            with_metrics=self.running.metrics is not None,
        )

    def _apply(
        self,
        null_values: NullValues,
        task: Task,
        fields: list[StructField],
        over: Spread | None = None,
        halo: tuple[int, int] | None = None,
    ) -> DataFrame:
        """`task` over the needed columns, all rows of a key, or of a slice of it, together."""
        rows, needed = self.frame.df, self._needed()
        # named c0, c1, …: mapInArrow takes no names with dots
        chosen = [f"{quoted(name)} AS c{place}" for place, name in enumerate(needed)]
        if self.grace is not None:
            # before slices: copies in a halo arrive once
            rows = self._arrivals(null_values).stream_times(rows, STREAM_TIME)
            chosen.append(STREAM_TIME)
            needed = [*needed, STREAM_TIME]
        if over is not None and over.hot:
            own = (f"{self._hash()} AS __hash", f"{ticks_of(self.time, self.time_type)} AS __ticks")
            rows = rows.selectExpr("*", *own)
            chosen.append(f"{slices_sql(over.hot, halo)} AS {SLICE_COLUMN}")
            needed = [*needed, SLICE_COLUMN]
        told = (
            [] if self.running.metrics is None else [StructField(metric_column(name), LongType()) for name in METRICS]
        )
        work = Partition(task, needed, [field.name for field in [*fields, *told]], self.grace)
        made = self._together(rows.selectExpr(*chosen), over).mapInArrow(work, StructType([*fields, *told]))
        return self._observed(made, [field.name for field in fields]) if told else made

    def _together(self, rows: DataFrame, over: Spread | None) -> DataFrame:
        """All rows of a key, or of a slice of it, in one partition."""
        keys = [f"c{place}" for place in range(len(self.key))]
        if over is None:
            return rows.repartition(*keys)
        return rows.repartitionById(over.tasks, column(rows, over.task_sql(f"xxhash64({', '.join(keys)})")))

    def _observed(self, made: DataFrame, outputs: list[str]) -> DataFrame:
        """The windows alone; what workers tell about themselves goes to the observation."""
        assert self.running.metrics is not None
        observed = made.observe(self.running.metrics, *metric_totals(made))
        return observed.where(f"{metric_column(METRICS[0])} IS NULL").select(*map(quoted, outputs))

    def _arrivals(self, null_values: NullValues) -> Arrivals:
        """What orders the rows of a stream; rows that can't count don't move its time."""
        also_required = columns_read(self.aggregates.values()) if null_values == "skip_row" else self.also_read
        required = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, *also_required])
        counted = f"CASE WHEN {required} THEN {quoted(self.time)} END"
        assert self.arrival is not None
        kind = self.frame.types[self.arrival]
        return Arrivals(self.arrival, kind, self.stream, counted, self.running.rows_a_slice)


def metric_totals(made: DataFrame) -> list[Column]:
    """The METRICS of all workers: sums, and the greatest peak."""
    folds = {name: "max" if name == "peak_bytes" else "sum" for name in METRICS}
    return [column(made, f"coalesce({fold}({metric_column(name)}), 0L)").alias(name) for name, fold in folds.items()]
