"""A whole run of a source, stage by stage in one session, for `tidemark run`; Airflow's tasks run the same stages."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.jobs.drops import follows_on
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.model import FIRST, STAGES
from spark_jobs.publish import marts
from spark_jobs.session import open_session
from spark_jobs.sources import find_source
from spark_jobs.storage.coordination.turns import Driver, NoDriver, Turn, hold_turn
from spark_jobs.storage.descriptions.times import micros


@dataclass
class RunReport:
    """The report of a run: the summaries of its stages in order, and the seconds by stage and for connecting."""

    source: str
    run_id: str
    stages: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def commits(self) -> int:
        """The number of Delta commits of all stages."""
        return sum(stage["commits"] for stage in self.stages)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the duration of the block to the seconds of `what`."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = round(self.seconds.get(what, 0.0) + time.monotonic() - start_s, 3)


def new_run_id(prefix: str) -> str:
    """A run id that no other run has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def run_pipeline(
    settings: Settings,
    source: str,
    lo: datetime,
    hi: datetime,
    *,
    run_id: str,
    request: Request = ALL,
    on_stage: Callable[[str], None] = lambda _: None,
    driver: Driver | None = None,
    wait_s: float | None = None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Run all stages of `source` for the interval `[lo, hi)`; `on_stage` is called with each name before it starts.

    Within a stage it is called with the name and a step, such as `publish: marts`.

    The run waits for its turn on the source, at most `wait_s` seconds (None: for as long as it takes), and calls
    `on_wait` with the run before it: see `storage.coordination.turns`. `driver` drives runs whose stages are processes
    of their own; None: there are no such runs.

    An interrupt (Ctrl-C) cancels the Spark work of the current stage and is then raised.
    """
    report = RunReport(source, run_id)
    checked = find_source(settings.sources, source)
    goes_first = follows_on(settings, checked, checked.drops.drops_spanned(micros(lo), micros(hi)))
    turn = Turn(run_id, micros(lo), _label_of_run(lo, hi), first=goes_first)
    waiting = hold_turn(
        settings.home / "leases", source, turn, driver=driver or NoDriver(), wait_s=wait_s, on_wait=on_wait
    )
    with waiting:
        with report.timed("connect"):
            spark = open_session(settings, f"{source}:{run_id}")
        try:
            for name in STAGES:
                on_stage(name)
                with report.timed(name):
                    summary = run_stage(
                        name,
                        source=source,
                        lo=lo,
                        hi=hi,
                        run_id=run_id,
                        settings=settings,
                        spark=spark,
                        request=request,
                        report_step=partial(_report_within, on_stage, name),
                    )
                report.stages.append(summary)
                if name == FIRST and summary["files"]:
                    # marts will follow, and dbt takes a second to import
                    threading.Thread(target=marts.preload, daemon=True).start()
        finally:
            spark.stop()
    return report


def _report_within(on_stage: Callable[[str], None], stage: str, step: str, n_done: int = 0, total: int = 0) -> None:
    """The `ReportStep` of a stage, for a caller who knows stages alone."""
    on_stage(f"{stage}: {step}")


def _label_of_run(lo: datetime, hi: datetime) -> str:
    return f"{lo:%Y-%m-%d %H:%M} to {hi:%Y-%m-%d %H:%M}"
