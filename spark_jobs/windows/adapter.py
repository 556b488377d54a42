"""From a DataFrame to windows: one shuffle by key, then one kernel call a partition, which sorts in the worker.

Only the columns that are needed travel. The DataFrame is touched by names and SQL expressions alone, so that classic
Spark and Spark Connect take the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, LongType, StructField, StructType

from spark_jobs.kernels.windows import Aggregate, SkippedRows
from spark_jobs.kernels.windows.monoid import columns_read
from spark_jobs.kernels.windows.rows import as_ticks

from .parameters import Duration, Frame, is_integer, refuse, ticks

STREAM_TIME = "__stream_time"
MIN_END = "__min_end"
_LEAST = -(2**63)
_ROWS_A_BATCH = 1 << 17
"""Rows of one output batch: large enough for Arrow, a few MB for the JVM."""

Kernel = Callable[..., tuple[pa.Table, SkippedRows]]


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

    @classmethod
    def checked(
        cls,
        df: DataFrame,
        *,
        key: Any,
        time: Any,
        aggregates: Any,
        grace: Duration | None,
        arrival: str | None,
        stream: Any,
    ) -> WindowCall:
        """Check what every kind takes; raises ParameterError that names the first wrong parameter."""
        frame = Frame.of(df)
        keys = frame.columns("key", key)
        time_type = frame.time(time)
        outputs = frame.aggregates(aggregates, [*keys, "window_start", "window_end"])
        clash = {name.lower() for name in keys} & {"window_start", "window_end"}
        if clash:
            raise refuse("key", expected="names other than window_start and window_end", found=sorted(clash))
        if arrival is not None:
            frame.column("arrival", arrival)
        if grace is not None and arrival is None:
            raise refuse("arrival", expected="the column that orders arrivals, as grace is given", found=None)
        if stream is not None and grace is None:
            raise refuse("grace", expected="a length of time, as stream is given", found=None)
        allowed = None if grace is None else ticks("grace", grace, time_type, least=0)
        streams = [] if stream is None else frame.columns("stream", stream)
        return cls(frame, keys, time, time_type, dict(aggregates), outputs, allowed, arrival, streams)

    def compute(self, kernel: Kernel, *, nulls_skip_row: bool, parameters: Mapping[str, Any]) -> DataFrame:
        """The windows' DataFrame: `kernel` over the rows of each key, with its own `parameters`."""
        read = columns_read(self.aggregates.values())
        needed = dict.fromkeys([*self.key, self.time, *read, *([self.arrival] if self.arrival else [])])
        # names with dots would not pass through mapInArrow
        chosen = [f"{quoted(name)} AS c{place}" for place, name in enumerate(needed)]
        if self.grace is not None:
            chosen.append(f"{self._stream_time(read if nulls_skip_row else [])} AS {STREAM_TIME}")
        rows = self.frame.df.selectExpr(*chosen).repartition(*(f"c{place}" for place in range(len(self.key))))
        work = _Partition(
            kernel,
            list(needed),
            self.grace,
            {
                **parameters,
                "key": self.key,
                "time": self.time,
                "aggregates": self.aggregates,
                "arrival": self.arrival,
                "null_values": "skip_row" if nulls_skip_row else "skip_value",
            },
        )
        return rows.mapInArrow(work, self._schema())

    def _stream_time(self, also_required: list[str]) -> str:
        """SQL: the greatest time among the rows that arrived up to this one; rows that can't count don't move it."""
        required = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in [*self.key, *also_required])
        partition = f"PARTITION BY {', '.join(map(quoted, self.stream))}" if self.stream else ""
        assert self.arrival is not None
        return (
            f"max(CASE WHEN {required} THEN {quoted(self.time)} END) OVER "
            f"({partition} ORDER BY {quoted(self.arrival)} NULLS FIRST "
            f"RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        )

    def _schema(self) -> StructType:
        bound = LongType() if is_integer(self.time_type) else self.time_type
        fields = [StructField(name, self.frame.types[name]) for name in self.key]
        fields += [StructField("window_start", bound), StructField("window_end", bound)]
        fields += [StructField(name, from_arrow_type(kind)) for name, kind in self.outputs.items()]
        return StructType(fields)


@dataclass(frozen=True)
class _Partition:
    """What a worker does with the rows of one partition; it holds them all, as a window may need any row of its key."""

    kernel: Kernel
    names: list[str]
    grace: int | None
    parameters: dict[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        names = [*self.names, *([] if self.grace is None else [STREAM_TIME])]
        table = pa.Table.from_batches(held).rename_columns(names)
        parameters = self.parameters
        if self.grace is not None:
            table = table.append_column(MIN_END, pa.array(_closing_times(table.column(STREAM_TIME), self.grace)))
            parameters = {**parameters, "min_end": MIN_END}
        windows, _ = self.kernel(table, **parameters)
        yield from windows.to_batches(max_chunksize=_ROWS_A_BATCH)


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
