"""Rows fetched through Spark Connect: the same as in one piece, batch by batch, with and without a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect_program import run_program

pytestmark = [pytest.mark.spark, pytest.mark.turns]

PROGRAM = """
from pyspark.sql import SparkSession

from spark_jobs.cli import rows

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
spark.conf.set("spark.sql.session.timeZone", "America/New_York")

frame = spark.range(0, 3000, 1, 4).selectExpr(
    "id", "timestamp_micros(id) AS t", "CAST(id AS decimal(20, 3)) AS d", "CAST(null AS string) AS nothing",
    "named_struct('a', id, 'b', array(id)) AS s", "map('k', id) AS m", "id AS id",
)
whole = list(zip(*(column.to_pylist() for column in frame.toArrow().columns)))
rows.IN_MEMORY_BYTES = 1000
found = rows.fetch(frame, 0)
assert list(found.values()) == whole
assert (found.columns, found.truncated) == (frame.columns, False)
assert [*next(found.rows())] == ["id", "t", "d", "nothing", "s", "m", "id_2"]
for limit in (1, 2999, 3000, 3001):
    part = rows.fetch(frame, limit)
    assert (len(list(part.values())), part.truncated) == (min(limit, 3000), limit < 3000)
none = rows.fetch(frame.where("t < timestamp_micros(0)"), 0)
assert (list(none.values()), none.truncated) == ([], False)
shown = rows.fetch(spark.sql("SHOW DATABASES"), 1000)
assert [row["namespace"] for row in shown.rows()] == ["default"]
made = rows.fetch(spark.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS one"), 1000)
assert (made.columns, list(made.rows())) == ([], [])
assert list(rows.fetch(spark.sql("SELECT * FROM v"), 0).rows()) == [{"one": 1}]
spark.sql("CREATE TEMPORARY VIEW w (late_by COMMENT 'Microseconds from its end.', n) AS SELECT 5L, 1")
assert rows.fetch(spark.sql("SELECT n, late_by FROM w"), 0).units == {"late_by": "µs"}
spark.stop()
"""


def test_batches_that_a_server_sends_are_the_whole_result(tmp_path: Path) -> None:
    run_program(PROGRAM, tmp_path)
