"""Windows of any Spark DataFrame, classic or Connect; the pipeline's silver tables use the same kernels.

    sliding_windows    set by the rows themselves (KIP-450), closed      [t-size, t] and [t+1, t+1+size]
    session_windows    rows not further apart than a gap, closed         [first time, last time]
    hopping_windows    on a grid, half open, overlapping                 [k*advance, k*advance + size)
    tumbling_windows   on a grid, half open, each row in one             [k*size, (k+1)*size), or a calendar's periods
    adaptive_windows   of a length that follows the rate of rows, cut by triggers

`skipped_rows` returns the rows that a call leaves out, `skipped_counts` their numbers. Aggregates are values
(`count()`, `sum_("column")`, …); for an aggregate of your own, subclass `Monoid`. A call over numbers and times makes
its session cut Arrow batches by rows alone, unless the session has set `spark.sql.execution.arrow.maxBytesPerBatch`
itself: see `batches`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.spark.windows.adaptive import (
        adaptive_windows,
        at_count,
        at_memory_pressure,
        at_rate_change,
        at_size,
        at_time,
    )
    from spark_jobs.engine.spark.windows.functions import (
        hopping_windows,
        session_windows,
        skipped_counts,
        skipped_rows,
        sliding_windows,
        tumbling_windows,
    )
    from spark_jobs.engine.spark.windows.parameters import DEFAULT_ROWS_A_SLICE
    from spark_jobs.engine.spark.windows.spill import RunFiles
    from spark_jobs.engine.spark.windows.stream_times import OneTaskWarning
    from spark_jobs.engine.spark.windows.worker import METRICS, Correcting, Given, WindowsTask
    from spark_jobs.engine.windows.aggregates import (
        IntegerOverflow,
        avg,
        count,
        count_distinct,
        first,
        last,
        max_,
        min_,
        stddev,
        sum_,
        variance,
    )
    from spark_jobs.engine.windows.decimals import DecimalOverflow
    from spark_jobs.engine.windows.monoid import Aggregate, Monoid
    from spark_jobs.engine.windows.summaries import DimensionMismatch, approx_quantile, collect, vector_mean, vector_sum
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "DEFAULT_ROWS_A_SLICE",
    "METRICS",
    "Aggregate",
    "Correcting",
    "DecimalOverflow",
    "DimensionMismatch",
    "Given",
    "IntegerOverflow",
    "Monoid",
    "OneTaskWarning",
    "RunFiles",
    "WindowsTask",
    "adaptive_windows",
    "approx_quantile",
    "at_count",
    "at_memory_pressure",
    "at_rate_change",
    "at_size",
    "at_time",
    "avg",
    "collect",
    "count",
    "count_distinct",
    "first",
    "hopping_windows",
    "last",
    "max_",
    "min_",
    "session_windows",
    "skipped_counts",
    "skipped_rows",
    "sliding_windows",
    "stddev",
    "sum_",
    "tumbling_windows",
    "variance",
    "vector_mean",
    "vector_sum",
]
