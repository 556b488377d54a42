"""The options that all kinds of windows share, as users give them by name and as the plan of a call reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Required, TypedDict

from pyspark.sql import Observation

from spark_jobs.engine.spark.windows.parameters import DEFAULT_MEMORY_BYTES, DEFAULT_ROWS_A_SLICE, Duration
from spark_jobs.engine.windows.kinds.cuts import Trigger
from spark_jobs.engine.windows.monoid import Aggregate

Columns = str | Sequence[str]


class SharedOptions(TypedDict, total=False):
    """The keyword arguments of every window function; `sliding_windows` describes them."""

    key: Required[Columns]
    time: Required[str]
    grace: Duration | None
    arrival: str | None
    stream: Columns | None
    rows_a_slice: int | None
    memory_max_bytes: int
    metrics: Observation | None


class AggregateOptions(SharedOptions):
    """The keyword arguments of functions whose windows must have aggregates."""

    aggregates: Mapping[str, Aggregate]


class AdaptiveOptions(SharedOptions, total=False):
    """The keyword arguments of `adaptive_windows`, which describes them."""

    delta: Required[str]
    aggregates: Mapping[str, Aggregate] | None
    vector: str | None
    size_bytes: str | None
    target_batch_size: int
    min_duration: Duration | None
    max_duration: Duration | None
    reset: Duration | None
    rate_window: Duration | None
    triggers: Sequence[Trigger] | None


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """The options of one call, not checked yet: see `WindowCall.checked`."""

    key: Columns
    time: str
    aggregates: Mapping[str, Aggregate]
    grace: Duration | None = None
    arrival: str | None = None
    stream: Columns | None = None
    rows_a_slice: int | None = DEFAULT_ROWS_A_SLICE
    memory_max_bytes: int = DEFAULT_MEMORY_BYTES
    metrics: Observation | None = None
