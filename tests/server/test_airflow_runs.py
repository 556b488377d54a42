"""What a run beside Airflow learns of Airflow's runs: from what the API answers, and from its silence."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from spark_jobs.config import Settings
from spark_jobs.server.airflow_api import AirflowApi
from spark_jobs.server.airflow_parts import admin_password
from spark_jobs.server.airflow_runs import AirflowRuns
from spark_jobs.sources import Schedule

DAY_US = 86_400_000_000
START_US = 1_704_067_200_000_000
DAYS = Schedule(START_US, DAY_US)
"""2024-01-01."""


def run(run_id: str, lo: str | None, **conf: str) -> dict[str, Any]:
    interval = {"data_interval_start": lo, "data_interval_end": lo}
    return {"dag_run_id": run_id, "state": "running", **interval, "conf": conf or None}


@pytest.fixture
def answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Path to what Airflow answers: JSON, a status, or an error of the connection. It knows nothing else."""
    admin_password(settings)
    told: dict[str, Any] = {"/auth/token": {"access_token": "t"}}

    def answer(self: AirflowApi, method: str, path: str, **_: Any) -> httpx.Response:
        found = told.get(path.removeprefix("/api/v2/"), 404)
        request = httpx.Request(method, f"http://airflow{path}")
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return httpx.Response(found, request=request)
        return httpx.Response(200, json=found, request=request)

    monkeypatch.setattr(httpx.Client, "request", answer)
    return told


def test_without_an_airflow_nothing_is_on(settings: Settings) -> None:
    assert not AirflowRuns(settings, "meters", DAYS).is_on("r")
    assert AirflowRuns(settings, "meters", DAYS).earlier_run(START_US) is None


@pytest.mark.parametrize(
    ("answer", "is_on"),
    [
        ({"state": "running"}, True),
        ({"state": "queued"}, True),
        ({"state": "failed"}, False),
        (404, False),
        (httpx.ConnectError("refused"), False),
        (httpx.ReadTimeout("slow"), True),
        (503, True),
    ],
)
def test_a_run_is_on_until_airflow_says_otherwise_or_is_down(
    settings: Settings, answers: dict[str, Any], answer: Any, is_on: bool
) -> None:
    answers["dags/meters/dagRuns/r"] = answer
    assert AirflowRuns(settings, "meters", DAYS).is_on("r") is is_on


def test_runs_with_earlier_drops_are_named_by_what_their_tasks_will_run(
    settings: Settings, answers: dict[str, Any]
) -> None:
    runs = AirflowRuns(settings, "meters", DAYS)
    answers["dags/meters"] = {"is_paused": False}
    later = run("later", "2024-01-02T00:00:00Z", **{"from": "2024-01-05"})
    answers["dags/meters/dagRuns"] = {"dag_runs": [run("none", None), later, run("it", "2024-01-02T00:00:00Z")]}
    assert runs.earlier_run(START_US + DAY_US) is None
    assert "run it of 2024-01-02" in str(runs.earlier_run(START_US + 2 * DAY_US))
    answers["dags/meters"] = {"is_paused": True}
    assert runs.earlier_run(START_US + 2 * DAY_US) is None
    answers["dags/meters"] = httpx.ReadTimeout("slow")
    assert "slow to say" in str(runs.earlier_run(START_US + 2 * DAY_US))
