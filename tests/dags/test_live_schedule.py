"""A scheduled run of a real Airflow after days that nobody ran, and who is told: late, empty, warned, failed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs.server.airflow_api import AirflowApi
from tests.dags.recipients import mail_server, url, webhooks
from tests.installations import Installation, until
from tests.jobs.harness import SOURCE

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(1500)]

RUNS = "dags/meters/dagRuns"
MAINTENANCE_RUNS = "dags/tidemark-maintenance/dagRuns"
TEAM = "team@example.org"
FIRST, EMPTY, LAST = -5, -3, -1
"""Days from today on: the one that somebody ran, one without a file, and the last one that has ended."""
LINE = '{"id": "%s", "meter": "m", "at": "%sT01:00:00Z", "seen": "%sT02:00:00Z", "load": 3, "heat": 1.5}\n'


def day(ahead: int) -> str:
    return f"{datetime.now(UTC) + timedelta(days=ahead):%Y-%m-%d}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """An installation whose source is paused as it appears, with five days of files but one, and whom it tells."""
    home: Path = tmp_path_factory.mktemp("schedule")
    installation = Installation(home / "home")
    (home / "a file").write_text("where a backup should go")
    with mail_server() as mails, webhooks() as hook:
        source = SOURCE.replace("start: 2024-01-01", f"start: {day(FIRST)}") + (
            "checks: {small: {kind: between, column: load, max: 2, treatment: warn}}\n"
            f'dag: {{schedule: every, deadline: 1 min after hi, notify: [{TEAM}, "{url(hook)}"]}}\n'
        )
        (home / "sources").mkdir()
        (home / "sources" / "meters.yml").write_text(source)
        installation.environment |= {
            "TIDEMARK_SOURCES": str(home / "sources"),
            "TIDEMARK_SMTP": f"smtp://127.0.0.1:{mails.server_address[1]}",
            "TIDEMARK_BACKUP": str(home / "a file"),
        }
        for ahead in {*range(FIRST, LAST + 1)} - {EMPTY}:
            folder = installation.settings.landing_folder / "meters" / day(ahead)
            folder.mkdir(parents=True)
            (folder / "a.ndjson").write_text(LINE % (ahead, day(ahead), day(ahead)))
        with installation.serving():
            yield SimpleNamespace(installation=installation, mails=mails, hook=hook)


@pytest.fixture
def api(world: SimpleNamespace) -> Iterator[AirflowApi]:
    with AirflowApi(world.installation.settings) as opened:
        yield opened


def ended(api: AirflowApi, path: str) -> str:
    """The state in which a run ends."""
    until(lambda: api.get(path)["state"] in ("success", "failed"), 300, f"{path} never ended")
    return str(api.get(path)["state"])


def test_the_first_scheduled_run_takes_the_days_that_nobody_ran_and_tells_what_it_met(
    world: SimpleNamespace, api: AirflowApi
) -> None:
    world.installation.json("run", "meters", "--from", day(FIRST), "--to", day(FIRST))
    assert api.get(RUNS)["dag_runs"] == []
    api.patch("dags/meters", {"is_paused": False})
    until(lambda: api.get(RUNS)["dag_runs"], 60, "nothing was scheduled")
    [run] = api.get(RUNS)["dag_runs"]
    assert (run["run_type"], run["data_interval_start"][:10]) == ("scheduled", day(LAST))
    name = run["dag_run_id"]
    assert ended(api, f"{RUNS}/{name}") == "success"

    drops = world.installation.json("status", "--drops", "meters")
    assert [(drop["drop"], drop["state"], drop["files"]) for drop in drops] == [
        (day(ahead), "landed", 0 if ahead == EMPTY else 1) for ahead in range(FIRST, LAST + 1)
    ]
    assert world.installation.sql("SELECT count(*) AS n FROM bronze.meters_deltas") == [{"n": 4}]
    log = str(api.get(f"{RUNS}/{name}/taskInstances/land/logs/1"))
    assert f"catches up: takes {day(FIRST + 1)} to {day(LAST)}, since drops before {day(LAST)} were never run" in log

    # it was created after its deadline, but the triggerer tells of it
    until(lambda: len(world.hook.received) >= 3, 120, "somebody was not told")
    documents = {each["event"]: each for each in world.hook.received}
    assert sorted(documents) == ["empty", "late", "warned"], world.hook.received
    assert {each["run_id"] for each in documents.values()} == {name}
    assert documents["empty"]["message"] == f"no file for {day(EMPTY)}: taken as empty"
    assert f"it was due at {day(0)} 00:01" in documents["late"]["message"]
    assert "small" in documents["warned"]["message"]
    until(lambda: len(world.mails.received) >= 3, 30, "no mail came")
    assert sorted(mail["Subject"] for mail in world.mails.received) == [
        f"Tidemark: meters {event} ({name})" for event in sorted(documents)
    ]


def test_a_run_that_fails_is_told_of_once_and_not_tried_again(world: SimpleNamespace, api: AirflowApi) -> None:
    world.hook.received.clear()
    # today has no file and was never run: a run of tomorrow would leave it out
    body = {"logical_date": None, "conf": {"from": day(1), "to": day(1)}}
    names = []
    for _ in range(2):  # a second notice of the first run would come before the notice of the second run
        names.append(api.post(RUNS, body)["dag_run_id"])
        assert ended(api, f"{RUNS}/{names[-1]}") == "failed"
        until(lambda: len(world.hook.received) >= len(names), 120, "nobody was told")
        assert [document["run_id"] for document in world.hook.received] == names
    for name, document in zip(names, world.hook.received, strict=True):
        assert (document["event"], document["source"]) == ("failed", "meters")
        assert f"Run {name} of meters failed at land; published tables read as before." in document["message"]
        assert api.get(f"{RUNS}/{name}/taskInstances/land")["try_number"] == 1


def test_a_maintenance_that_fails_is_told_of_with_what_is_still_done(world: SimpleNamespace, api: AirflowApi) -> None:
    world.hook.received.clear()
    name = api.post(MAINTENANCE_RUNS, {"logical_date": None})["dag_run_id"]
    assert ended(api, f"{MAINTENANCE_RUNS}/{name}") == "failed"
    listed = api.get(f"{MAINTENANCE_RUNS}/{name}/taskInstances")["task_instances"]
    assert {each["task_id"]: each["state"] for each in listed} == {
        "maintain_meters": "success",
        "installation": "failed",
    }
    until(lambda: world.hook.received, 120, "nobody was told")
    [document] = world.hook.received
    assert (document["event"], document["source"]) == ("failed", "tidemark-maintenance")
    assert f"The maintenance of the installation failed (run {name})" in document["message"]
    log = str(api.get(f"{MAINTENANCE_RUNS}/{name}/taskInstances/installation/logs/1"))
    assert "backup" in log
    assert "a file" in log
