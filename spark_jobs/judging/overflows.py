"""Warnings about results of a run that do not fit into their types; `quality.results` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spark_jobs.gates.verdicts import MAX_EXAMPLES, Verdict
from spark_jobs.judging.gate import Judgement, keep_verdicts
from spark_jobs.restatement.overflows import Overflows
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease

KIND = "overflow"
_WIDER = (
    "retract the rows that are wrong, or declare the column as a decimal, whose sum has ten more digits, or as a float"
)


def report_windows(lease: Lease, overflows: Mapping[str, Overflows]) -> Judgement:
    """Warn of this run's windows with a result that is null because it does not fit; `overflows` is by definition."""
    verdicts = [
        _verdict("silver", f"silver.{name}", f"{each.count} results of windows", each.count, each.listed)
        for name, each in overflows.items()
        if each.count
    ]
    return _keep(lease, "silver", verdicts)


def report_states(lease: Lease, source: Source, count: int, sample: Sequence[Mapping[str, Any]]) -> Judgement:
    """Warn of this run's states with a sum that is null because it does not fit: their number and a sample."""
    table = f"gold.{source.name}"
    return _keep(lease, "gold", [_verdict("gold", table, f"{count} states", count, sample)] if count else [])


def _verdict(gate: str, table: str, observed: str, failing: int, sample: Sequence[Mapping[str, Any]]) -> Verdict:
    return Verdict(
        gate,
        f"{table} fits",
        "every sum fits into the type of its column",
        f"{observed} that do not fit, and are null",
        "warned",
        expected="none",
        kind=KIND,
        relation=table,
        severity="warning",
        treatment="warn",
        failing=failing,
        sample=tuple(sample[:MAX_EXAMPLES]),
        on_failure=_WIDER,
    )


def _keep(lease: Lease, gate: str, verdicts: Sequence[Verdict]) -> Judgement:
    keep_verdicts(lease, gate, [asdict(verdict) for verdict in verdicts], (KIND,))
    return Judgement(not_passed=tuple(f"{verdict.name}: {verdict.observed}" for verdict in verdicts))
