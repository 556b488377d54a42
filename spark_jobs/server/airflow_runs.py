"""The runs of a source that are under way in Airflow, as a run outside Airflow learns them from its REST API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_parts import password_file
from spark_jobs.server.status import runs_airflow
from spark_jobs.sources import Schedule
from spark_jobs.sources.dag_runs import MANUAL, DagRun
from spark_jobs.sources.quantities import instant_at, parse_instant

UNDER_WAY = ("queued", "running")
"""The states of a DAG run that has not ended."""


class AirflowRuns:
    """The runs of one DAG. Without an Airflow under this home, no run is under way. An Airflow that does not answer,
    since it is busy or restarting, is waited for: its runs count as under way.

    `drops` is the schedule of the DAG's source. It is None for work that comes before every drop; then no run is
    earlier.
    """

    def __init__(self, settings: Settings, dag: str, drops: Schedule | None) -> None:
        self._settings = settings
        self._dag = dag
        self._drops = drops
        self._remark = ""

    def is_on(self, run_id: str) -> bool:
        """True if the run has not ended, as far as is known. A run that Airflow no longer lists has ended."""
        self._remark = ""
        try:
            run = self._ask(lambda api: api.get(f"dags/{self._dag}/dagRuns/{run_id}"))
            if run is None or run["state"] not in UNDER_WAY:
                return False
            if self._is_paused():
                paused = f"its DAG {self._dag} is paused, so no further stage of it begins"
                self._remark = f"{paused}: unpause it, or mark the run failed"
        except _NoAnswerYet:
            self._remark = "as far as is known: Airflow does not answer now"
        return True

    def remark(self) -> str:
        """The remark on the last `is_on`: Airflow did not answer, or the run's DAG is paused; else empty."""
        return self._remark

    def earlier_run(self, lo_us: int) -> str | None:
        """A description of a run that has not ended and whose drops begin before `lo_us`, in microseconds; else None.

        Runs of a paused DAG do not count, since they make no progress. If Airflow does not answer, the description
        says so."""
        if self._drops is None:
            return None
        try:
            if self._is_paused():
                return None
            runs = self._ask(lambda api: list(api.runs(self._dag, state=UNDER_WAY)))
        except _NoAnswerYet:
            return "Airflow, which does not say now which runs are on their way"
        for run in runs or ():
            taken = drops_of_run(run, self._drops)
            if taken and (first_us := self._drops.start(taken.start)) < lo_us:
                first = instant_at(first_us)
                return f"run {run['dag_run_id']} of {first:%Y-%m-%d %H:%M} in Airflow, whose drops are earlier"
        return None

    def _is_paused(self) -> bool:
        """True if the DAG's runs make no progress: the DAG is paused, or Airflow does not have it."""
        dag = self._ask(lambda api: api.get(f"dags/{self._dag}"))
        return dag is None or bool(dag["is_paused"])

    def _ask(self, question: Callable[[AirflowApi], Any]) -> Any:
        """The API's answer to `question`; None if there is no Airflow, or Airflow has no such DAG or run.

        Raises:
            _NoAnswerYet: Airflow runs, and does not answer or reports an error of its own.
        """
        if not password_file(self._settings).exists():
            return None
        try:
            with AirflowApi(self._settings) as api:
                return question(api)
        except AirflowRefused as refusal:
            status, refused = refusal.facts["status"], isinstance(refusal.__cause__, httpx.ConnectError)
            if status == httpx.codes.NOT_FOUND or (refused and not runs_airflow(self._settings)):
                return None
            if status is None or status >= httpx.codes.INTERNAL_SERVER_ERROR:
                raise _NoAnswerYet from refusal
            raise


class _NoAnswerYet(Exception):
    """Airflow runs, but is busy or restarting."""


def drops_of_run(run: dict[str, Any], drops: Schedule) -> range:
    """The drops of a run, as its tasks compute them; empty if the run names none, since its tasks refuse that."""
    conf = run["conf"] or {}
    lo, hi, date = run["data_interval_start"], run["data_interval_end"], run["logical_date"]
    taken = DagRun(
        first=conf.get("from"),
        last=conf.get("to"),
        after_us=parse_instant(run["run_after"]),
        data_us=None if lo is None else (parse_instant(lo), parse_instant(hi)),
        date_us=parse_instant(date) if run["run_type"] == MANUAL and date is not None else None,
    )
    try:
        return drops.drops_spanned(*taken.interval(drops))
    except ParameterError:
        return range(0)
