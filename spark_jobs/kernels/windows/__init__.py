"""Windows over columns of many keys: which windows there are, which rows count in them, and what the aggregates are.

rows.py      Arrow table, any order  ->  rows sorted by (key, time)
sliding.py   sessions.py   aligned.py    each kind  ->  windows, and per row a run of windows (`spans.Spans`)
exact.py     sweeps.py   monoid.py       spans + values  ->  one value per window
tables.py    the whole way, as Spark workers call it
naive.py     the slow, obvious twin of all of it
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
from .monoid import Aggregate, Monoid
from .rows import NullValues, SkippedRows
from .shapes import Hopping, Sessions, Shape, Sliding
from .tables import (
    Inputs,
    bounds_type,
    hopping_table,
    session_table,
    skipped_table,
    sliding_table,
    tumbling_table,
    window_table,
)

__all__ = [
    "Aggregate",
    "Hopping",
    "Inputs",
    "IntegerOverflow",
    "Monoid",
    "NullValues",
    "Sessions",
    "Shape",
    "SkippedRows",
    "Sliding",
    "avg",
    "bounds_type",
    "count",
    "count_distinct",
    "first",
    "hopping_table",
    "last",
    "max_",
    "min_",
    "session_table",
    "skipped_table",
    "sliding_table",
    "stddev",
    "sum_",
    "tumbling_table",
    "variance",
    "window_table",
]
