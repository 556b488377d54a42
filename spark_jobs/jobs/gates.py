"""The gate at the end of a stage: measure what the stage left, hold it against the suite, keep the verdicts."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from spark_jobs.gates import GateFailed, run_gate
from spark_jobs.jobs.context import Stage
from spark_jobs.storage.tables import VERDICTS
from spark_jobs.storage.times import instant

if TYPE_CHECKING:
    from spark_jobs.gates.measures import Measurement


def pass_gate(stage: Stage, gate: str, measured: Measurement, *, again: bool = False) -> None:
    """Hold `measured` against the suite of `gate`. Its verdicts reach `quality.verdicts` with the publication.

    `again`: the gate has spoken in an earlier stage of the run; if it holds, those verdicts stay.

    Raises:
        GateFailed: an expectation does not hold; the verdicts of this run are in the table then, too.
    """
    begun = time.monotonic()
    try:
        verdicts = run_gate(
            gate,
            measured.values,
            settings=stage.settings,
            source=stage.source.name,
            run_id=stage.run_id,
            find_examples=measured.examples,
        )
    except GateFailed as failure:
        failed = {verdict["measure"]: verdict for verdict in failure.failed}
        stage.lease.verdicts = [v for v in stage.lease.verdicts if v["gate"] != gate] + list(failed.values())
        write_verdicts(stage)
        raise
    if not again:
        stage.lease.verdicts = [v for v in stage.lease.verdicts if v["gate"] != gate] + [asdict(v) for v in verdicts]
    stage.summary["gate"] = f"{gate}: {len(verdicts)} expectations hold"
    spent = measured.seconds + time.monotonic() - begun
    stage.summary["gate_seconds"] = round(stage.summary.get("gate_seconds", 0.0) + spent, 3)


def write_verdicts(stage: Stage) -> None:
    """Put the run's verdicts into `quality.verdicts`, and forget them here."""
    if not stage.lease.verdicts:
        return
    common = {"source": stage.source.name, "token": stage.fence.token, "run_id": stage.run_id}
    known_from = instant(max(stage.frontiers.seal_us, 0))
    rows = [{**common, "known_from": known_from, **verdict} for verdict in stage.lease.verdicts]
    stage.lake.record(VERDICTS, rows)
    stage.lease.verdicts = []
