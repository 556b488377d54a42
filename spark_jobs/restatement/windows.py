"""Spark's part in restating windows: read what is within reach of the touched rows, shuffle once by key, let the
kernel compare.

One shuffle and one write per definition. What is read follows from the touched times alone: rows within one size (or
gap) and one tick of them, for sessions also all rows of the published sessions they come near to. There is no
look-back horizon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.restatement import restate
from spark_jobs.restatement.definitions import NEVER_LATE, Definition
from spark_jobs.restatement.touched import Range, Scope, at, coalesce_ranges, within
from spark_jobs.storage.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET_US = 3_600_000_000
"""Touched times are gathered by the hour: finer buckets read less but cost the driver more."""

TIMES = ("window_start", "window_end", "known_from", "known_to")


def touched_ranges(lake: Lake, scope: Scope, definitions: list[Definition]) -> dict[str, list[Range]]:
    """Per definition the ranges of its own time that hold touched rows, in one job."""
    if not definitions:
        return {}
    buckets = F.array(
        *[
            F.struct(
                F.lit(d.name).alias("name"), F.floor(F.unix_micros(f"t_{d.time}") / F.lit(BUCKET_US)).alias("bucket")
            )
            for d in definitions
        ]
    )
    rows = (
        scope.touching(lake)
        .select(F.explode(buckets).alias("b"))
        .select("b.name", "b.bucket")
        .where("bucket IS NOT NULL")
        .distinct()
    )
    found: dict[str, list[Range]] = {d.name: [] for d in definitions}
    for row in rows.collect():
        found[row.name].append((row.bucket * BUCKET_US, (row.bucket + 1) * BUCKET_US - 1))
    return {name: coalesce_ranges(ranges) for name, ranges in found.items()}


def corrections(lake: Lake, scope: Scope, definition: Definition, ranges: list[Range], token: int) -> DataFrame | None:
    """The rows to append to the definition's history table; None when no row with a time was touched."""
    if not ranges and not scope.everything:
        return None
    near = coalesce_ranges([(lo - definition.span_us - 1, hi + definition.span_us + 1) for lo, hi in ranges])
    published = _published(lake, definition)
    if not scope.everything:
        # a changed definition may have published windows anywhere
        near, published = _within_reach(definition, near, published)
    rows = _rows(lake, scope, definition, near)
    both = rows.unionByName(_prefixed(definition, published), allowMissingColumns=True)
    kernel = _Restater(definition, scope.known_from_us, scope.everything)
    table = definition.table()
    schema = ", ".join(
        f"`{c.name}` {'BIGINT' if c.name in TIMES else c.type}" for c in table.columns if c.name != "token"
    )
    made = both.repartition(*[F.col(k) for k in definition.key]).mapInArrow(kernel, schema)
    stamped = made.select(*[F.timestamp_micros(c).alias(c) if c in TIMES else F.col(c) for c in made.columns])
    return stamped.withColumn("token", F.lit(token).cast("bigint")).sortWithinPartitions(*definition.identity)


def _within_reach(definition: Definition, near: list[Range], published: DataFrame) -> tuple[list[Range], DataFrame]:
    """The ranges whose rows must be read, and the published windows that they can affect."""
    if not definition.is_session:
        return near, published.where(within("window_start", near))
    sessions = published.where(_overlapping(near))
    return coalesce_ranges(near + _bounds(sessions)), sessions


def _published(lake: Lake, definition: Definition) -> DataFrame:
    return lake.spark.table(f"silver.{definition.name}")


def _overlapping(ranges: list[Range]) -> Column:
    condition = F.lit(False)
    for lo, hi in ranges:
        condition = condition | ((F.col("window_start") <= at(hi)) & (F.col("window_end") >= at(lo)))
    return condition


def _bounds(sessions: DataFrame) -> list[Range]:
    """Ranges that cover these sessions, gathered by the hour in which they start."""
    bucket = F.floor(F.unix_micros("window_start") / F.lit(BUCKET_US)).alias("bucket")
    start, end = F.min(F.unix_micros("window_start")).alias("lo"), F.max(F.unix_micros("window_end")).alias("hi")
    return [(row.lo, row.hi) for row in sessions.groupBy(bucket).agg(start, end).collect()]


def min_end(definition: Definition) -> Column:
    """Per row the least last instant of a window that it counts in, by the late policy and the row's own drop.

    A window is late by `lo - end`. Closed ones end at their last instant, half-open ones a tick after it.
    """
    drops = definition.source.drops
    lo = F.lit(drops.start_us) + F.col("seq_no") * F.lit(drops.every_us)
    if definition.discards:
        return lo
    if definition.limit_us is None:
        return F.lit(NEVER_LATE)
    return lo - F.lit(definition.limit_us + definition.is_half_open)


def _rows(lake: Lake, scope: Scope, definition: Definition, ranges: list[Range]) -> DataFrame:
    time = f"t_{definition.time}"
    # a touched row without a time is in no window
    rows = scope.standing(lake).where(within(time, ranges))
    return rows.select(
        F.lit(False).alias("is_window"),
        *[F.col(f"c_{k}").alias(k) for k in definition.key],
        F.unix_micros(time).alias("time"),
        "row_id",
        "diff",
        "touched",
        min_end(definition).cast("bigint").alias("min_end"),
        *[F.col(f"c_{c}").alias(f"v_{c}") for c in definition.columns_read],
    )


def _prefixed(definition: Definition, published: DataFrame) -> DataFrame:
    aggregates = [F.col(name).alias(f"a_{name}") for name in definition.aggregates]
    times = [F.unix_micros(t).alias(t) for t in ("window_start", "window_end", "known_from")]
    return published.select(F.lit(True).alias("is_window"), *definition.key, *times, "revision", *aggregates)


@dataclass(frozen=True)
class _Restater:
    """What runs in the Python workers: all rows and windows of a partition's keys to the corrections of its windows."""

    definition: Definition
    known_from_us: int
    everything: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if not held:
            return
        both = pa.Table.from_batches(held)
        is_window = both.column("is_window")
        rows = both.filter(pa.compute.invert(is_window))
        names = ["time", "row_id", "diff", "touched", "min_end"]
        rows = rows.select([*self.definition.key, *names, *[f"v_{c}" for c in self.definition.columns_read]])
        rows = rows.rename_columns([*self.definition.key, *names, *self.definition.columns_read])
        aggregates = list(self.definition.aggregates)
        listed = [
            *self.definition.key,
            "window_start",
            "window_end",
            *[f"a_{a}" for a in aggregates],
            "known_from",
            "revision",
        ]
        windows = both.filter(is_window).select(listed)
        windows = windows.rename_columns(
            [*self.definition.key, "window_start", "window_end", *aggregates, "known_from", "revision"]
        )
        made = restate(
            rows, windows, self.definition.windowing, known_from=self.known_from_us, everything=self.everything
        )
        names_out = [c.name for c in self.definition.table().columns if c.name != "token"]
        yield from made.select(names_out).to_batches()
