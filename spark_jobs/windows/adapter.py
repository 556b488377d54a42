"""The way from a DataFrame to windows: one shuffle by key, then workers that sort rows and make windows (`worker`).

Only the needed columns are shuffled. The code uses a DataFrame only by names and SQL expressions, so that it works for
classic Spark and for Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from spark_jobs.arrow_batches import count_rows_alone
from spark_jobs.kernels.windows import (
    Adaptive,
    Aggregate,
    Inputs,
    Kind,
    NullValues,
    skips_of,
    stats_type,
)
from spark_jobs.kernels.windows.monoid import columns_read
from spark_jobs.kernels.windows.slices import SLICE_COLUMN, copied
from spark_jobs.kernels.windows.streams import Windowing

from .expressions import column, quoted, ticks_of
from .hot_keys import Spread, key_hash, spread
from .parameters import DEFAULT_ROWS_A_SLICE, Duration, Frame, Running, is_integer, refuse, ticks
from .stream_times import Arrivals
from .worker import METRICS, MIN_END, STREAM_TIME, NewWindows, Partition, SkippedTask, Task, WindowsTask, metric_column


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
    """The columns that the windows themselves read, besides key and time."""
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
        """Check the parameters of every kind. Raises ParameterError, which names the first wrong parameter."""
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

    def windows(self, kind: Kind) -> DataFrame:
        """The windows of a kind with their aggregates."""
        own: list[tuple[str, DataType]] = []
        if isinstance(kind, Adaptive):
            ids = ArrayType(self.frame.types[kind.deltas.delta])
            own = [("window_id", StringType()), ("delta_ids", ids), ("stats", from_arrow_type(stats_type()))]
            own.append(("trigger", StringType()))
        fields = self.window_fields(own)
        over, inputs = self._spread(kind), self.inputs()
        if over is not None and over.hot:
            inputs = replace(inputs, key=[*self.key, SLICE_COLUMN])
        windows = WindowsTask(
            Windowing.of(kind, inputs, () if over is None else over.hot),
            self.time,
            max_bytes=self.running.memory_max_bytes,
            most_columns=len(fields),
            required=kind.required(self.aggregates),
            drop_negative=kind.drop_negative,
        )
        return self._apply(kind, NewWindows(windows, self.running.metrics is not None), fields, over)

    def skipped(self, kind: Kind) -> DataFrame:
        """The rows that do not count in windows of this kind, and the pairs of a row and a window that don't."""
        fields = [StructField(name, self.frame.types[name]) for name in self._needed()]
        fields += [StructField(name, self._bound()) for name in ("window_start", "window_end")]
        fields += [StructField("reason", StringType(), nullable=False)]
        skips = skips_of(kind, self.inputs())
        task = SkippedTask(skips, self.inputs(), self.running.memory_max_bytes, most_columns=len(fields))
        return self._apply(kind, task, fields)

    def inputs(self) -> Inputs:
        """The roles of the columns of a worker's table."""
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
        return key_hash(map(quoted, self.key))

    def _spread(self, kind: Kind) -> Spread | None:
        """The tasks over which the rows are spread; None: Spark spreads them by its own rules."""
        if self.running.rows_a_slice is None:
            return None
        able = self.frame.df.where(" AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, self.time]))
        time = ticks_of(self.time, self.time_type)
        return spread(able, kind, hashed=self._hash(), time=time, rows_a_slice=self.running.rows_a_slice)

    def _apply(self, kind: Kind, task: Task, fields: list[StructField], over: Spread | None = None) -> DataFrame:
        """The result of `task` over the needed columns; all rows of a key, or of a slice, are in one partition."""
        rows, needed = self.frame.df, self._needed()
        count_rows_alone(rows.sparkSession, [self.frame.types[name] for name in needed if name not in self.key])
        # named c0, c1, …: mapInArrow takes no names with dots
        chosen = [f"{quoted(name)} AS c{place}" for place, name in enumerate(needed)]
        if self.grace is not None:
            # before slices are made, so that a row copied into several slices arrives only once
            rows = self._arrivals(kind.null_values).stream_times(rows, STREAM_TIME)
            chosen.append(STREAM_TIME)
            needed = [*needed, STREAM_TIME]
        if over is not None and over.hot:
            own = (f"{self._hash()} AS __hash", f"{ticks_of(self.time, self.time_type)} AS __ticks")
            rows = rows.selectExpr("*", *own)
            rows = over.in_slices(rows, copied(kind), "__hash", "__ticks")
            chosen.append(SLICE_COLUMN)
            needed = [*needed, SLICE_COLUMN]
        told = (
            [] if self.running.metrics is None else [StructField(metric_column(name), LongType()) for name in METRICS]
        )
        work = Partition(task, needed, [field.name for field in [*fields, *told]], self.grace)
        keys = [f"c{place}" for place in range(len(self.key))]
        chosen_rows = rows.selectExpr(*chosen)
        together = chosen_rows.repartition(*keys) if over is None else over.together(chosen_rows, key_hash(keys))
        made = together.mapInArrow(work, StructType([*fields, *told]))
        return self._observed(made, [field.name for field in fields]) if told else made

    def _observed(self, made: DataFrame, outputs: list[str]) -> DataFrame:
        """The windows without the metrics of the workers, which the observation receives."""
        assert self.running.metrics is not None
        observed = made.observe(self.running.metrics, *metric_totals(made))
        return observed.where(f"{metric_column(METRICS[0])} IS NULL").select(*map(quoted, outputs))

    def _arrivals(self, null_values: NullValues) -> Arrivals:
        """The order of the rows of a stream. Rows that can't count don't advance the time of the stream."""
        also_required = columns_read(self.aggregates.values()) if null_values == "skip_row" else self.also_read
        required = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, *also_required])
        counted = f"CASE WHEN {required} THEN {quoted(self.time)} END"
        assert self.arrival is not None
        kind = self.frame.types[self.arrival]
        return Arrivals(self.arrival, kind, self.stream, counted, self.running.rows_a_slice)


def metric_totals(made: DataFrame) -> list[Column]:
    """The METRICS of all workers, as columns: sums, and the greatest peak."""
    folds = {name: "max" if name == "peak_bytes" else "sum" for name in METRICS}
    return [column(made, f"coalesce({fold}({metric_column(name)}), 0L)").alias(name) for name, fold in folds.items()]
