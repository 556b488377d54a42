"""Run Airflow's scheduler in a process that has imported what tasks import: its executor's workers, and the tasks that
they fork, have it from their first moment.

`python -m spark_jobs.server.preloaded MODULE… -- ARGUMENT…` imports the modules and is `airflow ARGUMENT…` then.
"""

from __future__ import annotations

import importlib
import runpy
import sys


def main() -> None:
    """See the module."""
    end = sys.argv.index("--")
    for name in sys.argv[1:end]:
        importlib.import_module(name)
    sys.argv = ["airflow", *sys.argv[end + 1 :]]
    runpy.run_module("airflow", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
