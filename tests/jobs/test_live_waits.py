"""Runs in a real Airflow that wait without a slot: for somebody's approval of their plan, for files, and for the drops
of another source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import Installation, until
from tests.jobs.harness import SOURCE

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(1500)]

PLUGINS = Path(__file__).parents[1] / "examples" / "plugins"
RUNS = "dags/meters/dagRuns"
DAY = "2024-01-01"
ENDED = ("success", "failed")
METERS = SOURCE.replace("format: ndjson}", "format: ndjson, wait: 2 h}") + "dag: {schedule: manual}\n"
YESTERDAY = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
UPPER, LOWER = (
    SOURCE.replace("source: meters", f"source: {name}")
    .replace("start: 2024-01-01", f"start: {YESTERDAY}")
    .replace("hourly:", f"{name}_hourly:")
    .replace("shifts:", f"{name}_shifts:")
    for name in ("upper", "lower")
)
LINE = '{"id": "1", "meter": "m", "at": "%sT01:00:00Z", "seen": "%sT02:00:00Z", "load": 3, "heat": 1.5}\n'


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("waits")
    made = Installation(home)
    (home / "sources").mkdir()
    (home / "sources" / "meters.yml").write_text(METERS)
    (home / "sources" / "upper.yml").write_text(UPPER + "dag: {schedule: manual}\n")
    (home / "sources" / "lower.yml").write_text(LOWER + "dag: {schedule: every, after: [upper]}\n")
    made.environment["TIDEMARK_SOURCES"] = str(home / "sources")
    made.environment["TIDEMARK_PLUGINS"] = str(PLUGINS)
    write_file(made, DAY)
    write_file(made, YESTERDAY)
    with made.serving():
        yield made


@pytest.fixture
def api(installation: Installation) -> Iterator[AirflowApi]:
    with AirflowApi(installation.settings) as opened:
        for dag in ("meters", "after_meters"):
            opened.patch(f"dags/{dag}", {"is_paused": False})
        yield opened


def write_file(installation: Installation, day: str) -> None:
    folder = installation.settings.landing_folder / "meters" / day
    folder.mkdir(parents=True)
    (folder / "a.ndjson").write_text(LINE % (day, day))


def trigger(api: AirflowApi, day: str, **conf: Any) -> str:
    run: str = api.post(RUNS, {"logical_date": None, "conf": {"from": day, "to": day, **conf}})["dag_run_id"]
    return run


def state(api: AirflowApi, run: str, task: str = "land") -> Any:
    return api.get(f"{RUNS}/{run}/taskInstances/{task}")["state"]


def states(api: AirflowApi, run: str) -> dict[str, Any]:
    listed = api.get(f"{RUNS}/{run}/taskInstances")["task_instances"]
    return {each["task_id"]: each["state"] for each in listed}


def expect_to_wait(api: AirflowApi, task: str) -> None:
    """The task is deferred, and its trigger has looked for the inputs and missed one."""
    until(lambda: "waits for" in str(api.get(f"{task}/logs/1")), 120, "the trigger looked for nothing")
    assert api.get(task)["state"] == "deferred"


def end(api: AirflowApi, run: str) -> str:
    until(lambda: api.get(f"{RUNS}/{run}")["state"] in ENDED, 300, f"{run} never ended: {states(api, run)}")
    return str(api.get(f"{RUNS}/{run}")["state"])


def asked(api: AirflowApi, run: str) -> dict[str, Any]:
    """What the run's first task asks, once it waits for an answer."""
    until(lambda: state(api, run) in ("awaiting_input", *ENDED), 300, "nothing was ever asked")
    found: dict[str, Any] = api.get(f"{RUNS}/{run}/taskInstances/land/-1/hitlDetails")
    return found


def answer(api: AirflowApi, run: str, option: str) -> None:
    body = {"chosen_options": [option], "params_input": {}}
    api.patch(f"{RUNS}/{run}/taskInstances/land/-1/hitlDetails", body)


