"""The comparison of a drop with the drops before it: its volume, and its shares of rejected, late and missing values.

The bounds are wide: over the year of both samples none is broken (decision 0121), so a warning deserves attention.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.gates.project import Batch, validate
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Verdict

WINDOW, LEAST_HISTORY = 28, 7
"""The number of earlier drops that a drop is compared with, and the least number for a comparison."""
VOLUME = 2.0
"""A drop may have this many times fewer rows than the smallest earlier drop, or more than the greatest."""
SHARE, ALLOWANCE = 3.0, 0.1
"""A share may be the greatest earlier share times the first number, plus the second."""
_SUMS = ("files", "bytes", "rows", "rejects", "duplicates", "late_rows")


@dataclass(frozen=True, slots=True)
class _Drift:
    """An expectation about a measure of drops: `lower` must not exceed `upper`. `least`, `greatest` name the bounds."""

    name: str
    measure: str
    words: str
    lower: str
    upper: str


_DRIFTS = (
    _Drift("volume_low", "rows", f"A drop has at least 1/{VOLUME:g} of the rows of the least.", "least", "value"),
    _Drift(
        "volume_high", "rows", f"A drop has at most {VOLUME:g} times the rows of the greatest.", "value", "greatest"
    ),
    _Drift("rejects_high", "rejects", "The share of rejected records has not jumped.", "value", "greatest"),
    _Drift("lateness_high", "late", "The share of late rows has not jumped.", "value", "greatest"),
    _Drift("nulls_high", "nulls", "No column's share of missing values has jumped.", "value", "greatest"),
)


def totals(metrics: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Number of a drop -> its metrics: the sum over its rows of `quality.metrics` (of `late_by_max`: the maximum).

    Rows about the size of the trace are left out: they are of no landing."""
    totals: dict[int, dict[str, Any]] = {}
    for row in metrics:
        if row.get("trace_batches") is not None:
            continue
        of_drop = totals.setdefault(row["seq_no"], {**dict.fromkeys(_SUMS, 0), "late_by_max": 0, "nulls": {}})
        for name in _SUMS:
            of_drop[name] += row[name]
        of_drop["late_by_max"] = max(of_drop["late_by_max"], row["late_by_max"])
        for column, count in json.loads(row["nulls"] or "{}").items():
            of_drop["nulls"][column] = of_drop["nulls"].get(column, 0) + count
    return totals


def compare_with_history(landed_by_drop: Mapping[int, Mapping[str, Any]], drops: Sequence[int]) -> list[dict[str, Any]]:
    """The measures of these drops, with bounds derived from the drops before them.

    Each row has `drop`, `measure`, `column`, `value`, `least` and `greatest` (of the drops before), and the bounds
    `lower` and `upper`. A drop with fewer than `LEAST_HISTORY` drops before it has no rows."""
    rows = []
    for drop in drops:
        before = [landed_by_drop[n] for n in sorted(landed_by_drop) if n < drop][-WINDOW:]
        if drop not in landed_by_drop or len(before) < LEAST_HISTORY:
            continue
        for measure, column in _measures(landed_by_drop[drop]):
            value, theirs = (
                _value(landed_by_drop[drop], measure, column),
                [_value(each, measure, column) for each in before],
            )
            least, greatest = min(theirs), max(theirs)
            rows_bounds = (least / VOLUME, greatest * VOLUME)
            lower, upper = rows_bounds if measure == "rows" else (0.0, greatest * SHARE + ALLOWANCE)
            facts = {"drop": drop, "measure": measure, "column": column, "value": value}
            rows.append({**facts, "least": least, "greatest": greatest, "lower": lower, "upper": upper})
    return rows


def _measures(drop: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [("rows", None), ("rejects", None), ("late", None), *(("nulls", column) for column in drop["nulls"])]


def _value(drop: Mapping[str, Any], measure: str, column: str | None) -> float:
    rows, records = max(drop["rows"], 1), max(drop["rows"] + drop["rejects"], 1)
    if measure == "nulls":
        return float(drop["nulls"].get(column, 0) / rows)
    return {"rows": float(drop["rows"]), "rejects": drop["rejects"] / records, "late": drop["late_rows"] / rows}[
        measure
    ]


def judge_drift(
    settings: Settings, rows: Sequence[Mapping[str, Any]], *, source: str, run_id: str, labels: Mapping[int, str]
) -> list[Verdict]:
    """A verdict for each kind of drift, judged by Great Expectations from the rows of `compare_with_history`.

    Empty without rows. `labels` maps the numbers of drops to their labels."""
    if not rows:
        return []
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    results = validate(settings, Batch("metrics", source, frame=frame, result_format="SUMMARY"), _suite, run_id=run_id)
    passed = {r.expectation_config.meta["name"]: bool(r.success) for r in results if r.expectation_config}
    return [_verdict(drift, rows, labels, holds=passed[drift.name]) for drift in _DRIFTS]


def _suite() -> Any:
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe
    from great_expectations.expectations.metadata_types import FailureSeverity
    from great_expectations.expectations.row_conditions import Column

    columns = {"least": "lower", "value": "value", "greatest": "upper"}
    return ExpectationSuite(
        name="metrics",
        expectations=[
            gxe.ExpectColumnPairValuesAToBeGreaterThanB(
                column_A=columns[drift.upper],
                column_B=columns[drift.lower],
                or_equal=True,
                row_condition=Column("measure") == drift.measure,
                description=drift.words,
                severity=FailureSeverity.WARNING,
                meta={"name": drift.name},
            )
            for drift in _DRIFTS
        ],
    )


def _verdict(drift: _Drift, rows: Sequence[Mapping[str, Any]], labels: Mapping[int, str], *, holds: bool) -> Verdict:
    of_measure = [row for row in rows if row["measure"] == drift.measure]
    low = drift.lower == "least"
    broken = [r for r in of_measure if (r["value"] < r["lower"] if low else r["value"] > r["upper"])]
    sample = [{**row, "drop": labels.get(row["drop"], row["drop"])} for row in broken[:MAX_EXAMPLES]]
    first = sample[0] if sample else None
    of = f" of {first['column']}" if first and first["column"] else ""
    return Verdict(
        "metrics",
        drift.name,
        drift.words,
        f"{first['value']:.6g}{of} in {first['drop']}" if first else f"{len(of_measure)} measures within their bounds",
        "passed" if holds else "warned",
        expected=""
        if first is None
        else f"{'at least' if low else 'at most'} {first['lower' if low else 'upper']:.6g}",
        kind="drift",
        relation="quality.metrics",
        severity="warning",
        treatment="warn",
        failing=len(broken),
        sample=tuple(sample),
        because=None
        if first is None
        else f"the {WINDOW} drops before have from {first['least']:.6g} to {first['greatest']:.6g}",
        on_failure=None
        if holds
        else "The owner of the source looks at the drop's files: if they are right, there is nothing to do.",
    )
