"""The process from which Spark forks its Python workers, with every kernel loaded.

Spark starts `pyspark.daemon` once per JVM. It forks a worker for each task that finds no idle one; idle workers end
after a minute. A worker forked from the plain daemon imports numpy, Arrow and numba and loads the compiled kernels in
every run, some 3 s of work. A worker forked from this process has them in memory. The setting
`spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from importlib import metadata

from spark_jobs.code_version import WORKER_VERSIONS, worker_versions


def find_difference(expected: dict[str, str]) -> str | None:
    """The sentence that refuses this machine, since it has other versions than the driver; None if it has the same."""
    try:
        present = worker_versions()
    except metadata.PackageNotFoundError as error:
        present = {**expected, str(error.name): "none"}
    others = [name for name, version in expected.items() if present.get(name) != version]
    if not others:
        return None
    return (
        f"worker_differs: expected {', '.join(f'{name} {expected[name]}' for name in others)}, found"
        f" {', '.join(f'{name} {present.get(name)}' for name in others)} on {socket.gethostname()}, in {sys.executable}"
    )


def main() -> int:
    """Load the kernels, then serve Spark until it closes this process's input. Returns 1 if this machine differs."""
    expected = os.environ.get(WORKER_VERSIONS)
    if expected and (difference := find_difference(json.loads(expected))):
        sys.stderr.write(f"{difference}\n")
        return 1
    # not before: a machine that differs may lack what they import
    from pyspark.daemon import manager

    from spark_jobs.jobs import rehearse

    # the daemon writes its port to stdout: nothing else may be written there
    rehearse.load_kernels("worker daemon")
    # the loaded kernels stay shared between the workers: a garbage collection would write to their pages
    gc.freeze()
    manager()
    return 0


if __name__ == "__main__":
    sys.exit(main())
