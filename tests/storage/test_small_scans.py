"""Scans that are prepared in memory read the files that Delta's own preparation reads, or more, and the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns]

FILES = "spark.tidemark.scan.files"
PARTS = (None, "", "a", "b c", "it's 50% #1/ü", "B")
PREDICATES = (
    "kind = 'a'",
    "kind IN ('a', 'b c', \"it's 50% #1/ü\")",
    "kind IS NULL",
    "kind IS NOT NULL AND n > 3",
    "kind <=> NULL",
    "upper(kind) = 'B'",
    "KIND LIKE 'b%' OR day = DATE'2024-02-29'",
    "day >= DATE'2024-01-02' AND day < '2024-03-01'",
    "year(day) = 2024 AND big = -9223372036854775808",
    "big > 0 AND NOT flag",
    "flag",
    "NOT flag OR n IS NULL",
    "n BETWEEN 10 AND 20 AND kind = 'a'",
    "kind = 'a' AND n = (SELECT max(n) FROM {0})",
    "kind IN (SELECT kind FROM {0} WHERE n = 7)",
    "rand() < 2 AND kind = 'a'",
    "false",
    "1 = 1",
    "kind = 'nothing of this name'",
    "_metadata.file_size > 0 AND kind = 'a'",
    "coalesce(kind, 'none') = 'none'",
)


@pytest.fixture(scope="module")
def parted(spark: SparkSession) -> Iterator[str]:
    """A table of four partition columns, a file for most of its rows, which no test changes."""
    name, chance = "small_scans.parted", random.Random(5)
    spark.sql("CREATE DATABASE small_scans")
    create(spark, name)
    days = (None, date(2024, 1, 1), date(2024, 2, 29), date(2023, 12, 31))
    rows = [
        (n, chance.choice(PARTS), chance.choice(days), chance.choice((None, 1, -(2**63))), chance.choice((True, False)))
        for n in range(24)
    ]
    for part in (rows[:16], rows[16:]):
        spark.createDataFrame(part, spark.table(name).schema).write.format("delta").mode("append").saveAsTable(name)
    yield name
    spark.sql("DROP DATABASE small_scans CASCADE")
    spark.conf.unset(FILES)


def create(spark: SparkSession, name: str, vectors: str = "false") -> None:
    columns = "n INT, kind STRING, day DATE, big BIGINT, flag BOOLEAN"
    spark.sql(
        f"CREATE TABLE {name} ({columns}) USING delta PARTITIONED BY (kind, day, big, flag)"
        f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
    )


def asked(spark: SparkSession, query: str, most: int) -> tuple[list[str], int]:
    """The rows of a query, and how many files its plan reads of a table; 0 files in memory: as Delta prepares it."""
    spark.conf.set(FILES, str(most))
    frame = spark.sql(query)
    return sorted(map(repr, frame.collect())), len(frame.inputFiles())


def jobs_of(spark: SparkSession, query: str, most: int = 256) -> int:
    """Jobs that Spark runs for a query."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    asked(spark, query, most)
    return scheduler.numTotalJobs() - before


@pytest.mark.parametrize("predicate", PREDICATES)
def test_the_rows_and_files_are_those_of_deltas_own_preparation(
    spark: SparkSession, parted: str, predicate: str
) -> None:
    query = f"SELECT * FROM {parted} WHERE {predicate.format(parted)}"
    assert asked(spark, query, 256)[0] == asked(spark, query, 0)[0]
    if "SELECT" not in predicate and "rand" not in predicate and "n " not in predicate:
        assert asked(spark, query, 256) == asked(spark, query, 0), "partitions choose the same files"


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_tables_that_change_are_read_as_they_are(spark: SparkSession, database: str, parted: str, vectors: str) -> None:
    """Rows are removed with their files, or by deletion vectors."""
    table = f"{database}.changing"
    create(spark, table, vectors)
    spark.sql(f"INSERT INTO {table} SELECT * FROM {parted}")
    counted = f"SELECT kind, count(*) AS n FROM {table} GROUP BY kind"
    for change in (
        f"INSERT INTO {table} VALUES (100, 'a', DATE'2024-01-01', 1, true)",
        f"DELETE FROM {table} WHERE kind = 'a' AND n < 10",
        f"UPDATE {table} SET kind = 'new' WHERE n = 7",
        f"MERGE INTO {table} t USING (SELECT 3 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
        f"DELETE FROM {table} WHERE kind = 'B'",
        f"OPTIMIZE {table}",
        f"TRUNCATE TABLE {table}",
    ):
        spark.conf.set(FILES, "256")
        spark.sql(change).collect()
        assert asked(spark, counted, 256)[0] == asked(spark, counted, 0)[0], change
    past = f"SELECT * FROM {table} VERSION AS OF 2"
    assert asked(spark, past, 256)[0] == asked(spark, past, 0)[0]


