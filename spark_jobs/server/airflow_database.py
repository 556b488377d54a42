"""The cleaning of Airflow's own database: records of old runs are deleted, as old logs are."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from spark_jobs.config import Settings
from spark_jobs.server.airflow_parts import airflow_environment

TABLES = ("asset_event", "callback", "dag_run", "job", "log", "revoked_token", "task_reschedule")
"""The tables that are cleaned, each with its dependent rows: for `dag_run` tasks, their tries, XComs and deadlines. The
newest scheduled run of each DAG is kept. DAGs and their versions, import errors and triggers are not cleaned, since old
ones may be in use."""

LEAST_DAYS = 30
"""The least age in days of records to delete. Airflow's command also deletes runs under way, but none takes so long."""

BATCH = 10_000
"""The number of rows deleted at a time, so that Airflow can go on meanwhile."""

PATIENCE_S = 3600.0

_FOUND = re.compile(r"^Found (\d+) rows", re.MULTILINE)


def clean(settings: Settings) -> tuple[str, str]:
    """Delete the records in Airflow's database that are older than `log_retention_days`, and at least `LEAST_DAYS`.

    Returns a sentence about the result, and the next step for a person (empty if there is none)."""
    days = max(settings.log_retention_days, LEAST_DAYS)
    before = datetime.now(UTC) - timedelta(days=days)
    arguments = [
        *("--tables", ",".join(TABLES)),
        *("--clean-before-timestamp", before.isoformat(timespec="seconds")),
        *("--batch-size", str(BATCH)),
        *("--yes", "--skip-archive", "--error-on-cleanup-failure"),
    ]
    # Airflow forbids tasks to use its database; this is no task's work, so it gets the environment of Airflow's parts
    environment = airflow_environment(settings)
    environment.pop("_AIRFLOW_PROCESS_CONTEXT", None)
    command = [sys.executable, "-m", "airflow", "db", "clean", *arguments]
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return f"Airflow's database was not cleaned within {PATIENCE_S:.0f} s", _by_hand(arguments)
    if process.returncode:
        messages = [line.strip() for line in f"{process.stdout}\n{process.stderr}".splitlines() if line.strip()]
        return f"Airflow's database was not cleaned: {messages[-1] if messages else 'no message'}", _by_hand(arguments)
    rows = sum(int(count) for count in _FOUND.findall(process.stdout))
    return f"{rows} records of Airflow's older than {days} days are gone", ""


def _by_hand(arguments: list[str]) -> str:
    """The next step if cleaning failed: the command by which a person sees the reason."""
    quoted = " ".join(f"'{each}'" if ":" in each else each for each in arguments)
    return f"`tidemark airflow db clean {quoted} --verbose` says why"
