"""Spark's part in restating windows: read what is within reach of the touched rows, shuffle once by group, let the
kernel compare.

One shuffle and one write per definition. What is read follows from the touched times alone: rows within one size (or
gap) and one tick of them, for sessions also all rows of the published sessions they come near to, and all earlier ones
where they come near to sessions that are kept no longer. There is no look-back horizon.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels import accounts
from spark_jobs.kernels.accounts import Account
from spark_jobs.kernels.comparison import PLACED
from spark_jobs.kernels.plain import Ints, numbers, present
from spark_jobs.kernels.records.times import GREATEST_US, LEAST_US
from spark_jobs.kernels.windows import MemoryBudget
from spark_jobs.kernels.windows.slices import copied
from spark_jobs.restatement.published import published_files, published_rows
from spark_jobs.restatement.restater import ACCOUNT_PREFIX, Restater, given_schema, result_schema
from spark_jobs.restatement.touched import Range, Scope, at, coalesce_ranges, instant, within
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import name
from spark_jobs.windows.adapter import metric_totals
from spark_jobs.windows.hot_keys import Spread, key_hash, spread
from spark_jobs.windows.parameters import DEFAULT_ROWS_A_SLICE
from spark_jobs.windows.worker import METRICS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET_US = 3_600_000_000
"""Touched times are gathered by the hour: finer buckets read less but cost the driver more."""

DROPS_A_FILE = 2
"""Lengths of a drop that a file of windows may cover as it comes from the workers, in the order of keys: what a daily
run restates is read as a whole when it is restated again. More is sorted by time."""

TIMES = ("window_start", "window_end", "known_from", "known_to")


@dataclass(frozen=True)
class Corrections:
    """What a definition's table must be told: `rows` to append. Once they are written, `account` says what they rest
    on."""

    rows: DataFrame
    _observed: Observation

    @property
    def account(self) -> Account:
        """What became of the touched rows; blocks until `rows` have been written."""
        found = self._observed.get
        return Account(*(found[n] or 0 for n in accounts.NAMES))

    @property
    def memory(self) -> dict[str, int]:
        """What the workers took in and flushed, together, and the greatest peak of one; blocks like `account`."""
        found = self._observed.get
        return {name: int(found[name] or 0) for name in METRICS}


def drop_start(source: Source) -> Column:
    """Per update the start of its drop, in microseconds."""
    return F.lit(source.drops.start_us) + F.col("seq_no") * F.lit(source.drops.every_us)


def touched_ranges(lake: Lake, scope: Scope, definitions: list[Definition]) -> dict[str, list[Range]]:
    """Per definition the ranges of its own time where rows came or went; read without a Spark job."""
    columns = {f"t_{d.time}" for d in definitions} | {f"c_{key}" for d in definitions for key in d.key}
    hours: dict[str, set[int]] = {d.name: set() for d in definitions}
    rows = scope.touching_rows(lake, ["seq_no", *sorted(columns)]) if definitions else None
    for table in rows.tables() if rows is not None else ():
        drops = scope.source.drops
        lo = numbers(table["seq_no"]) * drops.every_us + drops.start_us
        for definition in definitions:
            hours[definition.name] |= touched_hours(table, definition, lo)
    ranges = {name: [(hour * BUCKET_US, (hour + 1) * BUCKET_US - 1) for hour in found] for name, found in hours.items()}
    return {name: coalesce_ranges(found) for name, found in ranges.items()}


def touched_hours(updates: pa.Table, definition: Definition, lo: Ints) -> set[int]:
    """The hours since 1970 in which updates with a key may count: each at its own time, or at `lo`, its drop's start,
    where the definition moves late rows there."""
    counts = present(updates[f"t_{definition.time}"])
    for key in definition.key:
        counts &= present(updates[f"c_{key}"])
    times, starts = numbers(updates[f"t_{definition.time}"])[counts], lo[counts]
    hours = {*np.unique(times // BUCKET_US).tolist()}
    return hours | {*np.unique(starts[times < starts] // BUCKET_US).tolist()} if definition.moves_late_rows else hours


def has_key(definition: Definition) -> Column:
    """Whether an update has a value in every key column."""
    condition = F.lit(True)
    for key in definition.key:
        condition = condition & F.col(f"c_{key}").isNotNull()
    return condition


def has_required(definition: Definition) -> Column:
    """Whether an update has a key and every value without which it is in no window."""
    condition = has_key(definition)
    for needed in _required_values(definition):
        condition = condition & needed.isNotNull()
    return condition


def corrections(
    lake: Lake, scope: Scope, definition: Definition, ranges: list[Range], token: int
) -> Corrections | None:
    """The rows to append to the definition's history table; None when no row with a key and a time was touched, and
    the definition keeps its windows."""
    expired_us = definition.expired_us(scope.frontiers.reached_us)
    if not ranges and not scope.everything and expired_us is None:
        return None
    near = ranges_near(definition, ranges, expired_us)
    published = published_rows(lake, definition.table(), scope.publication)
    if not scope.everything:
        # a changed definition may have published windows anywhere
        near, published = _within_reach(lake, scope, definition, near, published)
    rows, stand = _rows(lake, scope, definition, near), _prefixed(definition, published)
    over = _spread(scope, definition, rows)
    grouped = _together(definition, over, rows, stand)
    hot = () if over is None else over.hot
    kernel = Restater(definition, scope.known_from_us, scope.everything, expired_us, hot)
    made = grouped.mapInArrow(kernel, from_arrow_schema(result_schema(definition)))
    observation = Observation(f"windows_{definition.name}_{token}")
    sums = [F.sum(f"{ACCOUNT_PREFIX}{n}").alias(n) for n in accounts.NAMES]
    observed = made.observe(observation, *sums, *metric_totals(made)).where("era IS NOT NULL")
    columns = [c for c in definition.table().column_names if c != "token"]
    stamped = observed.select(*[F.timestamp_micros(c).alias(c) if c in TIMES else F.col(name(c)) for c in columns])
    stamped = stamped.withColumn("token", F.lit(token).cast("bigint"))
    if scope.everything or _span(ranges) > DROPS_A_FILE * definition.source.drops.every_us:
        # by time first: the files of a backfill are cut along it, and what restates a few days reads few of them
        stamped = stamped.sortWithinPartitions("window_start", *definition.key)
    return Corrections(stamped, observation)


def _span(ranges: list[Range]) -> int:
    """How far apart the first and the last of the touched times are."""
    return max((hi for _, hi in ranges), default=0) - min((lo for lo, _ in ranges), default=0)


def ranges_near(definition: Definition, ranges: list[Range], expired_us: int | None) -> list[Range]:
    """The ranges of time in which rows bear on windows that rows in `ranges` can change; for sessions those of the
    published ones that overlap these come on top. `expired_us`: windows that end by then are not kept."""
    span_us = definition.kind.span
    near = [(lo - span_us - 1, hi + span_us + 1) for lo, hi in ranges]
    if definition.kind.halo is None and expired_us is not None:
        # a session that is kept no longer may be joined to one that is; it is not published, and begins at any time
        near = [(LEAST_US if lo <= expired_us else lo, hi) for lo, hi in near]
    return coalesce_ranges(near)


def _falls_due(scope: Scope, definition: Definition) -> Column:
    """Whether a published window is kept no longer: the files are found by their windows' ends."""
    expired_us, before_us = (definition.expired_us(f.reached_us) for f in (scope.frontiers, scope.publication))
    if expired_us is None or before_us is None:
        return F.lit(False)
    return (F.col("window_end") > at(before_us)) & (F.col("window_end") <= at(expired_us))


