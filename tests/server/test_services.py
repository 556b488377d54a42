"""Parts that are services of their own: their commands, what they know of each other, and their health checks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.server import service_health
from spark_jobs.server.airflow_parts import (
    PARTS,
    SCHEDULER,
    airflow_command,
    airflow_environment,
    airflow_part,
)
from spark_jobs.server.status import runs_airflow
from tests.installations import free_port

API = "AIRFLOW__CORE__EXECUTION_API_SERVER_URL"


def test_a_service_has_the_command_that_the_supervisor_would_run(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, airflow_database_url="sqlite:////none")
    for part in PARTS:
        command = airflow_part(settings, part).command
        name = part.removeprefix("airflow-")
        assert airflow_command(command[command.index(name) :]) == command
    assert "spark_jobs.server.preloaded" in airflow_part(settings, SCHEDULER).command
    assert airflow_command(("dags", "list")) == (sys.executable, "-m", "airflow", "dags", "list")
    assert airflow_command(()) == (sys.executable, "-m", "airflow")


def test_tasks_call_the_api_server_where_it_is(tmp_path: Path) -> None:
    here = Settings(home=tmp_path, airflow_port=80, server_host="lake", airflow_database_url="sqlite:////none")
    environment = airflow_environment(here)
    assert (environment[API], environment["AIRFLOW__API__BASE_URL"]) == (
        "http://127.0.0.1:80/execution/",
        "http://lake:80",
    )
    apart = here.model_copy(update={"airflow_host": "api", "airflow_public_url": "https://a.example.org"})
    environment = airflow_environment(apart)
    assert environment[API] == "http://api:80/execution/"
    assert environment["AIRFLOW__API__BASE_URL"] == "https://a.example.org"


def test_airflow_that_runs_elsewhere_counts_as_running(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert not runs_airflow(settings)
    assert runs_airflow(settings.model_copy(update={"airflow_host": "api"}))


def test_what_does_not_answer_is_not_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of a real cluster and a real Airflow are in `tests/docker`."""
    monkeypatch.setenv("SPARK_WORKER_WEBUI_PORT", str(free_port()))
    settings = Settings(home=tmp_path, airflow_port=free_port(), master=f"spark://127.0.0.1:{free_port()}")
    answers = [service_health.ask(settings, name) for name in ("master", "worker", "api-server", "scheduler")]
    assert [works for works, _ in answers] == [False] * 4
    assert "does not answer" in answers[0][1] and all("Connect" in answer for _, answer in answers[1:])


def test_a_master_is_healthy_if_it_accepts_connections(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings = Settings(home=tmp_path, master=f"spark://127.0.0.1:{listening.getsockname()[1]}")
        assert service_health.ask(settings, "master") == (True, f"{settings.master} answers")


def test_the_exit_code_is_the_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_jobs.server.service_health"]
    environment = {"TIDEMARK_HOME": str(tmp_path), "TIDEMARK_MASTER": f"spark://127.0.0.1:{free_port()}"}
    sick = subprocess.run([*command, "master"], env=environment, capture_output=True, text=True, check=False)
    assert (sick.returncode, "does not answer" in sick.stdout) == (1, True)
    wrong = subprocess.run([*command, "lake"], env=environment, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "expected one of master, worker" in wrong.stderr
