"""A table that lacks columns is given them; those that say what older rows have in them, with it and in one commit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.storage.lakes.spark_lake import SparkLake

pytestmark = pytest.mark.spark

KEPT = (Column("k", "STRING", "Key."), Column("n", "BIGINT", "Number."))


def test_rows_of_before_have_in_a_new_column_what_it_says(spark: SparkSession, database: str) -> None:
    gone = Column("half", "INT", "What the number was made of.")
    older = Table(database, "numbers", "Numbers.", (KEPT[0], gone), ("k",))
    doubled = Column("n", "BIGINT", "Number.", filled="IF(k = 'none', NULL, 2 * half)")
    table = replace(older, columns=(KEPT[0], doubled, Column("note", "STRING", "A note.")))
    SparkLake(spark).catalog.ensure({}, [older])
    spark.sql(f"INSERT INTO {table.qualified} VALUES ('a', 1), ('b', 21), ('none', 3)")
    expected = {("a", 2, None), ("b", 42, None), ("none", None, None)}

    planned = OverlayLake(SparkLake(spark)).read(table).select("k", "n", "note")
    assert {tuple(row) for row in planned.collect()} == expected
    lake = SparkLake(spark)
    lake.catalog.widen([table])
    assert lake.commits == 1
    assert {tuple(row) for row in lake.read(table).select("k", "n", "note").collect()} == expected
    assert lake.catalog.missing_columns([table]) == {}
    lake.catalog.widen([table])
    assert lake.commits == 1
    described = spark.sql(f"DESCRIBE {table.qualified}").collect()
    assert ("n", "bigint", "Number.") in [tuple(row) for row in described]
    assert spark.sql(f"DESCRIBE DETAIL {table.qualified}").head(1)[0].partitionColumns == ["k"]

    lake.append(replace(table, columns=(*KEPT,)), spark.createDataFrame([("c", 5)], "k STRING, n BIGINT"), None)
    assert spark.table(table.qualified).where("k = 'c'").select("n", "half").first() == (5, None)
