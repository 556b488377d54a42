"""A task that somebody fails in Airflow while it works: its Spark work ends with it, and the next run goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import CHECKOUT, QUERY_WITHOUT_END, Installation, until

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(900)]

RUNS = "dags/flights/dagRuns"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "sources").mkdir()
    shutil.copy(CHECKOUT / "dags" / "sources" / "flights.yml", folder / "sources")
    (folder / "dbt" / "models").mkdir(parents=True)
    installation = Installation(folder / "home", sources=folder / "sources", dbt=folder / "dbt")
    with installation.serving():
        installation.json("prepare", "--from", "2013-01-01", "--to", "2013-01-03")
        yield installation


def _trigger(api: AirflowApi, day: int) -> str:
    date = f"2013-01-{day:02}"
    api.patch("dags/flights", {"is_paused": False})
    return api.post(RUNS, {"logical_date": None, "conf": {"from": date, "to": date}})["dag_run_id"]


def _publish(api: AirflowApi, day: int) -> None:
    """Run a day, which must succeed."""
    run = f"{RUNS}/{_trigger(api, day)}"
    until(lambda: api.get(run)["state"] in ("success", "failed"), 300, "the run never ended")
    ended = api.get(run)
    assert ended["state"] == "success"
    print(f"day {day} through Airflow: {ended['duration']:.1f} s")


def _check_equality(installation: Installation, days: int) -> None:
    """Fail unless the states of these days count each landed row that is due once."""
    (rows,) = installation.sql(
        "SELECT (SELECT sum(flights) FROM gold.flights) AS states, (SELECT sum(rows) FROM bronze.files) AS landed,"
        " (SELECT count(*) FROM bronze.flights_deltas) AS deltas,"
        f" (SELECT count(*) FROM bronze.flights_deltas WHERE event_time < timestamp'2013-01-{days + 1:02}') AS due"
    )
    assert rows["landed"] == rows["deltas"] > 500 * days
    assert rows["states"] == rows["due"]


def test_a_task_failed_by_hand_ends_and_the_next_run_publishes(installation: Installation) -> None:
    with AirflowApi(installation.settings) as api:
        run = _trigger(api, 1)
        land = f"{RUNS}/{run}/taskInstances/land"
        until(lambda: api.get(land)["state"] == "running", 120, "the task never ran")
        pid = api.get(land)["pid"]
        lease = installation.settings.home / "leases" / "flights.lease"
        until(lease.exists, 60, "the task never began its work")
        api.patch(land, {"new_state": "failed"})
        until(lambda: pid is None or not psutil.pid_exists(pid), 60, f"process {pid} goes on")
        until(lambda: api.get(f"{RUNS}/{run}")["state"] == "failed", 60, "the run goes on")
        _publish(api, 1)
    _check_equality(installation, 1)


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


def _works_on(installation: Installation) -> bool:
    """Whether the lake server works on Spark tasks at each of twenty moments, half a second apart."""
    for _ in range(20):
        if not _executing(installation):
            return False
        time.sleep(0.5)
    return True


@contextmanager
def _check_without_end(installation: Installation) -> Iterator[None]:
    """A check of rows that land, judged over Spark Connect."""
    file = installation.settings.sources / "flights.yml"
    before = file.read_text()
    file.write_text(f"{before}\nchecks:\n  endless: {{kind: sql, sql: '({QUERY_WITHOUT_END}) > 0', treatment: warn}}\n")
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def _mart_without_end(installation: Installation) -> Iterator[None]:
    """A team's own mart, built over JDBC."""
    assert installation.settings.dbt is not None
    model = installation.settings.dbt / "models" / "endless.sql"
    model.write_text(f"SELECT count(*) AS n, ({QUERY_WITHOUT_END}) AS largest FROM {{{{ source('gold', 'flights') }}}}")
    try:
        yield
    finally:
        model.unlink()


@pytest.mark.parametrize(
    ("stage", "work_without_end", "day"), [("land", _check_without_end, 2), ("publish", _mart_without_end, 3)]
)
def test_the_spark_work_of_a_task_that_is_ended_in_the_ui_ends_with_it(
    installation: Installation,
    stage: str,
    work_without_end: Callable[[Installation], AbstractContextManager[None]],
    day: int,
) -> None:
    log = installation.settings.logs_dir / "lake.log"
    with AirflowApi(installation.settings) as api, work_without_end(installation):
        killed = log.read_text().count("TaskKilled")
        run = _trigger(api, day)
        task = f"{RUNS}/{run}/taskInstances/{stage}"
        until(lambda: api.get(task)["state"] == "running", 240, "the task never ran")
        until(lambda: _works_on(installation), 120, "the task's work never lasted")
        assert log.read_text().count("TaskKilled") == killed
        api.patch(task, {"new_state": "failed"})
        until(lambda: log.read_text().count("TaskKilled") > killed, 60, "its Spark work was not cancelled")
        until(lambda: not _executing(installation), 60, "its Spark work goes on")
        until(lambda: api.get(f"{RUNS}/{run}")["state"] == "failed", 60, "the run goes on")
    with AirflowApi(installation.settings) as api:
        _publish(api, day)
    _check_equality(installation, day)
