"""The size of the Arrow batches that Spark hands to Python workers.

Spark ends a batch after `spark.sql.execution.arrow.maxRecordsPerBatch` rows (10,000) or, if earlier, once the batch has
`maxBytesPerBatch` bytes (64 MiB). To check the bytes, Spark adds up the buffers of all columns after every row. This
takes longer than writing a row of a dozen numbers. Spark takes the greatest possible number for "no such bound", and
then does not count bytes. Spark reads the bound when a job starts, so it cannot be set for a single DataFrame.
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
    """Make the session end batches by their rows alone, from now on, if `values` are all numbers and times.

    If the session already has a bound of bytes, it keeps that bound. Keys are assumed to be short.
    """
    if all(isinstance(kind, _SMALL) for kind in values) and MAX_BYTES not in spark.conf.getAll:
        spark.conf.set(MAX_BYTES, UNBOUNDED)
