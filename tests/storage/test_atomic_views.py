"""A view that is replaced while people read it is there all the time, as it was or as it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.at_once import at_once

pytestmark = [pytest.mark.spark, pytest.mark.turns]


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE DATABASE replaced")
    yield "replaced"
    spark.sql("DROP DATABASE replaced CASCADE")


def test_a_view_is_there_while_it_is_replaced(spark: SparkSession, database: str) -> None:
    view, over = f"{database}.shown", threading.Event()
    answers: list[tuple[int, ...]] = []
    errors: list[str] = []

    def replace(n: int) -> None:
        columns = f"(a COMMENT 'of {n}', b) COMMENT 'as {n}'"
        spark.sql(f"CREATE OR REPLACE VIEW {view} {columns} AS SELECT {n} AS x, {n} + 1 AS y")

    def read() -> None:
        session = spark.newSession()
        while not over.is_set():
            try:
                answers.append(tuple(session.sql(f"SELECT a, b FROM {view}").first() or ()))
            except AnalysisException as error:
                errors.append(str(error)[:200])

    replace(0)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(1, 150):
        replace(n)
    over.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert len(answers) > 50
    assert all(b == a + 1 for a, b in answers)
    assert spark.sql(f"SELECT * FROM {view}").first() == (149, 150)


def test_nothing_of_the_former_view_is_left(spark: SparkSession, database: str) -> None:
    view = f"{database}.shown"
    spark.sql(f"CREATE VIEW {view} (a COMMENT 'first', b) COMMENT 'former' TBLPROPERTIES ('k' = 'v') AS SELECT 1, 2")
    spark.sql(f"CREATE OR REPLACE VIEW {view} (c COMMENT 'other') AS SELECT 'x' AS y")
    columns = {row.col_name: (row.data_type, row.comment) for row in spark.sql(f"DESCRIBE EXTENDED {view}").collect()}
    assert columns["c"] == ("string", "other")
    assert not {"a", "b", "Comment"} & columns.keys()
    assert "k" not in {row.key for row in spark.sql(f"SHOW TBLPROPERTIES {view}").collect()}
    assert spark.sql(f"SELECT c FROM {view}").first() == ("x",)
    spark.sql(f"CREATE OR REPLACE VIEW {view} COMMENT 'now' AS SELECT id AS n FROM range(3)")
    described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {view}").collect()}
    assert (described["n"], described["Comment"]) == ("bigint", "now")


def test_a_new_view_is_created_and_a_view_in_its_way_stays(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE OR REPLACE VIEW {database}.fresh AS SELECT 1 AS a")
    assert spark.sql(f"SELECT * FROM {database}.fresh").first() == (1,)
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql(f"CREATE VIEW {database}.fresh AS SELECT 2 AS a")
    spark.sql(f"CREATE VIEW IF NOT EXISTS {database}.fresh AS SELECT 3 AS a")
    assert spark.sql(f"SELECT * FROM {database}.fresh").first() == (1,)


def test_sessions_that_create_a_view_at_once_agree_on_one_of_them(spark: SparkSession, database: str) -> None:
    sessions = [spark.newSession() for _ in range(4)]

    def create(view: str, n: int) -> None:
        sessions[n].sql(f"CREATE OR REPLACE VIEW {view} AS SELECT {n} AS n")

    for view in (f"{database}.met_{n}" for n in range(10)):
        at_once(partial(create, view), len(sessions))
        assert spark.table(view).head(1)[0].n in range(len(sessions))


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE OR REPLACE VIEW {0}.shown AS SELECT * FROM {0}.above", "RECURSIVE_VIEW"),
        ("CREATE OR REPLACE VIEW {0}.shown AS SELECT * FROM of_a_session", "INVALID_TEMP_OBJ_REFERENCE"),
        ("CREATE OR REPLACE VIEW {0}.shown (a, b) AS SELECT 1", "NOT_ENOUGH_DATA_COLUMNS"),
        ("CREATE OR REPLACE VIEW {0}.shown (a) AS SELECT 1, 2", "TOO_MANY_DATA_COLUMNS"),
        ("CREATE OR REPLACE VIEW {0}.stored AS SELECT 1 AS a", "EXPECT_VIEW_NOT_TABLE"),
        ("CREATE OR REPLACE VIEW {0}.shown AS SELECT 1 AS a, 2 AS a", "COLUMN_ALREADY_EXISTS"),
    ],
)
def test_what_spark_refuses_is_refused_and_changes_nothing(
    spark: SparkSession, database: str, statement: str, reason: str
) -> None:
    spark.sql(f"CREATE VIEW {database}.shown AS SELECT 7 AS a")
    spark.sql(f"CREATE VIEW {database}.above AS SELECT * FROM {database}.shown")
    spark.sql(f"CREATE TABLE {database}.stored (a INT) USING delta")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW of_a_session AS SELECT 1 AS a")
    with pytest.raises(AnalysisException, match=reason):
        spark.sql(statement.format(database))
    assert spark.sql(f"SELECT * FROM {database}.shown").collect() == [(7,)]
    spark.sql("DROP VIEW of_a_session")
