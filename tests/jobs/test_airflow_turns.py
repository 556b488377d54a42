"""Whoever starts runs of a source, in Airflow or beside it: they follow one another, and none fails for another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from spark_jobs.server.airflow_api import AirflowApi
from spark_jobs.server.airflow_parts import airflow_environment
from tests.installations import TIDEMARK, Installation
from tests.jobs.harness import START, Reading, write_drops, write_source
from tests.jobs.test_pipeline import due, session_oracle
from tests.server.test_runs import sessions

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(3600)]

DAYS = 8
DAY = 24 * 60
DAG = "dags/meters"

READINGS = [
    reading
    for day in range(DAYS)
    for reading in (
        Reading(day, day * DAY + 600 + day, "a", day + 1),
        Reading(day, day * DAY + 660, "b", 10),
        # a day late, so that the day before is published again
        Reading(day, max(day - 1, 0) * DAY + 700, "a", 3),
    )
]


def date(day: int) -> str:
    return f"{START + timedelta(days=day):%Y-%m-%d}"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("turns"))
    made.settings = write_source(made.settings.model_copy(update={"landing": made.settings.home / "landing"}))
    sources = made.settings.sources / "meters.yml"
    sources.write_text(sources.read_text() + "dag: {schedule: manual}\n")
    made.environment |= made.settings.environment()
    write_drops(made.settings, READINGS)
    try:
        started = made.run(str(TIDEMARK), "up", timeout_s=900)
        assert started.returncode == 0, started.stdout + started.stderr
        yield made
    finally:
        made.run(str(TIDEMARK), "down")


@pytest.fixture
def api(installation: Installation) -> Iterator[AirflowApi]:
    with AirflowApi(installation.settings) as client:
        yield client


def runs(api: AirflowApi) -> dict[str, tuple[str, str]]:
    """Per first drop the type and state of its run."""
    found = api.get(f"{DAG}/dagRuns", order_by="data_interval_start", limit=1000)["dag_runs"]
    return {run["data_interval_start"][:10]: (run["run_type"], run["state"]) for run in found}


def until_ended(api: AirflowApi, days: range, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not all(runs(api).get(date(day), ("", ""))[1] in ("success", "failed") for day in days):
        assert time.monotonic() < deadline, runs(api)
        time.sleep(1)


def expect_days(installation: Installation, days: int) -> None:
    """The tables are those of as many days run one after another, and so is what they say as of each day's end."""
    settings = installation.settings
    assert sessions(settings, "silver.shifts") == session_oracle(due(READINGS, days))
    for day in range(1, days):
        at = f"{START + timedelta(days=day) - timedelta(microseconds=1):%Y-%m-%d %H:%M:%S.%f}"
        assert sessions(settings, f"silver.shifts_as_of(TIMESTAMP'{at}')") == session_oracle(due(READINGS, day)), at


def test_a_backfill_of_a_paused_dag_runs_its_days_and_nothing_else(installation: Installation, api: AirflowApi) -> None:
    deadline = time.monotonic() + 300
    while not any(dag["dag_id"] == "meters" for dag in api.get("dags")["dags"]):
        assert time.monotonic() < deadline
        time.sleep(1)
    api.patch(DAG, {"is_paused": True})
    done = installation.run(str(TIDEMARK), "backfill", "meters", "--from", date(0), "--to", date(0), timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    dag = api.get(DAG)
    assert (dag["is_paused"], dag["timetable_summary"], dag["next_dagrun_run_after"]) == (True, "manual", None)
    assert runs(api) == {date(0): ("backfill", "success")}
    expect_days(installation, 1)


def test_airflows_own_backfill_of_many_days_at_once_runs_them_in_order(
    installation: Installation, api: AirflowApi
) -> None:
    api.patch(DAG, {"is_paused": False})
    command = [str(TIDEMARK.with_name("airflow")), "backfill", "create", "--dag-id", "meters", "--max-active-runs", "4"]
    environment = installation.environment
    installation.environment = airflow_environment(installation.settings)
    try:
        made = installation.run(*command, "--from-date", date(1), "--to-date", date(4), timeout_s=600)
    finally:
        installation.environment = environment
    assert made.returncode == 0, made.stdout + made.stderr
    until_ended(api, range(1, 5), 1800)
    assert runs(api) == {date(day): ("backfill", "success") for day in range(5)}
    expect_days(installation, 5)


def test_two_days_triggered_at_once_and_a_run_beside_airflow_all_succeed(
    installation: Installation, api: AirflowApi
) -> None:
    for day in (5, 6):
        api.post(f"{DAG}/dagRuns", {"logical_date": f"{date(day)}T00:00:00Z"})
    beside = installation.start(str(TIDEMARK), "run", "meters", "--from", date(7), "--to", date(7))
    output, _ = beside.communicate(timeout=1800)
    assert beside.returncode == 0, output
    assert "waits for run manual__" in output
    until_ended(api, range(5, 7), 600)
    assert {day: state for day, (_, state) in runs(api).items()} == {date(day): "success" for day in range(7)}
    expect_days(installation, DAYS)
