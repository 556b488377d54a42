"""Airflow's scheduler in a process that has already imported the modules of tasks. So its executor's workers, and the
tasks that they fork, have these modules from their start.

`python -m spark_jobs.server.preloaded MODULE… -- ARGUMENT…` imports the modules and then runs `airflow ARGUMENT…`.
Tasks send their token to Airflow's port, so the listener there is checked first, too.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any

from spark_jobs.config import Settings, load_settings
from spark_jobs.server.listeners import trace_extension


def main() -> None:
    """Import the modules of the command line, and become `airflow` with the arguments after `--`."""
    end = sys.argv.index("--")
    for name in sys.argv[1:end]:
        importlib.import_module(name)
    check_listeners(load_settings())
    sys.argv = ["airflow", *sys.argv[end + 1 :]]
    runpy.run_module("airflow", run_name="__main__", alter_sys=True)


def check_listeners(settings: Settings) -> None:
    """Make the clients by which tasks call Airflow check the listener of each connection that they open."""
    from airflow.sdk.api.client import Client

    clients: Any = Client
    request = clients.request

    def request_checked(client: Any, *arguments: Any, **wishes: Any) -> Any:
        return request(client, *arguments, **{**wishes, "extensions": trace_extension(settings)})

    clients.request = request_checked


if __name__ == "__main__":
    main()
