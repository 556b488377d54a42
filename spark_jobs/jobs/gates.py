"""The gate at the end of a stage: judge the measures of the stage's rows by a suite, and keep the verdicts."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spark_jobs.gates import GateFailed, run_gate
from spark_jobs.jobs.context import Stage
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.times import instant

if TYPE_CHECKING:
    from spark_jobs.gates.measures import Measurement


def pass_gate(stage: Stage, gate: str, measured: Measurement, *, again: bool = False) -> None:
    """Judge `measured` by the suite of `gate`. The verdicts are written to `quality.results` with the publication.

    `again`: the gate was judged in an earlier stage of the run; if it passes now, the earlier verdicts are kept.

    Raises:
        GateFailed: an expectation does not hold; the run's verdicts are then written to the table at once.
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
            # a lake without Spark is for trying and for tests, which nobody keeps reports of
            plainly=stage.lake.spark is None,
        )
    except GateFailed as failure:
        keep_verdicts(stage, gate, failure.failed)
        write_verdicts(stage)
        raise
    if not again:
        keep_verdicts(stage, gate, [asdict(v) for v in verdicts])
    stage.summary["gate"] = f"{gate}: {len(verdicts)} expectations hold"
    spent = measured.seconds + time.monotonic() - begun
    stage.summary["gate_seconds"] = round(stage.summary.get("gate_seconds", 0.0) + spent, 3)


def keep_verdicts(
    stage: Stage, gate: str, verdicts: Iterable[dict[str, Any]], kinds: Collection[str] = ("invariant",)
) -> None:
    """Keep verdicts of the gate for the publication, in place of its earlier verdicts of these kinds."""
    others = [v for v in stage.lease.verdicts if v["gate"] != gate or v.get("kind") not in kinds]
    # the lease's file is JSON, so samples are kept as text
    stage.lease.verdicts = [*others, *({**v, "sample": as_json(v["sample"])} for v in verdicts)]


def as_json(sample: Sequence[Mapping[str, Any]]) -> str | None:
    """The rows as a JSON list, with values of other types than JSON's as text; None without rows."""
    return json.dumps([dict(row) for row in sample], default=str, ensure_ascii=False) if sample else None


def write_verdicts(stage: Stage) -> None:
    """Write the run's verdicts to `quality.results`, and remove them from the lease."""
    if not stage.lease.verdicts:
        return
    common = {**of_run(stage), "recorded_at": datetime.now(UTC), "known_from": instant(max(stage.frontiers.seal_us, 0))}
    stage.lake.record(RESULTS, [{**common, **verdict} for verdict in stage.lease.verdicts])
    stage.lease.verdicts = []


def of_run(stage: Stage) -> dict[str, Any]:
    """The columns that name a run in the tables of `quality`."""
    run = {"source": stage.source.name, "token": stage.fence.token, "run_id": stage.run_id}
    return {**run, "drop_lo": instant(stage.lo_us), "drop_hi": instant(stage.hi_us)}
