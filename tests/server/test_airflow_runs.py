"""What a run beside Airflow learns of Airflow's runs: from what the API answers, and from its silence."""

from __future__ import annotations

import os
from typing import Any

import httpx
import psutil
import pytest

from spark_jobs.config import Settings
from spark_jobs.server.airflow_api import AirflowApi
from spark_jobs.server.airflow_parts import admin_password
from spark_jobs.server.airflow_runs import AirflowRuns, drops_of_run
from spark_jobs.server.state import Condition, PartState, SupervisorState, write_state
from spark_jobs.sources import Schedule
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn

DAY_US = 86_400_000_000
START_US = 1_704_067_200_000_000
DAYS = Schedule(START_US, DAY_US)
"""2024-01-01."""


def run(run_id: str, lo: str | None, hi: str | None = None, **conf: Any) -> dict[str, Any]:
    """A run as the API tells of it; without `lo`, one that somebody started on 2024-01-05."""
    interval = {"data_interval_start": lo, "data_interval_end": hi, "logical_date": lo}
    kind = {"run_type": "scheduled" if lo else "manual", "run_after": hi or "2024-01-05T09:30:00Z"}
    return {"dag_run_id": run_id, "state": "running", **interval, **kind, "conf": conf or None}


def of_day(run_id: str, day: int, **conf: Any) -> dict[str, Any]:
    """The scheduled run of a day of January."""
    return run(run_id, f"2024-01-{day:02}T00:00:00Z", f"2024-01-{day + 1:02}T00:00:00Z", **conf)


