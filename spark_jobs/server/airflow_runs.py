"""The runs of a source that Airflow has under way, asked of its REST API by a run that Airflow did not start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_parts import password_file

UNDER_WAY = ("queued", "running")
"""States of a DAG run that has not ended."""


class AirflowRuns:
    """The runs of one DAG. Where Airflow was never started, or does not answer, none is on."""

    def __init__(self, settings: Settings, dag: str) -> None:
        self._settings = settings
        self._dag = dag

    def is_on(self, run_id: str) -> bool:
        """Whether the run has not ended; a run that Airflow does not know any more has."""
        with self._api() as api:
            return api is not None and api.get(f"dags/{self._dag}/dagRuns/{run_id}")["state"] in UNDER_WAY
        return False

    def earlier_run(self, lo_us: int) -> str | None:
        """The name of a run that has not ended and whose drops begin before `lo_us`. Those of a paused DAG do not
        count, since they do not get on."""
        with self._api() as api:
            if api is None or api.get(f"dags/{self._dag}")["is_paused"]:
                return None
            runs = api.get(f"dags/{self._dag}/dagRuns", state=UNDER_WAY, limit=1000)["dag_runs"]
            for run in runs:
                first = _first(run)
                if first is not None and first.timestamp() * 1_000_000 < lo_us:
                    return f"run {run['dag_run_id']} of {first:%Y-%m-%d %H:%M} in Airflow, whose drops are earlier"
        return None

    @contextlib.contextmanager
    def _api(self) -> Iterator[AirflowApi | None]:
        """The API; None where there is none. What it does not know, and its silence, end the block."""
        if not password_file(self._settings).exists():
            yield None
            return
        with AirflowApi(self._settings) as api:
            try:
                yield api
            except AirflowRefused as refusal:
                if refusal.facts["status"] not in (None, 404):
                    raise


def _first(run: dict[str, Any]) -> datetime | None:
    """The start of the run's first drop, as its tasks will read it."""
    text = (run["conf"] or {}).get("from") or run["data_interval_start"]
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
