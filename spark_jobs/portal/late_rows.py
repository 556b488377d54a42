"""The late rows of a source: each once, with its file and line and what each definition did with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.reads.landed import with_landings
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.descriptions.times import instant, micros

Row = dict[str, Any]
_READ = ("row_id", "entity", "event_time", "drop_lo", "definition", "action", "late_by", "diff", "known_from", "token")


def published_late(lake: HeldLake, source: Source, current: Publication, columns: Sequence[str]) -> pa.Table:
    """The rows of `silver.late` that are published of a source: rows that came and rows that went, each with `diff`.

    `current`: its publication in force. `columns` must have `known_from` and `token`.
    """
    is_published = visible_rows(current) & (pc.field("known_from") < pa.scalar(instant(current.published_us)))
    return lake.of_source(LATE, source.name, columns, is_published)


def late_rows(lake: HeldLake, source: Source) -> list[Row]:
    """The published late rows, the newest drop first, then the latest rows.

    Each has `row_id`, `entity`, `event_time`, `drop_lo`, the drop's label as `drop`, the greatest `late_by` in
    microseconds, and `done`: what each definition did with it, in words.
    """
    net: Counter[tuple[Any, ...]] = Counter()
    for row in published_late(lake, source, publication.load(lake, source), _READ).to_pylist():
        net[tuple(row[name] for name in _READ[:7])] += row["diff"]
    by_id: dict[tuple[int, Any], Row] = {}
    for (row_id, entity, event_time, lo, definition, action, late_by), count in net.items():
        if count > 0:
            blank = {"row_id": row_id, "entity": entity, "event_time": event_time, "drop_lo": lo, "late_by": None}
            row = by_id.setdefault((row_id, lo), {**blank, "done": []})
            row["done"].append(f"{definition or 'state'}: {action}")
            row["late_by"] = max(row["late_by"] or 0, late_by) if late_by is not None else row["late_by"]
    starts = {row["drop_lo"] for row in by_id.values()}
    labels = {start: source.drops.label(source.drops.seq_no_at(micros(start))) for start in starts}
    for row in by_id.values():
        row |= {"done": ", ".join(sorted(row["done"])), "drop": labels[row["drop_lo"]]}
    return sorted(by_id.values(), key=lambda row: (row["drop_lo"], row["late_by"] or 0), reverse=True)


def with_places(lake: HeldLake, source: Source, rows: list[Row]) -> list[Row]:
    """The late rows with the `file`, `line` and `run_id` that brought them."""
    updates = [{**row, "delta_id": None, "token": 1 << 62} for row in rows]
    return with_landings(lake, source, updates, ())


def duration(late_by_us: int | None) -> str:
    """A lateness in words: its two greatest units."""
    if late_by_us is None:
        return "–"
    minutes = late_by_us // 60_000_000
    days, hours, left = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [f"{n:,} {unit}" for n, unit in ((days, "d"), (hours, "h"), (left, "min")) if n]
    return " ".join(parts[:2]) or "under 1 min"
