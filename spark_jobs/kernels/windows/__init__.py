"""Windows over columns of many keys: which windows there are, which rows count in them, and what the aggregates are.

rows.py             Arrow table, any order  ->  rows sorted by (key, time)
sliding.py sessions.py aligned.py calendars.py adaptive.py
                    each kind: which windows there are, and per row a run of them (`spans.Spans`)
exact.py decimals.py sweeps.py monoid.py aggregates.py summaries.py
                    spans and values  ->  one value per window
shapes.py           the kinds with their parameters, as values
tables.py adaptive_tables.py skipped.py
                    the whole way for one table, and what it leaves out
memory.py runs.py streams.py
                    the same for any number of rows, within a budget of memory, as Spark workers call it
naive.py            the slow, obvious twins
"""

from .adaptive import Cuts, Trigger
from .adaptive_tables import AdaptiveMaker, AdaptiveSkips, Deltas, adaptive_table, stats_type
from .aggregates import (
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
from .calendars import Calendar
from .decimals import DecimalOverflow
from .memory import MemoryBudget, MemoryUse, RunStore
from .monoid import Aggregate, Monoid
from .rows import NullValues, SkippedRows
from .runs import RowSorter
from .shapes import Hopping, Sessions, Shape, Sliding
from .skipped import ShapeSkips, Skips, late_stream, late_table, skipped_table, unable_rows
from .streams import Maker, Wanted, stream_windows
from .summaries import DimensionMismatch, approx_quantile, collect, vector_mean, vector_sum
from .tables import (
    Inputs,
    ShapeMaker,
    bounds_type,
    hopping_table,
    required_columns,
    session_table,
    sliding_table,
    tumbling_table,
    window_table,
)

__all__ = [
    "AdaptiveMaker",
    "AdaptiveSkips",
    "Aggregate",
    "Calendar",
    "Cuts",
    "DecimalOverflow",
    "Deltas",
    "DimensionMismatch",
    "Hopping",
    "Inputs",
    "IntegerOverflow",
    "Maker",
    "MemoryBudget",
    "MemoryUse",
    "Monoid",
    "NullValues",
    "RowSorter",
    "RunStore",
    "Sessions",
    "Shape",
    "ShapeMaker",
    "ShapeSkips",
    "SkippedRows",
    "Skips",
    "Sliding",
    "Trigger",
    "Wanted",
    "adaptive_table",
    "approx_quantile",
    "avg",
    "bounds_type",
    "collect",
    "count",
    "count_distinct",
    "first",
    "hopping_table",
    "last",
    "late_stream",
    "late_table",
    "max_",
    "min_",
    "required_columns",
    "session_table",
    "skipped_table",
    "sliding_table",
    "stats_type",
    "stddev",
    "stream_windows",
    "sum_",
    "tumbling_table",
    "unable_rows",
    "variance",
    "vector_mean",
    "vector_sum",
    "window_table",
]
