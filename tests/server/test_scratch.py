"""Scratch databases lose what is old, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DATABASES = ("scratch_ann", "scratch_bob", "no_scratch")


@pytest.fixture
def databases(spark: SparkSession) -> Iterator[None]:
    for database in DATABASES:
        spark.sql(f"CREATE DATABASE {database}")
    yield
    for database in DATABASES:
        spark.sql(f"DROP DATABASE {database} CASCADE")


def test_what_is_old_goes_from_scratch_databases(spark: SparkSession, databases: None) -> None:
    for name in ("scratch_ann.old", "scratch_bob.old", "no_scratch.old"):
        spark.sql(f"CREATE TABLE {name} USING delta AS SELECT 1 AS a")
    spark.sql("CREATE VIEW scratch_ann.an_old_view AS SELECT 1 AS a")
    # the catalog counts seconds
    time.sleep(1.1)
    oldest = int(time.time()) * 1000
    spark.sql("CREATE TABLE scratch_bob.new USING delta AS SELECT 2 AS a")
    scratch = spark._jvm.org.apache.spark.sql.hive.thriftserver.tidemark.Scratch  # type: ignore[union-attr]
    scratch.drop(spark._jsparkSession, oldest)
    kept = {
        database: [row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect()] for database in DATABASES
    }
    assert kept == {"scratch_ann": [], "scratch_bob": ["new"], "no_scratch": ["old"]}
