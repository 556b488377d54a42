"""Airflow's own database, kept small: its records of old runs leave, as old logs do."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from spark_jobs.config import Settings
from spark_jobs.server.airflow_parts import airflow_environment

TABLES = ("asset_event", "callback", "dag_run", "job", "log", "revoked_token", "task_reschedule")
"""What is cleaned, each with what hangs on it: of `dag_run` that is tasks, their tries, XComs and deadlines. The newest
scheduled run of each DAG stays. Left out are DAGs and their versions, import errors and triggers: those that are in use
may be old."""

LEAST_DAYS = 30
"""Airflow's command asks no run whether it is still on its way; none waits for its files or sources for so long."""

BATCH = 10_000
"""Rows that are deleted at a time: Airflow goes on meanwhile."""

PATIENCE_S = 3600.0

_FOUND = re.compile(r"^Found (\d+) rows", re.MULTILINE)


def clean(settings: Settings) -> tuple[str, str]:
    """Remove from Airflow's database what is older than logs may be; returns what was done, and what somebody has to do
    about it (nothing: an empty text)."""
    days = max(settings.log_retention_days, LEAST_DAYS)
    before = datetime.now(UTC) - timedelta(days=days)
    arguments = [
        *("--tables", ",".join(TABLES)),
        *("--clean-before-timestamp", before.isoformat(timespec="seconds")),
        *("--batch-size", str(BATCH)),
        *("--yes", "--skip-archive", "--error-on-cleanup-failure"),
    ]
    # a task of Airflow's may not use its database; this is no task's work, and gets the environment of Airflow's parts
    environment = airflow_environment(settings)
    environment.pop("_AIRFLOW_PROCESS_CONTEXT", None)
    command = [sys.executable, "-m", "airflow", "db", "clean", *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"Airflow's database was not cleaned within {PATIENCE_S:.0f} s", _by_hand(arguments)
    if done.returncode:
        said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        return f"Airflow's database was not cleaned: {said[-1] if said else 'no message'}", _by_hand(arguments)
    rows = sum(int(count) for count in _FOUND.findall(done.stdout))
    return f"{rows} records of Airflow's older than {days} days are gone", ""


def _by_hand(arguments: list[str]) -> str:
    """What shows what is wrong."""
    shown = " ".join(f"'{each}'" if ":" in each else each for each in arguments)
    return f"`tidemark airflow db clean {shown} --verbose` says why"
