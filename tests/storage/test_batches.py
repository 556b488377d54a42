"""Batches are cut by rows alone where that is asked for, and by bytes again afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.arrow_batches import MAX_BYTES, MAX_ROWS, cut_by_rows

pytestmark = pytest.mark.spark


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": [batch.num_rows]})


def handed_over(spark: SparkSession) -> int:
    """Rows of the largest batch that a worker was given."""
    return max(row.n for row in spark.range(0, 20_000, 1, 1).mapInArrow(sizes, "n LONG").collect())


def test_small_rows_are_cut_by_their_number_alone(spark: SparkSession) -> None:
    before = spark.conf.get(MAX_BYTES)
    spark.conf.set(MAX_BYTES, "1024")
    try:
        with cut_by_rows(spark, rows_are_small=False):
            assert handed_over(spark) < 1000
        with pytest.raises(ZeroDivisionError), cut_by_rows(spark, rows_are_small=True):
            assert handed_over(spark) == 10_000
            raise ZeroDivisionError
        assert handed_over(spark) < 1000
        with cut_by_rows(spark, rows_are_small=True, most_rows=3000):
            assert handed_over(spark) == 3000
        assert spark.conf.get(MAX_ROWS) == "10000"
    finally:
        spark.conf.set(MAX_BYTES, str(before))
