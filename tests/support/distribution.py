"""The limits of `distribution` for tests: so low that small work is distributed as large work is."""

from __future__ import annotations

import pytest

from spark_jobs import distribution
from spark_jobs.landing import blocks
from spark_jobs.restatement import chains, windows


def distribute_all(patch: pytest.MonkeyPatch) -> None:
    """Let every stage do its work in Spark's tasks, several where there are rows for them."""
    patch.setattr(distribution, "is_local", lambda spark: spark is None)
    patch.setattr(distribution, "CLUSTER_MEMORY", 0)
    patch.setattr(distribution, "cores_of", lambda _: 3)
    patch.setattr(distribution, "LEAST_BYTES_A_TASK", 1)
    patch.setattr(blocks, "LEAST_BUCKET_BYTES", 1)


def deal_by_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every stage on a lake without Spark deal its rows to many tasks, and all blocks wait on the disk."""
    patch.setattr(distribution, "LOCAL_MEMORY", 0)
    patch.setattr(distribution, "BYTES_A_TASK", 500)
    patch.setattr(chains, "BYTES_A_TASK", 500)
    patch.setattr(windows, "ROWS_ALONE", 5)
