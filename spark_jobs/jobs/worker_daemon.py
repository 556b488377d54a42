"""The process that Spark forks its Python workers from, with every kernel loaded.

Spark starts `pyspark.daemon` once per JVM and forks a worker for each task that finds none idle; idle ones end after a
minute. A worker forked from the plain daemon imports numpy, Arrow and numba and loads the compiled kernels, some 3 s of
work, in every run; forked from this one it finds them in memory. (Setting `spark.python.daemon.module`.)
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

from spark_jobs.jobs import rehearse


def main() -> None:
    """Load the kernels, then serve Spark until it closes our input."""
    # the daemon tells its port on stdout: nothing else is written there
    rehearse.load_kernels("worker daemon")
    # what is loaded stays shared between the workers: a collection would write to its pages
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
