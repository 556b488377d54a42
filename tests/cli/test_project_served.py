"""A project on a server by its settings file alone: no variable is exported, and commands run below its folder."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from spark_jobs.cli.app import run
from tests.installations import TIDEMARK, free_port

pytestmark = [pytest.mark.server, pytest.mark.turns]


def test_server_and_runs_use_the_folders_of_the_file(tmp_path: Path) -> None:
    project = tmp_path / "our lake"
    assert run(["new", str(project), "--example", "sensors"]) == 0
    ports = {name: free_port() for name in ("thrift_port", "connect_port", "airflow_port")}
    with (project / "tidemark.toml").open("a") as file:
        file.writelines(f"{name} = {number}\n" for name, number in ports.items())
        file.write('heap = "2g"\n[spark_conf]\nspark.sql.session.timeZone.of.test = "here"\n')
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_") or k == "TIDEMARK_JARS"}

    def tidemark(*arguments: str, folder: Path = project / "dbt", **variables: str) -> str:
        done = subprocess.run(
            [str(TIDEMARK), *arguments],
            cwd=folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        tidemark("up", "--no-airflow")
        tidemark("run", "sensors", "--from", "2024-03-01", "--to", "2024-03-01")
        counted = json.loads(tidemark("sql", "SELECT count(*) AS n FROM marts.sensor_days", "--json"))
        assert counted["rows"][0]["n"] > 0
        elsewhere = json.loads(
            tidemark("status", "--json", folder=tmp_path, TIDEMARK_CONFIG=str(project / "tidemark.toml"))
        )
        assert elsewhere["home"] == str(project / ".tidemark")
        # the server's processes have all settings in their environment, and look for no file
        setup = json.loads((project / ".tidemark" / "server" / "supervisor.json").read_text())["setup"]
        assert setup["TIDEMARK_CONFIG"] == ""
        assert setup["TIDEMARK_LANDING"] == str(project / "landing")
        assert "of.test" in setup["TIDEMARK_SPARK_CONF"]
        assert (project / ".tidemark" / "lake" / "silver.db").is_dir()
        assert [path.name for path in (project / "dbt").iterdir()] == ["models"]
    finally:
        tidemark("down")
