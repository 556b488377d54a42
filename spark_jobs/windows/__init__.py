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

from spark_jobs.kernels.windows import (
    Aggregate,
    DecimalOverflow,
    DimensionMismatch,
    IntegerOverflow,
    Monoid,
    approx_quantile,
    avg,
    collect,
    count,
    count_distinct,
    first,
    last,
    max_,
    min_,
    stddev,
    sum_,
    variance,
    vector_mean,
    vector_sum,
)

from .adaptive import adaptive_windows, at_count, at_memory_pressure, at_rate_change, at_size, at_time
from .functions import hopping_windows, session_windows, skipped_counts, skipped_rows, sliding_windows, tumbling_windows
from .stream_times import OneTaskWarning

__all__ = [
    "Aggregate",
    "DecimalOverflow",
    "DimensionMismatch",
    "IntegerOverflow",
    "Monoid",
    "OneTaskWarning",
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
