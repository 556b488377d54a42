"""Warnings about rows that a run's workers flushed to their disks for lack of memory; `quality.results` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from spark_jobs.gates.verdicts import Verdict
from spark_jobs.judging.gate import Judgement, keep_verdicts
from spark_jobs.model import pluralize
from spark_jobs.restatement.pressure import Pressure
from spark_jobs.storage.coordination.leases import Lease

KIND = "memory"
_LARGER = "nothing is wrong; if workers have more memory, set `memory: {max_bytes: …}` in the source file to be faster"
_MIB = 1 << 20


def report_pressures(lease: Lease, gate: str, pressures: Mapping[str, Pressure]) -> Judgement:
    """Warn of the work whose rows did not fit into its workers' memory. `pressures` is by the name of the work's table;
    `gate` is the gate of the stage."""
    verdicts = [_verdict(gate, name, pressure) for name, pressure in pressures.items() if pressure.is_worth_a_warning]
    keep_verdicts(lease, gate, [asdict(verdict) for verdict in verdicts], (KIND,))
    return Judgement(not_passed=tuple(f"{verdict.name}: {verdict.observed}" for verdict in verdicts))


def _verdict(gate: str, table: str, pressure: Pressure) -> Verdict:
    runs = f"{pluralize(pressure.flushed_runs, 'sorted run')} of {pressure.flushed_bytes / _MIB:,.1f} MiB"
    flushed = f"{runs} waited on the disk" if pressure.flushed_runs else "the rows of one open window exceed it"
    share = f"{pressure.peak_percent:,} % of {pressure.max_bytes / _MIB:,.0f} MiB"
    return Verdict(
        gate,
        f"{table} memory",
        "rows fit into the memory of the workers that sort them",
        f"{pressure.level} pressure ({share} asked for); {flushed}",
        "warned",
        expected="none flushed",
        kind=KIND,
        relation=table,
        severity="warning",
        treatment="warn",
        failing=pressure.flushed_runs,
        on_failure=_LARGER,
    )
