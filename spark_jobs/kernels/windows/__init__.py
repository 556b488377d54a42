"""Windows over columns of many keys: the windows, the rows that count in them, and the aggregates of these rows.

kinds/              one class a kind: its windows, per row a run of them (`spans.Spans`), and how they lie in time
rows.py             Arrow table, any order  ->  rows sorted by (key, time)
exact.py decimals.py sweeps.py monoid.py aggregates.py summaries.py
                    spans and values  ->  one value per window
tables.py skipped.py
                    all steps for one table, and the rows that count nowhere
memory.py runs.py streams.py slices.py
                    the same for any number of rows, within a budget of memory, as Spark workers call it
naive.py            the slow, obvious twins
"""

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
from .decimals import DecimalOverflow
from .kinds import Adaptive, Calendar, Cuts, Deltas, Hopping, Kind, Sessions, Sliding, SqlTicks, Trigger, stats_type
from .memory import MemoryBudget, MemoryUse, RunStore
from .monoid import Aggregate, Monoid
from .rows import NullValues, SkippedRows
from .runs import RowSorter
from .skipped import Skips, skips_of
from .streams import stream_windows
from .summaries import DimensionMismatch, approx_quantile, collect, vector_mean, vector_sum
from .tables import Found, Inputs, Wanted, bounds_type

__all__ = [
    "Adaptive",
    "Aggregate",
    "Calendar",
    "Cuts",
    "DecimalOverflow",
    "Deltas",
    "DimensionMismatch",
    "Found",
    "Hopping",
    "Inputs",
    "IntegerOverflow",
    "Kind",
    "MemoryBudget",
    "MemoryUse",
    "Monoid",
    "NullValues",
    "RowSorter",
    "RunStore",
    "Sessions",
    "SkippedRows",
    "Skips",
    "Sliding",
    "SqlTicks",
    "Trigger",
    "Wanted",
    "approx_quantile",
    "avg",
    "bounds_type",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "max_",
    "min_",
    "skips_of",
    "stats_type",
    "stddev",
    "stream_windows",
    "sum_",
    "variance",
    "vector_mean",
    "vector_sum",
]
