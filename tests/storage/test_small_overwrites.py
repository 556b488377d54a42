"""Small tables are overwritten as Delta does it: the same rows, files that go, notes of the commit, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.storage.delta.log_files import LOG_DIR, version_file

pytestmark = [pytest.mark.spark, pytest.mark.turns]

FILES = "spark.tidemark.scan.files"
NOTE = "spark.databricks.delta.commitInfo.userMetadata"
ROWS = "SELECT id AS n, CAST(id AS STRING) AS word, timestamp_micros(id) AS at FROM range({})"


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder of the table `small.words`, of two files."""
    place = tmp_path / "wörds of 50%"
    spark.sql("CREATE DATABASE small")
    spark.sql(f"CREATE TABLE small.words (n BIGINT, word STRING, at TIMESTAMP) USING delta LOCATION '{place}'")
    for _ in range(2):
        spark.sql(f"INSERT INTO small.words {ROWS.format(3)}")
    yield place
    spark.sql("DROP DATABASE small CASCADE")
    for name in (FILES, NOTE):
        spark.conf.unset(name)


def newest(place: Path) -> dict[str, list[dict[str, Any]]]:
    """The actions of the newest commit, by their kinds."""
    text = (place / LOG_DIR / version_file(DeltaTable(str(place)).version())).read_text()
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        for kind, action in json.loads(line).items():
            actions.setdefault(kind, []).append(action)
    return actions


def rows(place: Path) -> list[dict[str, Any]]:
    table = DeltaTable(str(place)).to_pyarrow_table()
    return pa.Table.sort_by(table, [("n", "ascending")]).to_pylist()


@pytest.mark.parametrize("files", ["256", "0"])
def test_its_commit_is_that_of_delta(spark: SparkSession, place: Path, files: str) -> None:
    """With no files allowed Delta does it: that is the twin."""
    spark.conf.set(FILES, files)
    spark.sql(f'SET {NOTE} = {{"published": 7}}')
    for n in (5, 0, 2):
        before = set(pa.table(DeltaTable(str(place)).get_add_actions())["path"].to_pylist())
        spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(n)} CLUSTER BY n")
        actions = newest(place)
        assert {file["path"] for file in actions.get("remove", [])} == before or not before
        (commit,) = actions["commitInfo"]
        assert (commit["operation"], commit["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
        assert commit["operationParameters"]["partitionBy"] == "[]"
        assert commit["userMetadata"] == '{"published": 7}'
        assert (
            [row["word"] for row in rows(place)]
            == [str(i) for i in range(n)]
            == [row.word for row in spark.sql("SELECT word FROM small.words ORDER BY n").collect()]
        )
        crc = json.loads(
            (place / LOG_DIR / version_file(DeltaTable(str(place)).version())).with_suffix(".crc").read_text()
        )
        assert crc["numFiles"] == len(DeltaTable(str(place)).file_uris())


def test_a_query_of_the_table_itself_reads_it_as_it_was(spark: SparkSession, place: Path) -> None:
    spark.sql("INSERT OVERWRITE small.words SELECT n + 1, word, at FROM small.words WHERE n < 2")
    assert [(row["n"], row["word"]) for row in rows(place)] == [(1, "0"), (1, "0"), (2, "1"), (2, "1")]


def test_types_are_those_of_the_table(spark: SparkSession, place: Path) -> None:
    spark.sql("INSERT OVERWRITE small.words SELECT CAST(1 AS INT), 2, DATE'2024-01-01'")
    (row,) = spark.sql("SELECT n, word, CAST(at AS STRING) AS at FROM small.words").collect()
    assert (row.n, row.word, row.at) == (1, "2", "2024-01-01 00:00:00")
    with pytest.raises(PySparkException):
        spark.sql("INSERT OVERWRITE small.words SELECT 'no number', 'a', current_timestamp()")
    with pytest.raises(PySparkException):
        spark.sql("INSERT OVERWRITE small.words SELECT 1, 'a'")
    assert len(rows(place)) == 1


def test_what_a_table_refuses_stays_refused(spark: SparkSession, place: Path) -> None:
    spark.sql("ALTER TABLE small.words SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(PySparkException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(1)}")
    assert len(rows(place)) == 6


def test_constraints_hold(spark: SparkSession, place: Path) -> None:
    spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(2)}")
    spark.sql("ALTER TABLE small.words ADD CONSTRAINT few CHECK (n < 2)")
    with pytest.raises(Py4JJavaError, match="DELTA_VIOLATE_CONSTRAINT"):
        spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(3)}")
    assert len(rows(place)) == 2


def test_it_takes_fewer_jobs_than_delta(spark: SparkSession, place: Path) -> None:
    jobs = {}
    for files in ("0", "256"):
        spark.conf.set(FILES, files)
        # the first listing of a table is a query
        spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(3)}")
        before = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
        spark.sql(f"INSERT OVERWRITE small.words {ROWS.format(3)}")
        jobs[files] = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs() - before
    assert jobs["256"] == 1 < jobs["0"]
