"""How rows are cut into the Arrow batches that Spark hands to Python workers.

Spark ends a batch after `spark.sql.execution.arrow.maxRecordsPerBatch` rows (10,000) or, if earlier, once it holds
`maxBytesPerBatch` (64 MiB). To know the latter it adds up the buffers of all columns after every row, which takes
longer than to write a row of a dozen numbers. The greatest number it takes for "no such bound", and then it does not
count. Spark reads the bound when a job starts, so it can't be set for one DataFrame alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, NullType, NumericType, TimestampNTZType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNBOUNDED = str((1 << 31) - 1)
_SMALL = (NumericType, TimestampType, TimestampNTZType, NullType)


def count_rows_alone(spark: SparkSession, values: Iterable[DataType]) -> None:
    """Let the session end batches by their rows alone, from now on, if the values handed over are numbers and times.

    A session that has set the bound itself keeps it. Keys are taken to be short.
    """
    if all(isinstance(kind, _SMALL) for kind in values) and MAX_BYTES not in spark.conf.getAll:
        spark.conf.set(MAX_BYTES, UNBOUNDED)
