"""The chains and checkpoints of gold in Spark DataFrames: compaction, states as of a time, and their files."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.spark.checkpoints.frames import (
        BUCKET,
        BUCKETS,
        LEAST_ROWS,
        NEEDED,
        PART_BYTES,
        PLACE,
        ChainFrame,
        columns_needed,
        compact_deltas,
        join_as_of,
        state_columns,
        together,
    )
    from spark_jobs.engine.spark.checkpoints.stored import read_chains, write_chains
    from spark_jobs.engine.spark.checkpoints.versions import versions_at
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "BUCKET",
    "BUCKETS",
    "LEAST_ROWS",
    "NEEDED",
    "PART_BYTES",
    "PLACE",
    "ChainFrame",
    "columns_needed",
    "compact_deltas",
    "join_as_of",
    "read_chains",
    "state_columns",
    "together",
    "versions_at",
    "write_chains",
]