@pytest.fixture
def answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Path to what Airflow answers: JSON, a function of the parameters that makes it, a status, or an error of the
    connection. It knows nothing else."""
    admin_password(settings)
    told: dict[str, Any] = {"/auth/token": {"access_token": "t"}}

    def answer(self: AirflowApi, method: str, path: str, **content: Any) -> httpx.Response:
        found = told.get(path.removeprefix("/api/v2/"), 404)
        found = found(content["params"]) if callable(found) else found
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


def supervised(settings: Settings, *, airflow: bool = True, api_server: Condition = "running") -> None:
    """This process as the supervisor that the state names."""
    part = PartState("airflow-api-server", api_server, None, 0.0, 0, "log", None)
    created = psutil.Process().create_time()
    write_state(settings, SupervisorState(os.getpid(), created, "code", airflow, {}, (part,)))


@pytest.mark.parametrize(
    ("state", "is_on"),
    [
        ({}, True),
        ({"api_server": "restarting"}, True),
        ({"airflow": False}, False),
        # the supervisor has given it up: its runs get on no more
        ({"api_server": "failed"}, False),
    ],
)
def test_a_run_of_an_airflow_that_is_only_away_is_waited_for_and_who_waits_is_told(
    settings: Settings, answers: dict[str, Any], state: dict[str, Any], is_on: bool
) -> None:
    supervised(settings, **state)
    answers["dags/meters/dagRuns/r"] = answers["dags/meters"] = httpx.ConnectError("refused")
    runs = AirflowRuns(settings, "meters", DAYS)
    assert runs.is_on("r") is is_on
    assert ("Airflow does not answer now" in runs.remark()) is is_on
    assert ("Airflow" in (runs.earlier_run(START_US) or "")) is is_on
    answers["dags/meters/dagRuns/r"], answers["dags/meters"] = {"state": "running"}, {"is_paused": False}
    assert (runs.is_on("r"), runs.remark()) == (True, "")


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


def test_who_waits_for_a_run_of_a_paused_dag_is_told_what_to_do(settings: Settings, answers: dict[str, Any]) -> None:
    leases = settings.home / "leases"
    leases.mkdir(parents=True)
    assert Line(leases, "meters", Turn("r", START_US, "2024-01-01", staged=True), NoDriver()).step() is None
    mine = Line(leases, "meters", Turn("cli", START_US, "2024-01-01"), AirflowRuns(settings, "meters", DAYS))
    answers["dags/meters/dagRuns"] = {"dag_runs": [], "next_cursor": None}
    answers["dags/meters/dagRuns/r"], answers["dags/meters"] = {"state": "running"}, {"is_paused": False}
    assert mine.step() == "run r of 2024-01-01"
    answers["dags/meters"] = {"is_paused": True}
    assert "(its DAG meters is paused, so no further stage of it begins: unpause it, or" in str(mine.step())
    answers["dags/meters/dagRuns/r"] = {"state": "failed"}
    assert mine.step() is None
    mine.end()


def test_runs_with_earlier_drops_are_named_by_what_their_tasks_will_run(
    settings: Settings, answers: dict[str, Any]
) -> None:
    runs = AirflowRuns(settings, "meters", DAYS)
    answers["dags/meters"] = {"is_paused": False}
    refused = [of_day("refused", 1, **{"from": text}) for text in ("2023-12-31", "2024-01-01T12:00", "yesterday")]
    later = of_day("later", 2, **{"from": "2024-01-05"})
    listed = [*refused, run("last ended", None), later, of_day("it", 2)]
    answers["dags/meters/dagRuns"] = {"dag_runs": listed, "next_cursor": None}
    assert runs.earlier_run(START_US + DAY_US) is None
    assert "run it of 2024-01-02" in str(runs.earlier_run(START_US + 2 * DAY_US))
    assert "run last ended of 2024-01-04" in str(runs.earlier_run(START_US + 4 * DAY_US))
    answers["dags/meters"] = {"is_paused": True}
    assert runs.earlier_run(START_US + 2 * DAY_US) is None
    answers["dags/meters"] = httpx.ReadTimeout("slow")
    assert "does not say now" in str(runs.earlier_run(START_US + 2 * DAY_US))


@pytest.mark.parametrize(
    "conf",
    [
        {"from": "2023-12-31"},
        {"from": "2024-01-03", "to": "2024-01-02"},
        {"from": "2024-01-02T12:00"},
        {"from": "garbage"},
        {"from": "9999-12-31T23:00:00-14:00"},
        {"from": "9999-12-31"},
    ],
)
def test_a_run_that_its_tasks_refuse_is_about_no_drop(conf: dict[str, Any]) -> None:
    assert drops_of_run(of_day("r", 1, **conf), DAYS) == range(0)


def test_the_drops_of_a_run_are_those_that_its_tasks_take() -> None:
    assert drops_of_run(of_day("r", 2), DAYS) == range(1, 2)
    assert drops_of_run(run("r", None, **{"from": "2024-01-02", "to": "2024-01-03"}), DAYS) == range(1, 3)
    assert drops_of_run(run("without anything", None), DAYS) == range(3, 4)
    dated = of_day("r", 4) | {"run_type": "manual", "logical_date": "2024-01-02T00:00:00Z"}
    assert drops_of_run(dated, DAYS) == range(1, 2)
    dated["logical_date"] = "2023-12-31T00:00:00Z"
    assert drops_of_run(dated, DAYS) == range(0), "before the start"
    # of a source whose drops have become weeks
    assert drops_of_run(of_day("r", 2), Schedule(START_US, 7 * DAY_US)) == range(0)


def test_the_one_earlier_run_is_found_among_more_than_airflow_tells_at_once(
    settings: Settings, answers: dict[str, Any]
) -> None:
    found = [of_day(f"later-{n}", 30) for n in range(230)] + [of_day("it", 1)]

    def page(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["state"] == ("queued", "running")
        begin = int(asked["cursor"] or 0)
        end = begin + min(asked["limit"], 100)
        return {"dag_runs": found[begin:end], "next_cursor": str(end) if end < len(found) else None}

    answers["dags/meters"] = {"is_paused": False}
    answers["dags/meters/dagRuns"] = page
    assert "run it of" in str(AirflowRuns(settings, "meters", DAYS).earlier_run(START_US + DAY_US))
