"""Records of how each landing changed its drops and of the trace's size; and a comparison of a run's drops with earlier
ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.engine.measures import DropChange, EntityCounts, Key, drop_changes, hourly
from spark_jobs.gates.drift import compare_with_history, judge_drift, totals
from spark_jobs.gates.measures.parts import of_landings
from spark_jobs.judging.gate import JudgedRun, Judgement, keep_verdicts
from spark_jobs.landing.ledger import COUNTS, RETRACTED, PendingLanding, drop_bounds
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.quality_tables import METRICS
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.sizes import TraceSize


def keep_metrics(
    run: JudgedRun, lake: Lake, landings: Mapping[int, PendingLanding]
) -> tuple[int, dict[int, int], Judgement]:
    """Record once how these landings changed their drops, and compare these drops with earlier ones.

    Returns how many records the drops have now, rejects included; the rows of each drop that has landed; and the
    judgement on the drift of these drops.
    """
    of_source = pc.field("source") == run.source.name
    recorded = lake.records(METRICS, of_source)
    lacking = sorted(set(landings) - {row["landing"] for row in recorded})
    if lacking:
        metrics = _metrics(lake, run.source, run.run_id, lacking)
        lake.record_next(METRICS, of_source, lambda present: _new(metrics, present))
        recorded = [*recorded, *_new(metrics, recorded)]
    drops, metrics_by_drop = sorted({n for landing in landings.values() for n in landing.drops}), totals(recorded)
    verdicts = judge_drift(
        run.settings,
        compare_with_history(metrics_by_drop, drops),
        source=run.source.name,
        run_id=run.run_id,
        labels={n: run.source.drops.label(n) for n in drops},
    )
    keep_verdicts(run.lease, "metrics", [asdict(verdict) for verdict in verdicts], ("drift",))
    drift = tuple(f"{v.name}: {v.observed}, {v.because}" for v in verdicts if v.verdict != "passed")
    of_drops = [metrics_by_drop[n] for n in drops if n in metrics_by_drop]
    n_records = sum(each["rows"] + each["rejects"] for each in of_drops)
    return n_records, {n: each["rows"] for n, each in metrics_by_drop.items()}, Judgement(not_passed=drift)


def keep_trace_size(run: JudgedRun, lake: Lake, state: ArrangementState) -> None:
    """Record the size of the trace after a run that changed it, for the run's last drop."""
    last = run.source.drops.drops_spanned(*run.interval_us)[-1]
    size = TraceSize.of(state)
    row = {**_row_without_counts(run.source, run.token, last), "run_id": run.run_id}
    row |= {"trace_batches": size.batches, "trace_updates": size.updates, "trace_bytes": size.bytes}
    row["trace_consolidated"] = size.consolidated
    # a stage that is repeated has a new token, so no other row has this key
    lake.record(METRICS, [row])


def _new(rows: list[dict[str, Any]], present: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose landing and drop are not recorded yet."""
    recorded_keys = {(row["landing"], row["seq_no"]) for row in present}
    return [row for row in rows if (row["landing"], row["seq_no"]) not in recorded_keys]


def _metrics(lake: Lake, source: Source, run_id: str, landings: list[int]) -> list[dict[str, Any]]:
    """The rows of `quality.metrics` for these landings. `run_id` names the run if the ledger does not."""
    changes, counts_of_entities = _changes(lake, source, landings)
    rows: dict[Key, dict[str, Any]] = {}
    counts_by_path: dict[str, tuple[int, int]] = {}
    ledger = lake.records(FILES, pc.field("source") == source.name)
    for entry in sorted(ledger, key=lambda entry: entry["landing"]):
        path = entry["path"]
        counts = {name: entry[name] or 0 for name in COUNTS}
        before = counts_by_path.get(path, (0, 0))
        now = (0, 0) if path is None or entry["version"] == RETRACTED else (1, entry["bytes"] or 0)
        if path is not None:
            counts_by_path[path] = now
        if entry["landing"] not in landings:
            continue
        key = entry["landing"], entry["seq_no"]
        row = rows.setdefault(key, {**_row_without_counts(source, *key), "run_id": entry["run_id"]})
        row["files"] += now[0] - before[0]
        row["bytes"] += now[1] - before[1]
        for name in ("rows", "rejects", "duplicates"):
            row[name] += counts[name] - counts[f"{name}_back"]
    for key, change in changes.items():
        row = rows.setdefault(key, {**_row_without_counts(source, *key), "run_id": run_id})
        row |= {"late_rows": change.late_rows, "late_by_max": change.late_by_max, "nulls": json.dumps(change.nulls)}
    for (_, seq_no), row in rows.items():
        lo_us, hi_us = source.drops.interval(seq_no)
        by_entity = counts_of_entities.busiest((row["landing"], seq_no))
        rates = {entity: hourly(count, hi_us - lo_us) for entity, count in by_entity.items()}
        row |= {"rate": hourly(row["rows"], hi_us - lo_us), "busiest": json.dumps(rates, ensure_ascii=False)}
    return list(rows.values())


def _row_without_counts(source: Source, landing: int, seq_no: int) -> dict[str, Any]:
    counts = dict.fromkeys(("files", "bytes", "rows", "rejects", "duplicates", "late_rows", "late_by_max"), 0)
    return {**drop_bounds(source, seq_no), **counts, "landing": landing, "nulls": "{}"}


def _changes(lake: Lake, source: Source, landings: list[int]) -> tuple[dict[Key, DropChange], EntityCounts]:
    """The changes of drops that are counted in the chunks of these landings, by landing and drop, and the rows of their
    entities."""
    changes: dict[Key, DropChange] = {}
    counts_of_entities = EntityCounts()
    names = ["seq_no", "landing", "diff", "rows", "entity", "event_times", *(f"c_{c}" for c in source.columns)]
    stored = lake.stored(chunks(source), names, of_landings(landings))
    for table in stored.tables():
        for key, change in drop_changes(table, list(source.columns), source.drops).items():
            changes.setdefault(key, DropChange()).add(change)
        counts_of_entities.add(table)
    return changes, counts_of_entities
