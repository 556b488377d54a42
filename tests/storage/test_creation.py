"""Tables are created whatever an earlier creation has left in their place, and whoever else creates them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.storage.delta.delta_log import clear_unfinished, is_unfinished
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.descriptions.schema import IDENTITY, Column, Table
from spark_jobs.storage.descriptions.tables import DATABASES, SHARED
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.table_columns import TableDiffers
from tests.at_once import at_once
from tests.remains import leave_remains

COLUMNS = (Column("k", "STRING", "Key."), Column("n", "BIGINT", "Number."))


@pytest.fixture
def lake(empty_lake: SparkSession) -> SparkSession:
    """The shared session over an empty lake."""
    return empty_lake


def test_what_a_stopped_creation_left_goes_and_nothing_else(tmp_path: Path) -> None:
    stopped, committed, unlogged = (tmp_path / name for name in ("stopped", "committed", "unlogged"))
    for folder in (stopped, committed, unlogged):
        leave_remains(folder)
    commit = committed / LOG_DIR / "00000000000000000000.json"
    commit.write_text("{}\n")
    second = committed / LOG_DIR / ".00000000000000000001.json.9e1f77aa.tmp"
    second.write_text("{}\n")
    rows = unlogged / "k=a" / "part-0.parquet"
    rows.parent.mkdir()
    rows.write_bytes(b"PAR1")
    for folder in (stopped, committed, unlogged, tmp_path / "none"):
        clear_unfinished(TableHandle(str(folder)))
    assert not stopped.exists()
    assert commit.exists()
    assert second.exists(), "another run writes to the table"
    assert rows.exists()
    assert [is_unfinished(TableHandle(str(folder))) for folder in (stopped, committed, unlogged)] == [
        True,
        False,
        False,
    ]


@pytest.mark.spark
def test_a_table_tells_its_source_also_where_spark_redacts_the_name(spark: SparkSession, database: str) -> None:
    identity = ("tokens", "url", "password")
    table = Table(database, "secrets_history", "Windows.", COLUMNS, identity=identity)
    lake = SparkLake(spark)
    lake.catalog.ensure({}, [table])
    shown = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.qualified}").collect()}
    assert shown[IDENTITY] == "*********(redacted)"
    lake.catalog.check_identity(table)
    for other in (("meters", *identity[1:]), ("tokens", "url")):
        with pytest.raises(TableDiffers):
            lake.catalog.check_identity(replace(table, identity=other))


@pytest.mark.spark
def test_a_table_is_created_where_its_creation_was_stopped_before(spark: SparkSession, database: str) -> None:
    lake, table = SparkLake(spark), Table(database, "numbers", "Numbers.", COLUMNS)
    leave_remains(Path(lake.folder.handle(table).uri))
    assert lake.catalog.ensure({}, [table]) == [table]
    spark.sql(f"INSERT INTO {table.qualified} VALUES ('a', 1)")
    assert [tuple(row) for row in lake.read(table).collect()] == [("a", 1)]


@pytest.mark.spark
def test_rows_without_a_log_are_no_place_for_a_table_and_the_last_one_waits_for_the_others(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.storage.lakes.spark_catalog._CREATION_S", (0.01,))
    lake = SparkLake(spark)
    tables = [Table(database, name, "Numbers.", COLUMNS) for name in ("unlogged", "other", "last")]
    rows = Path(lake.folder.handle(tables[0]).uri) / "part-0.parquet"
    rows.parent.mkdir()
    rows.write_bytes(b"PAR1")
    with pytest.raises(Exception, match="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"):
        lake.catalog.ensure({}, tables)
    assert rows.exists()
    assert lake.catalog.names(database) == {"other"}


@pytest.mark.turns
@pytest.mark.spark
def test_sessions_that_create_the_same_tables_at_once_all_find_them(lake: SparkSession) -> None:
    sessions = [lake.newSession() for _ in range(4)]

    def ensure(number: int) -> set[str]:
        tables = SparkLake(sessions[number])
        tables.catalog.ensure(DATABASES, list(SHARED))
        return {table.qualified for table in SHARED if tables.read(table).isEmpty()}

    empty = at_once(ensure, len(sessions))
    assert empty == [{table.qualified for table in SHARED}] * len(sessions)


@pytest.mark.spark
def test_sessions_that_create_the_same_functions_at_once_agree_on_one_of_them(
    spark: SparkSession, database: str
) -> None:
    sessions = [spark.newSession() for _ in range(4)]

    def define(begun: str, n: int) -> None:
        SparkLake(sessions[n]).catalog.define(f"{begun} {n}")

    for function in (f"{database}.met_{n}()" for n in range(10)):
        defined = f"CREATE OR REPLACE FUNCTION {function} RETURNS INT RETURN"
        at_once(partial(define, defined), len(sessions))
        assert spark.sql(f"SELECT {function}").head(1)[0][0] in range(len(sessions))
