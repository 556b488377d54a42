"""The gate at the end of a stage: measures of the stage's rows are judged by a suite, and the verdicts are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.gates import GateFailed, run_gate
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake

if TYPE_CHECKING:
    from spark_jobs.gates.measures import Measurement


@dataclass(frozen=True, slots=True)
class JudgedStage:
    """A stage of a run, as far as its judges need it.

    Attributes:
        publication: the publication in force when the stage began.
        lease: keeps the run's verdicts until its publication.
        interval_us: the run's interval `[lo, hi)`, in microseconds.
        seal_us: the seal with which the stage began, in microseconds.
        overrides: checks that may fail without stopping the run, each with a person's reason.
        asked_by: the person who asked for the run, and so gave these reasons.
        report: lines for the stage's summary; the judges add theirs.
    """

    settings: Settings
    source: Source
    lake: Lake
    publication: Publication
    lease: Lease
    run_id: str
    interval_us: tuple[int, int]
    seal_us: int
    overrides: Mapping[str, str]
    asked_by: str
    report: dict[str, Any]

    @property
    def token(self) -> int:
        """The token under which the stage writes."""
        return self.lease.fence.token

    @property
    def run_columns(self) -> dict[str, Any]:
        """The columns that name the run in the tables of `quality`."""
        lo_us, hi_us = self.interval_us
        run = {"source": self.source.name, "token": self.token, "run_id": self.run_id}
        return {**run, "drop_lo": instant(lo_us), "drop_hi": instant(hi_us)}

    def add_not_passed(self, lines: Sequence[str]) -> None:
        """Add lines on checks that did not pass to the report."""
        if lines:
            self.report["not_passed"] = [*self.report.get("not_passed", []), *lines]


def pass_gate(stage: JudgedStage, gate: str, measured: Measurement, *, again: bool = False) -> None:
    """Judge `measured` by the suite of `gate`. The verdicts are written to `quality.results` with the publication.

    `again`: the gate was judged in an earlier stage of the run; if it passes now, the earlier verdicts are kept.

    Raises:
        GateFailed: an expectation does not hold; the run's verdicts are then written to the table at once.
    """
    start_s = time.monotonic()
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
    stage.report["gate"] = f"{gate}: {len(verdicts)} expectations hold"
    spent = measured.seconds + time.monotonic() - start_s
    stage.report["gate_seconds"] = round(stage.report.get("gate_seconds", 0.0) + spent, 3)


def keep_verdicts(
    stage: JudgedStage, gate: str, verdicts: Iterable[dict[str, Any]], kinds: Collection[str] = ("invariant",)
) -> None:
    """Keep verdicts of the gate for the publication, in place of its earlier verdicts of these kinds."""
    others = [v for v in stage.lease.verdicts if v["gate"] != gate or v.get("kind") not in kinds]
    # the lease's file is JSON, so samples are kept as text
    stage.lease.verdicts = [*others, *({**v, "sample": as_json(v["sample"])} for v in verdicts)]


def as_json(sample: Sequence[Mapping[str, Any]]) -> str | None:
    """The rows as a JSON list, with values of other types than JSON's as text; None without rows."""
    return json.dumps([dict(row) for row in sample], default=str, ensure_ascii=False) if sample else None


def write_verdicts(stage: JudgedStage) -> None:
    """Write the run's verdicts to `quality.results`, and remove them from the lease."""
    if not stage.lease.verdicts:
        return
    common = {**stage.run_columns, "recorded_at": datetime.now(UTC), "known_from": instant(max(stage.seal_us, 0))}
    stage.lake.record(RESULTS, [{**common, **verdict} for verdict in stage.lease.verdicts])
    stage.lease.verdicts = []
