"""The process from which Spark forks its Python workers, with every kernel loaded.

Spark starts `pyspark.daemon` once per JVM. It forks a worker for each task that finds no idle one; idle workers end
after a minute. A worker forked from the plain daemon imports numpy, Arrow and numba and loads the compiled kernels in
every run, some 3 s of work. A worker forked from this process has them in memory. The setting
`spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

from spark_jobs.jobs import rehearse


def main() -> None:
    """Load the kernels, then serve Spark until it closes this process's input."""
    # the daemon writes its port to stdout: nothing else may be written there
    rehearse.load_kernels("worker daemon")
    # the loaded kernels stay shared between the workers: a garbage collection would write to their pages
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
