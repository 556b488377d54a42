"""The way from a DataFrame to windows: one shuffle by key, then workers that sort rows and make windows (`worker`).

Only the needed columns are shuffled. The code uses a DataFrame only by names and SQL expressions, so that it works for
classic Spark and for Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from spark_jobs.arrow_batches import count_rows_alone
from spark_jobs.engine.spark.windows.expressions import column, quote_name, ticks_of
from spark_jobs.engine.spark.windows.hot_keys import SampledFrame, key_hash, repartition_rows, with_slices
from spark_jobs.engine.spark.windows.options import WindowOptions
from spark_jobs.engine.spark.windows.parameters import Frame, Running, is_integer, refuse, ticks
from spark_jobs.engine.spark.windows.stream_times import Arrivals
from spark_jobs.engine.spark.windows.worker import (
    METRICS,
    MIN_END,
    STREAM_TIME,
    NewWindows,
    Partition,
    SkippedTask,
    Task,
    WindowsTask,
    metric_column,
)
from spark_jobs.engine.windows.kinds.adaptive import AdaptiveKind
from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.monoid import Aggregate, columns_read
from spark_jobs.engine.windows.rows import NullValues
from spark_jobs.engine.windows.skipped import skips_of
from spark_jobs.engine.windows.slices import SLICE_COLUMN, slice_halo
from spark_jobs.engine.windows.spreading import Spread, spread
from spark_jobs.engine.windows.streams import Windowing
from spark_jobs.engine.windows.tables import WindowInputs


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
    def of_options(
        cls,
        df: DataFrame,
        options: WindowOptions,
        *,
        aggregates_needed: bool = True,
        taken: Sequence[str] = ("window_start", "window_end"),
        also_read: Sequence[str] = (),
    ) -> WindowCall:
        """Check the options of every kind. Raises ParameterError, which names the first wrong one.

        `taken` are the names of the windows' own columns, `also_read` the columns that these are made of.
        """
        frame, grace, stream = Frame.of(df), options.grace, options.stream
        keys = frame.columns("key", options.key)
        time_type = frame.time(options.time)
        clash = {name.lower() for name in keys} & set(taken)
        if clash:
            raise refuse("key", expected=f"names other than {', '.join(taken)}", found=sorted(clash))
        outputs = frame.aggregates(options.aggregates, [*keys, *taken], needed=aggregates_needed)
        if options.arrival is not None:
            frame.column("arrival", options.arrival)
        if grace is not None and options.arrival is None:
            raise refuse("arrival", expected="the column that orders arrivals, as grace is given", found=None)
        if stream is not None and grace is None:
            raise refuse("grace", expected="a length of time, as stream is given", found=None)
        return cls(
            frame=frame,
            key=keys,
            time=options.time,
            time_type=time_type,
            aggregates=dict(options.aggregates),
            outputs=outputs,
            grace=None if grace is None else ticks("grace", grace, time_type, least=0),
            arrival=options.arrival,
            stream=[] if stream is None else frame.columns("stream", stream),
            also_read=list(also_read),
            running=Running.of_options(options.rows_a_slice, options.memory_max_bytes, options.metrics),
        )

    def windows(self, kind: WindowKind) -> DataFrame:
        """The windows of a kind with their aggregates."""
        kind_fields: list[tuple[str, DataType]] = []
        if isinstance(kind, AdaptiveKind):
            ids = ArrayType(self.frame.types[kind.deltas.delta])
            kind_fields = [("window_id", StringType()), ("delta_ids", ids), ("stats", from_arrow_type(kind.stats_type))]
            kind_fields.append(("trigger", StringType()))
        fields = self.window_fields(kind_fields)
        over, inputs = self._spread(kind), self.inputs()
        if over is not None and over.hot:
            inputs = replace(inputs, key=[*self.key, SLICE_COLUMN])
        windows = WindowsTask(
            Windowing.of(kind, inputs, () if over is None else over.hot),
            self.time,
            max_bytes=self.running.memory_max_bytes,
            most_columns=len(fields),
            required=kind.required_columns(self.aggregates),
            drop_negative=kind.drop_negative,
        )
        return self._apply(kind, NewWindows(windows, self.running.metrics is not None), fields, over)

    def skipped_rows(self, kind: WindowKind) -> DataFrame:
        """The rows that do not count in windows of this kind, and the pairs of a row and a window that don't."""
        fields = [StructField(name, self.frame.types[name]) for name in self._needed_columns()]
        fields += [StructField(name, self._bound_type()) for name in ("window_start", "window_end")]
        fields += [StructField("reason", StringType(), nullable=False)]
        skips = skips_of(kind, self.inputs())
        task = SkippedTask(skips, self.inputs(), self.running.memory_max_bytes, most_columns=len(fields))
        return self._apply(kind, task, fields)

    def inputs(self) -> WindowInputs:
        """The roles of the columns of a worker's table."""
        least = None if self.grace is None else MIN_END
        return WindowInputs(self.key, self.time, self.aggregates, min_end=least, arrival=self.arrival)

    def window_fields(self, kind_fields: list[tuple[str, DataType]]) -> list[StructField]:
        """The columns of a window: key, bounds, those of its kind, aggregates."""
        fields = [StructField(name, self.frame.types[name]) for name in self.key]
        fields += [StructField(name, self._bound_type()) for name in ("window_start", "window_end")]
        fields += [StructField(name, kind) for name, kind in kind_fields]
        return fields + [StructField(name, from_arrow_type(kind)) for name, kind in self.outputs.items()]

    def _needed_columns(self) -> list[str]:
        read = [*columns_read(self.aggregates.values()), *self.also_read]
        return list(dict.fromkeys([*self.key, self.time, *read, *([self.arrival] if self.arrival else [])]))

    def _bound_type(self) -> DataType:
        return LongType() if is_integer(self.time_type) else self.time_type

    def _hash(self) -> str:
        return key_hash(map(quote_name, self.key))

    def _spread(self, kind: WindowKind) -> Spread | None:
        """The tasks over which the rows are spread; None: Spark spreads them by its own rules."""
        if self.running.rows_a_slice is None:
            return None
        able = self.frame.df.where(" AND ".join(f"{quote_name(name)} IS NOT NULL" for name in [*self.key, self.time]))
        time = ticks_of(self.time, self.time_type)
        return spread(SampledFrame(able, self._hash(), time), kind, self.running.rows_a_slice)

    def _apply(self, kind: WindowKind, task: Task, fields: list[StructField], over: Spread | None = None) -> DataFrame:
        """The result of `task` over the needed columns; all rows of a key, or of a slice, are in one partition."""
        rows, needed = self.frame.df, self._needed_columns()
        count_rows_alone(rows.sparkSession, [self.frame.types[name] for name in needed if name not in self.key])
        # named c0, c1, …: mapInArrow takes no names with dots
        chosen = [f"{quote_name(name)} AS c{place}" for place, name in enumerate(needed)]
        if self.grace is not None:
            # before slices are made, so that a row copied into several slices arrives only once
            rows = self._arrivals(kind.null_values).stream_times(rows, STREAM_TIME)
            chosen.append(STREAM_TIME)
            needed = [*needed, STREAM_TIME]
        if over is not None and over.hot:
            key_columns = (f"{self._hash()} AS __hash", f"{ticks_of(self.time, self.time_type)} AS __ticks")
            rows = rows.selectExpr("*", *key_columns)
            rows = with_slices(rows, over, slice_halo(kind), "__hash", "__ticks")
            chosen.append(SLICE_COLUMN)
            needed = [*needed, SLICE_COLUMN]
        metric_fields = (
            [] if self.running.metrics is None else [StructField(metric_column(name), LongType()) for name in METRICS]
        )
        work = Partition(task, needed, [field.name for field in [*fields, *metric_fields]], self.grace)
        keys = [f"c{place}" for place in range(len(self.key))]
        chosen_rows = rows.selectExpr(*chosen)
        together = (
            chosen_rows.repartition(*keys) if over is None else repartition_rows(chosen_rows, over, key_hash(keys))
        )
        made = together.mapInArrow(work, StructType([*fields, *metric_fields]))
        return self._observe(made, [field.name for field in fields]) if metric_fields else made

    def _observe(self, made: DataFrame, outputs: list[str]) -> DataFrame:
        """The windows without the metrics of the workers, which the observation receives."""
        assert self.running.metrics is not None
        observed = made.observe(self.running.metrics, *metric_totals(made))
        return observed.where(f"{metric_column(METRICS[0])} IS NULL").select(*map(quote_name, outputs))

    def _arrivals(self, null_values: NullValues) -> Arrivals:
        """The order of the rows of a stream. Rows that can't count don't advance the time of the stream."""
        also_required = columns_read(self.aggregates.values()) if null_values == "skip_row" else self.also_read
        required = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in [*self.key, *also_required])
        counted = f"CASE WHEN {required} THEN {quote_name(self.time)} END"
        assert self.arrival is not None
        kind = self.frame.types[self.arrival]
        return Arrivals(self.arrival, kind, self.stream, counted, self.running.rows_a_slice)


def metric_totals(made: DataFrame) -> list[Column]:
    """The METRICS of all workers, as columns: sums, and the greatest peak."""
    folds = {name: "max" if name.startswith("peak_") else "sum" for name in METRICS}
    return [column(made, f"coalesce({fold}({metric_column(name)}), 0L)").alias(name) for name, fold in folds.items()]
