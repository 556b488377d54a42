"""The health check of a service that runs by itself, such as in a container.

    python -m spark_jobs.server.service_health NAME

The exit code is 0 if the service works, else 1, and a line gives the answer. `NAME` is one of these:

- `master`: the standalone Spark master of the settings;
- `worker`: the standalone Spark worker of this machine, whose page is at the port `SPARK_WORKER_WEBUI_PORT`;
- `api-server`, `scheduler`, `dag-processor`, `triggerer`: a process of Airflow. The API server is asked about all of
  them; it knows when each last reported.

The lake server has `tidemark status`.
"""

from __future__ import annotations

import os
import sys

import httpx

from spark_jobs.config import Settings, load_settings
from spark_jobs.jvm.executors import master_answers
from spark_jobs.server.health import airflow_reports

SPARK_MASTER, SPARK_WORKER, API_SERVER = "master", "worker", "api-server"
REPORTS = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
"""Process of Airflow -> its name in Airflow's health report."""


def ask(settings: Settings, name: str) -> tuple[bool, str]:
    """True if the service works, and its answer. `name`: as on the command line."""
    if name == SPARK_MASTER:
        works = master_answers(settings)
        return works, f"{settings.master} {'answers' if works else 'does not answer'}"
    try:
        if name == SPARK_WORKER:
            return _ask_worker()
        reports = airflow_reports(settings)
    except httpx.HTTPError as error:
        return False, f"{type(error).__name__}: {error}"
    answer = "healthy" if name == API_SERVER else reports.get(REPORTS[name], "unknown")
    return answer == "healthy", answer


def _ask_worker() -> tuple[bool, str]:
    """True if the worker has a master, and the master's address."""
    port = os.environ.get("SPARK_WORKER_WEBUI_PORT", "8081")
    with httpx.Client(timeout=10.0, trust_env=False) as client:
        master = client.get(f"http://127.0.0.1:{port}/json/").raise_for_status().json()["masterurl"]
    return bool(master), master or "no master yet"


def main(arguments: list[str]) -> int:
    """Print the answer of the service that the command line names, and return the exit code."""
    names = (SPARK_MASTER, SPARK_WORKER, API_SERVER, *REPORTS)
    if len(arguments) != 1 or arguments[0] not in names:
        sys.stderr.write(f"expected one of {', '.join(names)}, found {' '.join(arguments) or 'nothing'}\n")
        return 2
    works, answer = ask(load_settings(), arguments[0])
    sys.stdout.write(f"{answer}\n")
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
