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
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake

if TYPE_CHECKING:
    from spark_jobs.gates.measures import Measurement


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run as its judges know it: its name in the tables of `quality`, and the keeper of its verdicts.

    Attributes:
        settings: the folders of reports and of a team's own suites.
        lease: keeps the run's verdicts until its publication.
        interval_us: the run's interval `[lo, hi)`, in microseconds.
        overrides: checks that may fail without stopping the run, each with a person's reason.
        asked_by: the person who asked for the run, and so gave these reasons.
        plainly: gates are judged without Great Expectations and its reports.
    """

    settings: Settings
    source: Source
    run_id: str
    lease: Lease
    interval_us: tuple[int, int]
    overrides: Mapping[str, str]
    asked_by: str
    plainly: bool

    @property
    def token(self) -> int:
        """The token under which the run's present stage writes."""
        return self.lease.fence.token

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that name the run in the tables of `quality`."""
        lo_us, hi_us = self.interval_us
        run = {"source": self.source.name, "token": self.token, "run_id": self.run_id}
        return {**run, "drop_lo": instant(lo_us), "drop_hi": instant(hi_us)}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of judging rows with which a run may go on, in words for people.

    `gate`: the gate, with the number of its expectations; empty if none was judged. `gate_seconds`: time that it took.
    `checks`: how many checks passed, warned, and so on. `not_passed`: a line for each check that did not pass.
    """

    gate: str = ""
    gate_seconds: float = 0.0
    checks: str = ""
    not_passed: tuple[str, ...] = ()

    def plus(self, later: Judgement) -> Judgement:
        """Both judgements in one; `later` decides about gate and checks if it has some."""
        return Judgement(
            later.gate or self.gate,
            self.gate_seconds + later.gate_seconds,
            later.checks or self.checks,
            self.not_passed + later.not_passed,
        )

    @property
    def report(self) -> dict[str, Any]:
        """The lines of the stage's report."""
        gate = {"gate": self.gate, "gate_seconds": round(self.gate_seconds, 3)} if self.gate else {}
        checks = {"checks": self.checks} if self.checks else {}
        return {**gate, **checks, **({"not_passed": [*self.not_passed]} if self.not_passed else {})}


def pass_gate(run: JudgedRun, gate: str, measured: Measurement, *, again: bool = False) -> Judgement:
    """Judge `measured` by the suite of `gate`, and keep the verdicts.

    `again`: the gate was judged in an earlier stage of the run; if it passes now, the earlier verdicts are kept.

    Raises:
        GateFailed: an expectation does not hold.
    """
    start_s = time.monotonic()
    try:
        verdicts = run_gate(
            gate,
            measured.values,
            settings=run.settings,
            source=run.source.name,
            run_id=run.run_id,
            find_examples=measured.examples,
            plainly=run.plainly,
        )
    except GateFailed as failure:
        keep_verdicts(run.lease, gate, failure.failed)
        raise
    if not again:
        keep_verdicts(run.lease, gate, [asdict(v) for v in verdicts])
    return Judgement(f"{gate}: {len(verdicts)} expectations hold", measured.seconds + time.monotonic() - start_s)


def keep_verdicts(
    lease: Lease, gate: str, verdicts: Iterable[Mapping[str, Any]], kinds: Collection[str] = ("invariant",)
) -> None:
    """Keep verdicts of the gate for the run's publication, in place of its earlier verdicts of these kinds."""
    others = [v for v in lease.verdicts if v["gate"] != gate or v.get("kind") not in kinds]
    # the lease's file is JSON, so samples are kept as text
    lease.verdicts = [*others, *({**v, "sample": as_json(v["sample"])} for v in verdicts)]


def as_json(sample: Sequence[Mapping[str, Any]]) -> str | None:
    """The rows as a JSON list, with values of other types than JSON's as text; None without rows."""
    return json.dumps([dict(row) for row in sample], default=str, ensure_ascii=False) if sample else None


def write_verdicts(lake: Lake, run: JudgedRun, seal_us: int) -> None:
    """Write the run's verdicts to `quality.results`, and remove them from its lease.

    `seal_us`: the seal with which the stage began, from which on the verdicts are known.
    """
    lease = run.lease
    if not lease.verdicts:
        return
    common = {**run.columns, "recorded_at": datetime.now(UTC), "known_from": instant(max(seal_us, 0))}
    lake.record(RESULTS, [{**common, **verdict} for verdict in lease.verdicts])
    lease.verdicts = []
