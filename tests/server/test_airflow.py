"""Airflow's processes under the supervisor: healthy, behind a login, on the loopback, restarted, gone after `down`."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from spark_jobs.config import Settings
from spark_jobs.server import control, processes
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_parts import PARTS, admin_password
from spark_jobs.server.status import running_supervisor, status

pytestmark = pytest.mark.airflow

DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def probe():
    @task
    def answer():
        return 42
    answer()

probe()
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, installation) -> Iterator[Settings]:
    """An installation with Airflow, and one DAG of the test's own."""
    folder: Path = tmp_path_factory.mktemp("airflow")
    dags = folder / "dags"
    dags.mkdir()
    (dags / "probe.py").write_text(DAG)
    settings = installation(folder / "home").model_copy(update={"dags": dags})
    with pytest.MonkeyPatch.context() as patch:
        for module in ("control", "status"):
            patch.setattr(f"spark_jobs.server.{module}.code_version", lambda: "the code of this test")
        assert control.up(settings).ok
        yield settings
        control.down(settings)
    assert processes.marked(settings.home) == []


@pytest.fixture
def api(airflow: Settings) -> Iterator[AirflowApi]:
    with AirflowApi(airflow) as client:
        yield client


def test_all_parts_run_and_report_health(airflow):
    report = status(airflow, wait_s=120)
    assert report.ok
    assert {service.name for service in report.services} == {"sql", "connect", "airflow"}
    assert all(report.supervisor.part(name).condition == "running" for name in PARTS)


def test_a_call_without_a_login_is_refused(airflow):
    answer = httpx.get(f"{airflow.airflow_url}/api/v2/dags", trust_env=False)
    assert answer.status_code == 401


def test_a_wrong_password_is_refused(airflow):
    login = {"username": "admin", "password": admin_password(airflow) + "x"}
    assert httpx.post(f"{airflow.airflow_url}/auth/token", json=login, trust_env=False).status_code == 401


def test_the_generated_password_lets_us_in_and_no_example_is_loaded(airflow, api):
    deadline = time.monotonic() + 120
    while not (found := [dag["dag_id"] for dag in api.get("dags")["dags"]]) and time.monotonic() < deadline:
        time.sleep(1)
    assert found == ["probe"]


def test_a_dag_runs_to_success(airflow, api):
    api.patch("dags/probe", {"is_paused": False})
    run = api.post("dags/probe/dagRuns", {"logical_date": None})
    deadline = time.monotonic() + 180
    while (state := api.get(f"dags/probe/dagRuns/{run['dag_run_id']}")["state"]) in ("queued", "running"):
        assert time.monotonic() < deadline, state
        time.sleep(1)
    assert state == "success"


def test_a_refused_call_names_path_and_status(api):
    with pytest.raises(AirflowRefused) as refusal:
        api.get("dags/no-such-dag")
    assert (refusal.value.facts["status"], refusal.value.facts["path"]) == (404, "/api/v2/dags/no-such-dag")


def test_every_port_is_on_the_loopback(airflow):
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes.marked(airflow.home)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_secrets_are_private_files_and_on_no_command_line(airflow):
    files = [airflow.airflow_home / name for name in ("passwords.json", "secrets.json", "airflow.cfg")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert stat.S_IMODE(airflow.airflow_home.stat().st_mode) == 0o700
    commands = [" ".join(process.cmdline()) for process in processes.marked(airflow.home)]
    assert not any(admin_password(airflow) in command for command in commands)


def test_a_killed_scheduler_is_restarted_without_its_old_workers(airflow):
    killed = psutil.Process(running_supervisor(airflow).part("airflow-scheduler").pid)
    workers = killed.children(recursive=True)
    assert workers
    killed.kill()
    deadline = time.monotonic() + 60
    while running_supervisor(airflow).part("airflow-scheduler").restarts == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not any(worker.is_running() for worker in workers)
    assert status(airflow, wait_s=120).ok


def test_up_without_airflow_ends_it_and_keeps_the_lake_server(airflow):
    server = running_supervisor(airflow).part("lake").pid
    report = control.up(airflow, airflow=False)
    assert {service.name for service in report.services} == {"sql", "connect"}
    assert [part.pid for part in running_supervisor(airflow).parts] == [server]
    commands = [" ".join(process.cmdline()) for process in processes.marked(airflow.home)]
    assert not any("airflow" in command.lower() and "spark" not in command for command in commands)
