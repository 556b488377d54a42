"""A task that somebody fails in Airflow while it works: its Spark work ends with it, and the next run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import TIDEMARK, Installation

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(900)]

DAY = "2013-01-01"
RUNS = "dags/flights/dagRuns"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("airflow"))
    try:
        started = made.run(str(TIDEMARK), "up")
        assert started.returncode == 0, started.stdout + started.stderr
        made.json("prepare", "--from", DAY, "--to", DAY)
        yield made
    finally:
        made.run(str(TIDEMARK), "down")


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def _trigger(api: AirflowApi) -> str:
    body = {"logical_date": None, "conf": {"from": DAY, "to": DAY}}
    api.patch("dags/flights", {"is_paused": False})
    return api.post(RUNS, body)["dag_run_id"]


def test_a_task_failed_by_hand_ends_and_the_next_run_publishes(installation: Installation) -> None:
    with AirflowApi(installation.settings) as api:
        first = _trigger(api)
        land = f"{RUNS}/{first}/taskInstances/land"
        _until(lambda: api.get(land)["state"] == "running", 120, "the task never ran")
        pid = api.get(land)["pid"]
        lease = installation.settings.home / "leases" / "flights.lease"
        _until(lease.exists, 60, "the task never began its work")
        api.patch(land, {"new_state": "failed"})
        _until(lambda: pid is None or not psutil.pid_exists(pid), 60, f"process {pid} goes on")
        _until(lambda: api.get(f"{RUNS}/{first}")["state"] == "failed", 60, "the run goes on")

        second = _trigger(api)
        _until(lambda: api.get(f"{RUNS}/{second}")["state"] in ("success", "failed"), 300, "the second run never ended")
        run = api.get(f"{RUNS}/{second}")
        assert run["state"] == "success"
        print(f"a first day through Airflow: {run['duration']:.1f} s")
    (found,) = installation.sql(
        "SELECT (SELECT sum(flights) FROM gold.flights) AS states, (SELECT sum(rows) FROM bronze.files) AS landed,"
        " (SELECT count(*) FROM bronze.deltas) AS deltas,"
        " (SELECT count(*) FROM bronze.deltas WHERE event_time < timestamp'2013-01-02') AS due"
    )
    assert found["landed"] == found["deltas"] > 500
    assert found["states"] == found["due"]
