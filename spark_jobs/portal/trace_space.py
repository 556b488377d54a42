"""The space of a source's trace: its batches by level now, and its size after each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spark_jobs.portal.charts import Chart, Series, drops_chart
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.quality_tables import METRICS
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.sizes import TraceSize, level_sizes

_COLUMNS = ("trace_bytes", "trace_batches", "trace_updates", "trace_consolidated")


@dataclass(frozen=True)
class TraceLevel:
    """The batches of one compaction level: how many, their updates and bytes, and the end of the newest interval.

    `level` is the number of the level, or `unsealed`.
    """

    level: str
    batches: int
    updates: int
    bytes: int
    up_to: datetime | None


@dataclass(frozen=True)
class TraceSpace:
    """The size of a trace, its levels with the oldest batches first, and a chart of its size after each run.

    `share`: the share of the updates that are in merged batches, in words.
    """

    size: TraceSize
    share: str
    levels: list[TraceLevel]
    chart: Chart | None


def trace_space(lake: HeldLake, source: Source, current_frontiers: SourceFrontiers) -> TraceSpace:
    """The space of the trace whose frontiers these are; no file of the trace is read."""
    state = current_frontiers.arrangement
    size = TraceSize.of(state)
    levels = [
        TraceLevel(
            *("unsealed" if each.level is None else str(each.level), each.batches, each.updates, each.bytes),
            None if each.upper_us is None else instant(each.upper_us),
        )
        for each in level_sizes(state)
    ]
    return TraceSpace(size, f"{size.consolidated or 0:.0%}", levels, _chart(lake, source))


def _chart(lake: HeldLake, source: Source) -> Chart | None:
    """The size after the newest run of each drop."""
    newest = _newest_by_drop(lake, source)
    series = [
        Series("Bytes", "bytes", {n: row["trace_bytes"] for n, row in newest.items()}),
        Series("Batches", "batches", {n: row["trace_batches"] for n, row in newest.items()}),
        Series("Updates", "updates", {n: row["trace_updates"] for n, row in newest.items()}),
        Series(
            "In merged batches", "%", {n: round(100 * (row["trace_consolidated"] or 0)) for n, row in newest.items()}
        ),
    ]
    chart = drops_chart("Space of the trace, after the run of each drop", series, source)
    if chart is None:
        return None
    last = max(newest)
    words = ", ".join(f"{each.values[last]:,} {each.unit}" for each in series)
    return replace(chart, summary=f"After the run of {source.drops.label(last)}: {words} in merged batches")


def _newest_by_drop(lake: HeldLake, source: Source) -> Mapping[int, dict[str, Any]]:
    def read() -> dict[int, dict[str, Any]]:
        rows = lake.of_source(METRICS, source.name, ("seq_no", "landing", *_COLUMNS)).to_pylist()
        # rows about landings, and those of an older lake, have no size
        measured = [row for row in rows if row["trace_batches"] is not None]
        return {row["seq_no"]: row for row in sorted(measured, key=lambda row: row["landing"])}

    return lake.remember(("trace space", source.name), lake.version_of(METRICS, source.name), read)
