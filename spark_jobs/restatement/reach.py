"""The rows and published windows that a restatement must read: those within reach of its touched times."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Ints, numbers
from spark_jobs.engine.records import GREATEST_US, LEAST_US
from spark_jobs.restatement.published import published_files
from spark_jobs.restatement.touched import Range, Scope, coalesce_ranges, instant
from spark_jobs.restatement.window_rows import PublishedWindows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.lakes.lake import Lake

BUCKET_US = 3_600_000_000
"""Touched times are gathered by the hour: finer buckets read less but cost more."""


def touched_ranges(lake: Lake, scope: Scope, definitions: Sequence[Definition]) -> dict[str, list[Range]]:
    """The ranges of time, by definition, in which rows were added or removed; read without a Spark job. The time is
    that of the definition's timeline."""
    hours: dict[str, set[int]] = {d.name: set() for d in definitions}
    drops = scope.source.drops
    for of_some, some in scope.by_window(definitions):
        columns = {f"t_{d.time}" for d in some} | {f"c_{key}" for d in some for key in d.key}
        for table in of_some.touching_rows(lake, ["seq_no", *sorted(columns)]).tables():
            lo = drops.starts(numbers(table["seq_no"]))
            for definition in some:
                hours[definition.name] |= touched_hours(table, definition, lo)
    ranges = {name: [(hour * BUCKET_US, (hour + 1) * BUCKET_US - 1) for hour in of] for name, of in hours.items()}
    return {name: coalesce_ranges(of) for name, of in ranges.items()}


def touched_hours(updates: pa.Table, definition: Definition, lo: Ints) -> set[int]:
    """The hours since 1970 in which updates of drops that start at `lo` may count."""
    counts = definition.can_count(updates)
    placed = definition.places(numbers(updates[f"t_{definition.time}"])[counts], lo[counts])
    return {*np.unique(placed // BUCKET_US).tolist()}


def ranges_near(definition: Definition, ranges: list[Range], expired_us: int | None) -> list[Range]:
    """The ranges of time in which rows bear on windows that rows in `ranges` can change. For sessions, the caller adds
    the ranges of the published sessions that overlap these. `expired_us`: windows that end by then are not kept."""
    span_us = definition.kind.span
    near = [(lo - span_us - 1, hi + span_us + 1) for lo, hi in ranges]
    if definition.kind.halo is None and expired_us is not None:
        # a session that is not kept any more may be joined to one that is; it is not published, and begins at any time
        near = [(LEAST_US if lo <= expired_us else lo, hi) for lo, hi in near]
    return coalesce_ranges(near)


def reach(
    lake: Lake, scope: Scope, definition: Definition, ranges: list[Range], expired_us: int | None
) -> tuple[list[Range], StoredRows]:
    """The ranges whose rows must be read, and the published windows that these rows can affect or that expire now."""
    near = ranges_near(definition, ranges, expired_us)
    if scope.everything:
        # a changed definition may have published windows anywhere
        return near, _published_rows(lake, scope, definition, None)
    due = _falls_due(scope, definition)
    if definition.kind.halo is not None:
        return near, _published_rows(lake, scope, definition, _any([*(_within("window_start", near)), *due]))
    overlapping = [
        (pc.field("window_start") <= instant(hi)) & (pc.field("window_end") >= instant(lo)) for lo, hi in near
    ]
    bounds = _bounds(lake, scope, definition, overlapping) if near else []
    return coalesce_ranges(near + bounds), _published_rows(lake, scope, definition, _any([*overlapping, *due]))


def rows_near(lake: Lake, scope: Scope, definition: Definition, ranges: list[Range]) -> StoredRows:
    """The standing updates that may count in these ranges of time; files outside of the ranges are skipped."""
    near = _within(f"t_{definition.time}", [definition.times_at_places(*each) for each in ranges])
    if definition.moves_late_rows:
        # an update may have moved on to the start of its drop
        drops = definition.source.drops
        numbered = [drops.drops_covering(lo, hi) for lo, hi in ranges]
        near += [(pc.field("seq_no") >= first) & (pc.field("seq_no") <= last) for first, last in numbered]
    return scope.due_rows(lake, ["row_id"], _any(near))


def _published_rows(lake: Lake, scope: Scope, definition: Definition, where: pc.Expression | None) -> StoredRows:
    columns = PublishedWindows.columns(definition)
    return published_files(lake, definition.table(), scope.publication, columns, where)


def _within(column: str, ranges: list[Range]) -> list[pc.Expression]:
    return [(pc.field(column) >= instant(lo)) & (pc.field(column) <= instant(hi)) for lo, hi in ranges]


def _any(conditions: list[pc.Expression]) -> pc.Expression:
    return reduce(operator.or_, conditions, pc.scalar(False))


def _falls_due(scope: Scope, definition: Definition) -> list[pc.Expression]:
    """The condition that a published window expires with this run, by its end; empty if no window can expire."""
    expired_us, before_us = (definition.expired_us(f.reached_us) for f in (scope.frontiers, scope.publication))
    if expired_us is None or before_us is None:
        return []
    return [(pc.field("window_end") > instant(before_us)) & (pc.field("window_end") <= instant(expired_us))]


def _bounds(lake: Lake, scope: Scope, definition: Definition, overlapping: list[pc.Expression]) -> list[Range]:
    """The ranges that cover the published sessions which meet one of the conditions `overlapping`: one range for all
    sessions that start in the same hour."""
    bounds = ["window_start", "window_end"]
    rows = published_files(lake, definition.table(), scope.publication, bounds, _any(overlapping)).whole()
    starts, ends = (numbers(rows[column]) for column in bounds)
    hours, of_row = np.unique(starts // BUCKET_US, return_inverse=True)
    least, greatest = np.full(len(hours), GREATEST_US), np.full(len(hours), LEAST_US)
    np.minimum.at(least, of_row, starts)
    np.maximum.at(greatest, of_row, ends)
    return list(zip(least.tolist(), greatest.tolist(), strict=True))