def _within_reach(
    lake: Lake, scope: Scope, definition: Definition, near: list[Range], published: DataFrame
) -> tuple[list[Range], DataFrame]:
    """The ranges whose rows must be read, and the published windows that they can affect, or that fall due."""
    due = _falls_due(scope, definition)
    if definition.kind.halo is not None:
        return near, published.where(within("window_start", near) | due)
    overlapping = _overlapping(near)
    bounds = _bounds(lake, scope, definition.table(), near) if near else []
    return coalesce_ranges(near + bounds), published.where(overlapping | due)


def _overlapping(ranges: list[Range]) -> Column:
    condition = F.lit(False)
    for lo, hi in ranges:
        condition = condition | ((F.col("window_start") <= at(hi)) & (F.col("window_end") >= at(lo)))
    return condition


def _bounds(lake: Lake, scope: Scope, table: Table, near: list[Range]) -> list[Range]:
    """Ranges that cover the published sessions which overlap some, gathered by the hour in which they start."""
    overlaps = [(pc.field("window_start") <= instant(hi)) & (pc.field("window_end") >= instant(lo)) for lo, hi in near]
    bounds = ["window_start", "window_end"]
    rows = published_files(lake, table, scope.publication, bounds, reduce(operator.or_, overlaps)).whole()
    starts, ends = (numbers(rows[column]) for column in bounds)
    hours, of_row = np.unique(starts // BUCKET_US, return_inverse=True)
    least, greatest = np.full(len(hours), GREATEST_US), np.full(len(hours), LEAST_US)
    np.minimum.at(least, of_row, starts)
    np.maximum.at(greatest, of_row, ends)
    return list(zip(least.tolist(), greatest.tolist(), strict=True))


def _rows(lake: Lake, scope: Scope, definition: Definition, ranges: list[Range]) -> DataFrame:
    """Standing updates with a key that count in these ranges."""
    time = f"t_{definition.time}"
    near = within(time, ranges)
    if definition.moves_late_rows:
        near = near | _landed_in(definition, ranges)
    rows = scope.standing(lake).where(near & has_key(definition)).withColumn("lo", drop_start(definition.source))
    columns: list[Column] = [
        F.lit(False).alias("is_window"),
        *[F.col(f"c_{k}").alias(f"k_{k}") for k in definition.key],
        F.unix_micros(time).alias("time"),
        *[F.col(c) for c in ("lo", "row_id", "diff", "touched")],
        *[F.col(f"c_{c}").alias(f"v_{c}") for c in definition.values_read],
        *(_adaptive_inputs(definition) if definition.is_adaptive else []),
    ]
    return rows.select(*columns)


def _spread(scope: Scope, definition: Definition, rows: DataFrame) -> Spread | None:
    """How rows are spread over tasks, as in the library; None: as Spark has it, where a run touches few of them."""
    rows_a_slice = _rows_a_slice(definition)
    if scope.touches_about <= rows_a_slice:
        return None
    keyed = rows.where("time IS NOT NULL")
    return spread(keyed, definition.kind, hashed=_hash(definition), time="time", rows_a_slice=rows_a_slice)


def _rows_a_slice(definition: Definition) -> int:
    """About how many rows a task is given: no more than it sorts without putting any on disk."""
    columns = len(given_schema(definition, sliced=True)) + len((PLACED, "min_end"))
    budget = MemoryBudget(definition.source.memory.max_bytes)
    return min(DEFAULT_ROWS_A_SLICE, budget.rows_held(8 * columns))


def _together(definition: Definition, over: Spread | None, rows: DataFrame, stand: DataFrame) -> DataFrame:
    """Rows, once per slice that they bear on, and published windows, each in the slice that it starts in."""
    if over is None:
        return rows.unionByName(stand, allowMissingColumns=True).repartition(*definition.groups)
    hashed = _hash(definition)
    halo = copied(definition.kind)
    moved = ["if(time < lo, lo, time)"] if definition.moves_late_rows else []
    rows = over.in_slices(rows, halo, hashed, "time", *moved)
    stand = over.in_slices(stand, None if halo is None else (0, 0), hashed, "window_start")
    return over.together(rows.unionByName(stand, allowMissingColumns=True), hashed)


def _hash(definition: Definition) -> str:
    return key_hash(map(name, definition.groups))


def _landed_in(definition: Definition, ranges: list[Range]) -> Column:
    """Whether an update may have moved on to the start of its drop in one of these ranges."""
    drops = definition.source.drops
    condition = F.lit(False)
    for lo, hi in ranges:
        first, last = -((drops.start_us - lo) // drops.every_us), (hi - drops.start_us) // drops.every_us
        condition = condition | F.col("seq_no").between(first, last)
    return condition & (F.unix_micros(f"t_{definition.time}") < drop_start(definition.source))


def _adaptive_inputs(definition: Definition) -> list[Column]:
    """Delta id, vector and size of a row, as adaptive windows take them."""
    window = definition.window
    vector = getattr(window, "vector", None)
    size = getattr(window, "size_bytes", None)
    return [
        F.col("delta_id"),
        (F.col("entity") if vector is None else F.col(f"c_{vector}").cast("string")).alias("vector"),
        (_bytes(definition.source) if size is None else F.col(f"c_{size}")).alias("size"),
    ]


def _required_values(definition: Definition) -> list[Column]:
    """`Definition.required`, of updates."""
    if definition.is_adaptive:
        return _adaptive_inputs(definition)
    return [F.col(f"c_{column.removeprefix('v_')}") for column in definition.required]


def _bytes(source: Source) -> Column:
    """The bytes of a row's values: UTF-8 of texts, 16 of decimals, 8 of other numbers and times, 4 of dates, 1 of
    booleans, 0 of nulls."""
    widths = {"int": 8, "float": 8, "decimal": 16, "timestamp": 8, "date": 4, "bool": 1}
    total = F.lit(0).cast("bigint")
    for column, spec in source.columns.items():
        value = F.col(f"c_{column}")
        held = F.octet_length(value) if spec.kind == "string" else F.when(value.isNotNull(), F.lit(widths[spec.kind]))
        total = total + F.coalesce(held, F.lit(0)).cast("bigint")
    return total


def _prefixed(definition: Definition, published: DataFrame) -> DataFrame:
    """Published windows as the kernel takes them."""
    times = [F.unix_micros(t).alias(t) for t in ("window_start", "window_end", "known_from")]
    keys = [F.col(k).alias(f"k_{k}") for k in definition.key]
    results = [F.col(name(n)).alias(f"a_{n}") for n in definition.window.aggregates]
    own = [F.col(name(n)) for n in definition.own_columns]
    return published.select(F.lit(True).alias("is_window"), *keys, *times, "revision", "era", *own, *results)
