"""A session ends Arrow batches by rows alone once it makes windows of numbers, unless it has said otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.arrow_batches import MAX_BYTES, UNBOUNDED
from spark_jobs.engine.spark.windows import Aggregate, count, last, tumbling_windows

pytestmark = pytest.mark.spark


@pytest.fixture
def unset(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.getAll.get(MAX_BYTES)
    spark.conf.unset(MAX_BYTES)
    yield spark
    if before is None:
        spark.conf.unset(MAX_BYTES)
    else:
        spark.conf.set(MAX_BYTES, before)


def make_windows(spark: SparkSession, aggregate: Aggregate) -> None:
    rows = spark.sql("SELECT 'a' AS k, id AS t, id AS v, CAST(id AS STRING) AS text FROM range(3)")
    made = tumbling_windows(rows, key="k", time="t", size=2, aggregates={"r": aggregate}, rows_a_slice=None)
    assert made.count() == 2


def test_windows_of_numbers_take_the_bound_away(unset: SparkSession) -> None:
    make_windows(unset, last("v"))
    assert unset.conf.get(MAX_BYTES) == UNBOUNDED


def test_a_bound_that_the_session_has_set_stands(unset: SparkSession) -> None:
    unset.conf.set(MAX_BYTES, "1048576")
    make_windows(unset, count())
    assert unset.conf.get(MAX_BYTES) == "1048576"


def test_texts_may_be_large_and_keep_the_bound(unset: SparkSession) -> None:
    before = unset.conf.get(MAX_BYTES)
    make_windows(unset, last("text"))
    assert unset.conf.get(MAX_BYTES) == before != UNBOUNDED
