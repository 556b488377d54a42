"""A query of a mart that is not there: no version of it has passed its tests, or it was never built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.cli.commands.sql import _run
from spark_jobs.sql_refusals import SqlRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def marts(spark: SparkSession) -> SparkSession:
    """A session whose lake has the mart `unproven` in `marts_staging` alone."""
    for name in ("marts", "marts_staging"):
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    spark.sql("CREATE OR REPLACE TABLE marts_staging.unproven USING delta AS SELECT 1 AS n")
    return spark


def refuse(marts: SparkSession, statement: str) -> SqlRefused:
    with pytest.raises(SqlRefused) as refusal:
        _run(marts, statement, 10)
    return refusal.value


def test_a_mart_that_never_passed_its_tests_is_said_to_be_built(marts: SparkSession) -> None:
    refusal = refuse(marts, "SELECT * FROM marts.unproven")
    assert refusal.consequence == "marts.unproven is built, and no version of it has passed its tests so far"
    assert "tidemark quality" in refusal.next_step


def test_a_mart_that_was_never_built_is_said_to_be_none(marts: SparkSession) -> None:
    refusal = refuse(marts, "SELECT * FROM marts.nothing_such")
    assert refusal.consequence.startswith("marts.nothing_such is not built")
    assert "SHOW VIEWS IN marts" in refusal.next_step


def test_another_missing_table_is_none_of_the_marts(marts: SparkSession) -> None:
    assert "SHOW TABLES IN silver" in refuse(marts, "SELECT * FROM silver.nothing_such").next_step
