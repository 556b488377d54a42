"""Scratch databases lose what is old, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings

pytestmark = pytest.mark.spark

DATABASES = ("scratch_ann", "scratch_bob", "no_scratch")


@pytest.fixture
def databases(spark: SparkSession) -> Iterator[None]:
    for database in DATABASES:
        spark.sql(f"CREATE DATABASE {database}")
    yield
    for database in DATABASES:
        spark.sql(f"DROP DATABASE {database} CASCADE")


def drop(spark: SparkSession, oldest: int) -> None:
    scratch = spark._jvm.org.apache.spark.sql.hive.thriftserver.tidemark.Scratch  # type: ignore[union-attr]
    scratch.drop(spark._jsparkSession, oldest)


def test_folders_that_are_no_tables_go_when_they_are_old(
    spark: SparkSession, spark_settings: Settings, databases: None
) -> None:
    """A statement leaves one that fails after it has written, and a catalog that was lost leaves all."""
    lake = spark_settings.lake_path
    if lake is None:
        pytest.skip("the times of files in a bucket are the bucket's")
    # the catalog counts seconds
    oldest = int(time.time()) * 1000 - 10_000
    spark.sql("CREATE TABLE scratch_ann.kept USING delta AS SELECT 1 AS a")
    for name in ("scratch_ann.db/old", "scratch_ann.db/%2e%2e", "scratch_lost.db/old", "no_scratch.db/old"):
        file = lake / name / "_delta_log" / "0.json"
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (oldest / 1000 - 10,) * 2)
    (lake / "scratch_ann.db" / "new").mkdir()
    (lake / "scratch_ann.db" / "new" / "file").touch()
    drop(spark, oldest)
    assert sorted(folder.name for folder in (lake / "scratch_ann.db").iterdir()) == ["kept", "new"]
    assert not list((lake / "scratch_lost.db").iterdir())
    assert (lake / "no_scratch.db" / "old").exists()


def test_what_is_old_goes_from_scratch_databases(spark: SparkSession, databases: None) -> None:
    for name in ("scratch_ann.old", "scratch_bob.old", "no_scratch.old"):
        spark.sql(f"CREATE TABLE {name} USING delta AS SELECT 1 AS a")
    spark.sql("CREATE VIEW scratch_ann.an_old_view AS SELECT 1 AS a")
    # the catalog counts seconds
    time.sleep(1.1)
    oldest = int(time.time()) * 1000
    spark.sql("CREATE TABLE scratch_bob.new USING delta AS SELECT 2 AS a")
    drop(spark, oldest)
    kept = {
        database: [row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect()] for database in DATABASES
    }
    assert kept == {"scratch_ann": [], "scratch_bob": ["new"], "no_scratch": ["old"]}
