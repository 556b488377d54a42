"""Windows over columns of many keys: the windows, the rows that count in them, and the aggregates of these rows.

kinds/              one class a kind: its windows, per row a run of them (`spans.Spans`), and how they lie in time
rows.py             Arrow table, any order  ->  rows sorted by (key, time)
exact.py decimals.py sweeps.py monoid.py aggregates.py summaries.py
                    spans and values  ->  one value per window
tables.py skipped.py
                    all steps for one table, and the rows that count nowhere
memory.py runs.py streams.py slices.py
                    the same for any number of rows, within a budget of memory, as Spark workers call it
engine/twins        the slow, obvious twins
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.windows.accounts import LISTED_REASONS, REASONS, Account, account, astray, skipped_rows
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
    from spark_jobs.engine.windows.arrivals import NO_TIME, stream_times
    from spark_jobs.engine.windows.decimals import DecimalOverflow
    from spark_jobs.engine.windows.kinds.adaptive import AdaptiveKind, Deltas
    from spark_jobs.engine.windows.kinds.calendars import Calendar
    from spark_jobs.engine.windows.kinds.cuts import Cuts, Trigger
    from spark_jobs.engine.windows.kinds.emissions import EmissionsKind
    from spark_jobs.engine.windows.kinds.firings import FiringRules
    from spark_jobs.engine.windows.kinds.hopping import Hopping
    from spark_jobs.engine.windows.kinds.kind import WindowKind
    from spark_jobs.engine.windows.kinds.own_trigger import EarlyTrigger, OwnTrigger, TriggerRows
    from spark_jobs.engine.windows.kinds.sessions import Sessions
    from spark_jobs.engine.windows.kinds.sliding import Sliding
    from spark_jobs.engine.windows.kinds.ticks import SqlTicks, Ticks
    from spark_jobs.engine.windows.lateness import POLICIES, Discard, Policy, RowLateness, judge
    from spark_jobs.engine.windows.memory import MemoryBudget, MemoryUse, pressure_level
    from spark_jobs.engine.windows.monoid import Aggregate, Monoid, WindowRows
    from spark_jobs.engine.windows.rows import SkippedRows
    from spark_jobs.engine.windows.runs import RowSorter
    from spark_jobs.engine.windows.slices import SLICE_COLUMN, SLICES, HotKey, OwnSlice, in_slices, slice_halo
    from spark_jobs.engine.windows.spreading import MOST_KEYS, KeySample, SampledKey, Spread, spread
    from spark_jobs.engine.windows.streams import Windowing, find_windows
    from spark_jobs.engine.windows.summaries import DimensionMismatch, approx_quantile, collect, vector_mean, vector_sum
    from spark_jobs.engine.windows.tables import Found, Overflowed, WindowInputs
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "LISTED_REASONS",
    "MOST_KEYS",
    "NO_TIME",
    "POLICIES",
    "REASONS",
    "SLICES",
    "SLICE_COLUMN",
    "Account",
    "AdaptiveKind",
    "Aggregate",
    "Calendar",
    "Cuts",
    "DecimalOverflow",
    "Deltas",
    "DimensionMismatch",
    "Discard",
    "EarlyTrigger",
    "EmissionsKind",
    "FiringRules",
    "Found",
    "Hopping",
    "HotKey",
    "IntegerOverflow",
    "KeySample",
    "MemoryBudget",
    "MemoryUse",
    "Monoid",
    "Overflowed",
    "OwnSlice",
    "OwnTrigger",
    "Policy",
    "RowLateness",
    "RowSorter",
    "SampledKey",
    "Sessions",
    "SkippedRows",
    "Sliding",
    "Spread",
    "SqlTicks",
    "Ticks",
    "Trigger",
    "TriggerRows",
    "WindowInputs",
    "WindowKind",
    "WindowRows",
    "Windowing",
    "account",
    "approx_quantile",
    "astray",
    "avg",
    "collect",
    "count",
    "count_distinct",
    "find_windows",
    "first",
    "in_slices",
    "judge",
    "last",
    "max_",
    "min_",
    "pressure_level",
    "skipped_rows",
    "slice_halo",
    "spread",
    "stddev",
    "stream_times",
    "sum_",
    "variance",
    "vector_mean",
    "vector_sum",
]
