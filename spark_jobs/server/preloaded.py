"""Run Airflow's scheduler in a process that has imported what tasks import: its executor's workers, and the tasks that
they fork, have it from their first moment.

`python -m spark_jobs.server.preloaded MODULE… -- ARGUMENT…` imports the modules and is `airflow ARGUMENT…` then. Tasks
send their token to Airflow's port: there, too, the listener is checked first.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any

from spark_jobs.config import Settings, load_settings
from spark_jobs.server.listeners import traced


def main() -> None:
    """See the module."""
    end = sys.argv.index("--")
    for name in sys.argv[1:end]:
        importlib.import_module(name)
    check_listeners(load_settings())
    sys.argv = ["airflow", *sys.argv[end + 1 :]]
    runpy.run_module("airflow", run_name="__main__", alter_sys=True)


def check_listeners(settings: Settings) -> None:
    """Have the clients with which tasks speak to Airflow check each connection that they open."""
    from airflow.sdk.api.client import Client

    clients: Any = Client
    request = clients.request

    def checked(client: Any, *arguments: Any, **wishes: Any) -> Any:
        return request(client, *arguments, **{**wishes, "extensions": traced(settings)})

    clients.request = checked


if __name__ == "__main__":
    main()
