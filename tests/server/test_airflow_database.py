"""What the maintenance does to Airflow's own database, by what Airflow's command is asked and answers."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.server import airflow_database
from spark_jobs.server.airflow_database import clean

SAID = """
Checking table xcom
Found 12 rows meeting deletion criteria.
Performing Delete...

Checking table dag_run
Found 3 rows meeting deletion criteria.
"""


def answering(monkeypatch: pytest.MonkeyPatch, status: int, said: str, failed: str = "") -> list[Any]:
    asked: list[Any] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append((command, options["env"]))
        return subprocess.CompletedProcess(command, status, said, failed)

    monkeypatch.setattr(airflow_database.subprocess, "run", run)
    return asked


def test_records_that_are_older_than_logs_may_be_are_removed_and_counted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a task, which may not use the database
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "airflow-db-not-allowed:///")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")
    asked = answering(monkeypatch, 0, SAID)
    assert clean(settings) == ("15 records of Airflow's older than 30 days are gone", "")
    [(command, environment)] = asked
    assert command[1:5] == ["-m", "airflow", "db", "clean"]
    before = datetime.fromisoformat(command[command.index("--clean-before-timestamp") + 1])
    assert timedelta(0) <= datetime.now(UTC) - timedelta(days=30) - before < timedelta(minutes=1)
    assert {"--yes", "--skip-archive", "--error-on-cleanup-failure"} <= {*command}
    assert "not-allowed" not in environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert "_AIRFLOW_PROCESS_CONTEXT" not in environment


@pytest.mark.parametrize(("days", "kept"), [(1, 30), (400, 400)])
def test_a_run_that_may_be_on_its_way_stays_however_soon_logs_leave(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, days: int, kept: int
) -> None:
    answering(monkeypatch, 0, SAID)
    assert f"older than {kept} days" in clean(settings.model_copy(update={"log_retention_days": days}))[0]


def test_what_cannot_be_cleaned_is_told_with_the_command_that_says_why(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, 1, SAID, "Traceback\nRuntimeError: ['log']\n")
    found, do = clean(settings)
    assert found == "Airflow's database was not cleaned: RuntimeError: ['log']"
    assert do.startswith("`tidemark airflow db clean --tables ")


def test_the_tables_are_some_that_airflow_cleans() -> None:
    from airflow.utils.db_cleanup import config_dict

    assert {*airflow_database.TABLES} <= {*config_dict}
    # what hangs on them is cleaned, too: nothing that is in use and may be old
    cleaned, more = set(), {*airflow_database.TABLES}
    while more:
        cleaned |= more
        more = {each for table in more for each in config_dict[table].dependent_tables or []} - cleaned
    assert not cleaned & {"dag", "dag_version", "trigger", "import_error"}