def test_a_table_of_more_files_is_deltas_to_prepare(spark: SparkSession, parted: str) -> None:
    query = f"SELECT * FROM {parted} WHERE n = 7"
    whole = len(spark.table(parted).inputFiles())
    assert whole > 8
    # by its statistics one file can have the row
    assert asked(spark, query, 256)[1] == asked(spark, query, whole - 1)[1] == asked(spark, query, 0)[1] == 1
    few = f"SELECT * FROM {parted} WHERE n = 7 AND kind = 'a' AND day = DATE'2024-01-01'"
    assert asked(spark, few, 256)[0] == asked(spark, few, 0)[0]


def test_no_query_is_asked_of_a_tables_files(spark: SparkSession, parted: str) -> None:
    query = f"SELECT n FROM {parted} WHERE kind = 'a'"
    jobs_of(spark, query)
    assert (jobs_of(spark, query), jobs_of(spark, query, most=0)) == (1, 2)


def test_a_table_that_changed_is_followed_by_its_commits(spark: SparkSession, database: str) -> None:
    """Past a checkpoint, too, which Delta writes at version 10."""
    table = f"{database}.followed"
    create(spark, table)
    query = f"SELECT n FROM {table}"
    for n in range(14):
        spark.sql(f"INSERT INTO {table} VALUES ({n}, 'a', DATE'2024-01-01', 1, true)")
        if n % 3 == 2:
            spark.sql(f"DELETE FROM {table} WHERE n = {n - 1}")
        if n == 0 or n % 4 == 3:
            jobs = jobs_of(spark, query)
            assert jobs > 1 if n == 0 else jobs == 1, f"only that of the question, after row {n}"
            assert asked(spark, query, 256) == asked(spark, query, 0)


def test_a_log_that_is_another_one_is_not_followed(spark: SparkSession, database: str) -> None:
    """Somebody takes the last commit away, and a writer commits other rows in its place."""
    table = f"{database}.rewritten"
    create(spark, table)
    row = f"INSERT INTO {table} VALUES ({{}}, 'a', DATE'2024-01-01', 1, true)"
    spark.sql(row.format(1))
    spark.sql(row.format(22))
    query = f"SELECT n FROM {table}"
    assert asked(spark, query, 256)[0] == ["Row(n=1)", "Row(n=22)"]
    location = spark.sql(f"DESCRIBE DETAIL {table}").head()["location"]  # type: ignore[index]
    for name in ("json", "crc"):
        (Path(location.removeprefix("file:")) / f"_delta_log/00000000000000000002.{name}").unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    spark.sql(row.format(333))
    spark.sql(row.format(4444))
    assert asked(spark, query, 256)[0] == ["Row(n=1)", "Row(n=333)", "Row(n=4444)"]


def test_a_shallow_clone_is_read_with_the_files_of_its_source(spark: SparkSession, database: str, parted: str) -> None:
    """Their paths are absolute."""
    table = f"{database}.cloned"
    spark.sql(f"CREATE TABLE {table} SHALLOW CLONE {parted}")
    query = f"SELECT n FROM {table}"
    for change in (
        f"DELETE FROM {table} WHERE kind = 'a'",
        f"INSERT INTO {table} VALUES (100, 'a', DATE'2024-01-01', 1, true)",
        f"UPDATE {table} SET n = 200 WHERE n = 7",
    ):
        asked(spark, query, 256)
        spark.sql(change)
        assert asked(spark, query, 256) == asked(spark, query, 0), change
