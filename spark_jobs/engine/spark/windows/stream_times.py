"""The stream time of each row: the greatest time among the rows that arrived up to then.

Rows that share a stream (`stream`) are ordered together, with one task per stream. If the whole DataFrame is one stream
and has more rows than a task should have, arrivals are cut into ranges, by a sample of them. Each task computes the
running maximum in a range; the result is combined with the greatest time of all ranges before. The places of the cuts
do not change any stream time, as rows with the same arrival are in the same range.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DateType, FractionalType, TimestampNTZType, TimestampType

from spark_jobs.engine.spark.windows.expressions import quote_name, ticks_of, whole
from spark_jobs.engine.spark.windows.parameters import is_integer
from spark_jobs.engine.windows.spreading import sampled_share

_RANGE = "__range"
_BEFORE = "__before"
_MOST_RANGES = 256


class OneTaskWarning(UserWarning):
    """All rows of a DataFrame are ordered in one task."""


@dataclass(frozen=True)
class Arrivals:
    """The order in which the rows of a stream arrive.

    `counted` is SQL for the time of a row; null if the row does not advance the stream time. `rows_a_slice` is the
    approximate number of rows of a task; None: no sample is taken.
    """

    column: str
    kind: DataType
    stream: Sequence[str]
    counted: str
    rows_a_slice: int | None

    def stream_times(self, rows: DataFrame, name: str) -> DataFrame:
        """The rows with their stream times in the column `name`; null if no time has come up to the row."""
        if self.stream:
            return rows.selectExpr("*", f"{self._running_sql(self.stream)} AS {name}")
        bounds = self._bounds(rows)
        if not bounds:
            return rows.selectExpr("*", f"{self._running_sql(())} AS {name}")
        ranged = rows.selectExpr("*", f"{self._range(bounds)} AS {_RANGE}")
        joined = ranged.join(self._before(ranged, len(bounds) + 1).hint("broadcast"), _RANGE)
        return joined.selectExpr("*", f"greatest({_BEFORE}, {self._running_sql([_RANGE])}) AS {name}")

    def _running_sql(self, partition: Sequence[str]) -> str:
        """SQL for the greatest time in a partition up to a row."""
        together = f"PARTITION BY {', '.join(map(quote_name, partition))}" if partition else ""
        return (
            f"max({self.counted}) OVER ({together} ORDER BY {quote_name(self.column)} NULLS FIRST"
            " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        )

    def _before(self, ranged: DataFrame, n_ranges: int) -> DataFrame:
        """Per range, the greatest time of all ranges before it."""
        greatest = ranged.selectExpr(_RANGE, f"{self.counted} AS t").groupBy(_RANGE).agg({"t": "max"})
        ranges = greatest.selectExpr(f"collect_list(struct({_RANGE} AS at, `max(t)` AS t)) AS ranges")
        earlier = "array_max(transform(filter(ranges, each -> each.at < number), each -> each.t))"
        numbers = f"sequence(0, {n_ranges - 1})"
        return ranges.selectExpr(f"posexplode(transform({numbers}, number -> {earlier})) AS ({_RANGE}, {_BEFORE})")

    def _bounds(self, rows: DataFrame) -> list[str]:
        """SQL for the arrivals, as ascending numbers, at which ranges begin; empty if there is to be only one task."""
        number = self._number()
        if self.rows_a_slice is None or number is None:
            self._warn()
            return []
        share = sampled_share(self.rows_a_slice)
        quantiles = ", ".join(f"{place}D / {_MOST_RANGES}" for place in range(1, _MOST_RANGES))
        sample = rows.sample(fraction=share, seed=0).selectExpr(f"{number} AS a")
        (sampled,) = sample.selectExpr(
            "count(1) AS n", f"percentile_approx(a, array({quantiles}), 10000) AS q"
        ).collect()
        n_ranges = min(math.ceil(sampled.n / share / self.rows_a_slice), _MOST_RANGES)
        if n_ranges <= 1 or not sampled.q:
            return []
        chosen = {sampled.q[place * _MOST_RANGES // n_ranges - 1] for place in range(1, n_ranges)}
        return [_literal(bound) for bound in sorted(bound for bound in chosen if math.isfinite(bound))]

    def _number(self) -> str | None:
        """SQL for a number by which arrivals are ordered; None if their type has no such number."""
        if is_integer(self.kind) or isinstance(self.kind, (TimestampType, TimestampNTZType)):
            return ticks_of(self.column, self.kind)
        if isinstance(self.kind, DateType):
            return f"CAST(unix_date({quote_name(self.column)}) AS BIGINT)"
        if isinstance(self.kind, FractionalType):
            return f"CAST({quote_name(self.column)} AS DOUBLE)"
        return None

    def _range(self, bounds: list[str]) -> str:
        """SQL for the range of a row: the number of bounds up to its arrival, 0 for a row without one."""
        number = self._number()

        def between(low: int, high: int) -> str:
            if low == high:
                return str(low)
            middle = (low + high) // 2
            return f"IF({number} < {bounds[middle]}, {between(low, middle)}, {between(middle + 1, high)})"

        return f"IF({quote_name(self.column)} IS NULL, 0, {between(0, len(bounds))})"

    def _warn(self) -> None:
        why = (
            "rows_a_slice is None and no sample says where to cut them"
            if self.rows_a_slice is None
            else f"arrivals of type {self.kind.simpleString()} are not cut into ranges"
        )
        warnings.warn(
            f"grace without stream: one task orders all rows of the DataFrame by {self.column}, since {why}. The result"
            " is exact, but takes as long as one task needs. For many tasks give `stream`, the column(s) whose rows"
            " share one stream time, or an arrival that is a number, a date or a timestamp, and rows_a_slice.",
            OneTaskWarning,
            stacklevel=7,  # where a window function is called
        )


def _literal(bound: float) -> str:
    return whole(bound) if isinstance(bound, int) else f"CAST('{bound!r}' AS DOUBLE)"
