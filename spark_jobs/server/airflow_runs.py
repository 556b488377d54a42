"""The runs of a source that Airflow has under way, asked of its REST API by a run that Airflow did not start."""

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
"""States of a DAG run that has not ended."""


class AirflowRuns:
    """The runs of one DAG. Where no Airflow runs here, none is on; one that does not answer now, since it is too busy
    or on its way up again, is waited for.

    `drops` are its source's; without them, for what goes before every drop, no run is earlier.
    """

    def __init__(self, settings: Settings, dag: str, drops: Schedule | None) -> None:
        self._settings = settings
        self._dag = dag
        self._drops = drops
        self._remark = ""

    def is_on(self, run_id: str) -> bool:
        """Whether the run has not ended; a run that Airflow does not know any more has."""
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
        """That Airflow did not answer, or that the run's DAG is paused."""
        return self._remark

    def earlier_run(self, lo_us: int) -> str | None:
        """The name of a run that has not ended and whose drops begin before `lo_us`. Those of a paused DAG do not
        count, since they do not get on."""
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
        """Whether the DAG's runs do not get on: it is paused, or Airflow does not know it."""
        dag = self._ask(lambda api: api.get(f"dags/{self._dag}"))
        return dag is None or bool(dag["is_paused"])

    def _ask(self, question: Callable[[AirflowApi], Any]) -> Any:
        """What the API says; None where there is no Airflow, or it does not know of such a thing."""
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
    """Airflow is there, and busy or on its way up again."""


def drops_of_run(run: dict[str, Any], drops: Schedule) -> range:
    """The drops of a run as its tasks read them; none where it names none, since they refuse it."""
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
        return drops.spanned(*taken.interval(drops))
    except ParameterError:
        return range(0)