def test_a_rejected_plan_changes_nothing_and_an_approved_one_is_what_runs(
    installation: Installation, api: AirflowApi
) -> None:
    first = trigger(api, DAY, plan=True)
    told = asked(api, first)
    assert told["options"] == ["Approve", "Reject"]
    assert told["subject"].startswith(f"meters, {DAY}: the run would change ")
    assert "| silver" in told["body"].replace("&#46;", ".")
    answer(api, first, "Reject")
    assert end(api, first) == "success"
    assert set(states(api, first).values()) == {"skipped"}
    assert installation.json("status", "--drops", "meters")[0]["state"] == "missing"

    second = trigger(api, DAY, plan=True)
    asked(api, second)
    answer(api, second, "Approve")
    assert end(api, second) == "success"
    assert set(states(api, second).values()) == {"success"}
    assert installation.sql("SELECT sum(readings) AS n FROM gold.meters") == [{"n": 1}]

    events = api.get("assets/events", source_dag_id="meters", source_run_id=second, source_task_id="publish")[
        "asset_events"
    ]
    by_name = {(each["name"], each.get("partition_key")): each["extra"] for each in events}
    assert set(by_name) == {("tidemark://published/meters", None), ("tidemark://drops/meters", DAY)}
    extra = by_name["tidemark://published/meters", None]
    assert (extra["run_id"], extra["from"], extra["to"], extra["rows"]) == (second, DAY, DAY, 1)
    assert extra["changed"]
    assert "/runs/meters/" in extra["page"]
    # a DAG of a team's own that is scheduled on the asset
    runs = "dags/after_meters/dagRuns"
    until(lambda: [run["state"] for run in api.get(runs)["dag_runs"]] == ["success"], 120, "nothing came after it")
    (after,) = api.get(runs)["dag_runs"]
    assert after["run_type"] == "asset_triggered"
    lines = api.get(f"{runs}/{after['dag_run_id']}/taskInstances/tell/xcomEntries/return_value", deserialize=True)[
        "value"
    ]
    assert lines == [f"{DAY} to {DAY}: 1 rows, see {extra['page']}"]


def test_a_drop_without_a_file_is_waited_for_without_a_slot(installation: Installation, api: AirflowApi) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    run = trigger(api, today, pass_gap=True)
    until(lambda: state(api, run) in ("deferred", *ENDED), 120, "the task never began")
    expect_to_wait(api, f"{RUNS}/{run}/taskInstances/land")
    write_file(installation, today)
    assert end(api, run) == "success"
    assert states(api, run)["land"] == "success"
    (found,) = installation.sql(f"SELECT count(*) AS n FROM bronze.files WHERE path LIKE '%{today}%'")
    assert found["n"] == 1


def test_a_scheduled_run_waits_until_another_source_has_published_its_drop(
    installation: Installation, api: AirflowApi
) -> None:
    api.patch("dags/lower", {"is_paused": False})

    def scheduled() -> dict[str, Any]:
        """The run of yesterday's drop, which the schedule has started."""
        runs = api.get("dags/lower/dagRuns")["dag_runs"]
        return next((run for run in runs if run["run_type"] == "scheduled"), {"dag_run_id": "", "state": None})

    until(lambda: bool(scheduled()["dag_run_id"]), 120, "the schedule started nothing")
    land = f"dags/lower/dagRuns/{scheduled()['dag_run_id']}/taskInstances/land"
    until(lambda: api.get(land)["state"] in ("deferred", *ENDED), 120, "the task never began")
    expect_to_wait(api, land)
    assert installation.json("status", "--drops", "lower")[0]["state"] == "missing"

    published = installation.json("run", "upper", "--from", YESTERDAY, "--to", YESTERDAY)
    assert published["stages"][-1]["moved"]
    until(lambda: scheduled()["state"] in ENDED, 300, "the run went on waiting")
    assert scheduled()["state"] == "success"
    assert installation.sql("SELECT sum(readings) AS n FROM gold.lower") == [{"n": 1}]
    assert api.get("dags/upper/dagRuns")["total_entries"] == 0
