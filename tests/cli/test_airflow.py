"""Airflow's own command line finds this installation, through `tidemark airflow` and in a shell with `tidemark env`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.installations import ODD_NAME, TIDEMARK

pytestmark = pytest.mark.airflow

GET_HOME = ("config", "get-value", "core", "dags_folder")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / ODD_NAME
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW"))}
    dags = tmp_path / "dags of its own"
    url = f"sqlite:///{tmp_path / 'airflow.db'}"
    return {
        **kept,
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_DAGS": str(dags),
        "TIDEMARK_AIRFLOW_DATABASE_URL": url,
        "HOME": str(tmp_path),
    }


def call(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_arguments_go_to_airflow_as_they_are_and_its_exit_code_comes_back(environment: dict[str, str]) -> None:
    done = call(environment, str(TIDEMARK), "airflow", *GET_HOME)
    assert (done.returncode, done.stdout.strip()) == (0, environment["TIDEMARK_DAGS"]), done.stderr
    refused = call(environment, str(TIDEMARK), "airflow", "dags", "--no-such-option")
    assert refused.returncode == 2
    assert "airflow dags" in refused.stderr


def test_a_shell_with_the_environment_finds_the_installation(environment: dict[str, str], tmp_path: Path) -> None:
    script = f'eval "$("{TIDEMARK}" env)"; airflow {" ".join(GET_HOME)}; echo "$AIRFLOW_HOME"; tidemark --help'
    done = call(environment, "bash", "-euc", script)
    assert done.returncode == 0, done.stderr
    home = str(Path(environment["TIDEMARK_HOME"]) / "airflow")
    assert done.stdout.splitlines()[:2] == [environment["TIDEMARK_DAGS"], home]
    assert not (tmp_path / "airflow").exists(), "no home of Airflow's own beside"


def test_without_a_database_airflow_is_not_asked(environment: dict[str, str]) -> None:
    del environment["TIDEMARK_AIRFLOW_DATABASE_URL"]
    for command in ("airflow", "env"):
        done = call(environment, str(TIDEMARK), command)
        assert done.returncode == 1
        assert "start it with `tidemark up`" in " ".join(done.stderr.split())
