"""A task that somebody fails in Airflow while it works: its Spark work ends with it, and the next run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import Installation, until

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(900)]

DAY, MONTH_END = "2013-01-01", "2013-01-31"
RUNS = "dags/flights/dagRuns"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("airflow"))
    with made.serving():
        made.json("prepare", "--from", DAY, "--to", MONTH_END)
        yield made


def _trigger(api: AirflowApi, last: str = DAY) -> str:
    body = {"logical_date": None, "conf": {"from": DAY, "to": last}}
    api.patch("dags/flights", {"is_paused": False})
    return api.post(RUNS, body)["dag_run_id"]


def _executing(installation: Installation) -> bool:
    """Whether the lake server works on a Spark task: Linux shows the names of the JVM's threads, cut short."""
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error, OSError):
            if process.info["name"] != "java" or str(installation.settings.home) not in " ".join(process.cmdline()):
                continue
            names = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/comm")]
            if any(name.startswith("Executor task l") for name in names):  # … launch worker; else … idle
                return True
    return False


def test_the_spark_work_of_a_task_that_is_ended_in_the_ui_ends_with_it(installation: Installation) -> None:
    log = installation.settings.logs_dir / "lake.log"
    with AirflowApi(installation.settings) as api:
        run = _trigger(api, MONTH_END)
        land = f"{RUNS}/{run}/taskInstances/land"
        until(lambda: api.get(land)["state"] == "running", 120, "the task never ran")
        until(lambda: _executing(installation), 120, "the task never began its work")
        assert "TaskKilled" not in log.read_text()
        api.patch(land, {"new_state": "failed"})
        until(lambda: "TaskKilled" in log.read_text(), 60, "its Spark work was not cancelled")
        until(lambda: not _executing(installation), 60, "its Spark work goes on")
        until(lambda: api.get(f"{RUNS}/{run}")["state"] == "failed", 60, "the run goes on")
    assert installation.sql("SHOW TABLES IN bronze LIKE 'files'") == [] or not installation.sql(
        "SELECT 1 AS one FROM bronze.files"
    )


def test_a_task_failed_by_hand_ends_and_the_next_run_publishes(installation: Installation) -> None:
    with AirflowApi(installation.settings) as api:
        first = _trigger(api)
        land = f"{RUNS}/{first}/taskInstances/land"
        until(lambda: api.get(land)["state"] == "running", 120, "the task never ran")
        pid = api.get(land)["pid"]
        lease = installation.settings.home / "leases" / "flights.lease"
        until(lease.exists, 60, "the task never began its work")
        api.patch(land, {"new_state": "failed"})
        until(lambda: pid is None or not psutil.pid_exists(pid), 60, f"process {pid} goes on")
        until(lambda: api.get(f"{RUNS}/{first}")["state"] == "failed", 60, "the run goes on")

        second = _trigger(api)
        until(lambda: api.get(f"{RUNS}/{second}")["state"] in ("success", "failed"), 300, "the second run never ended")
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
