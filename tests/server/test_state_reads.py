"""The notes that the lake server makes of reads of states by SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns]

Notes = Callable[[str], list[str]]
"""A function that runs a statement and returns the lines that it made."""


@pytest.fixture
def notes(spark: SparkSession, tmp_path: Path) -> Iterator[Notes]:
    jvm, file = spark._jvm, tmp_path / "reads" / "statements.log"
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.tidemark.reads", str(file))  # type: ignore[union-attr]
    listener = jvm.org.apache.spark.sql.hive.thriftserver.tidemark.StateReads(conf)  # type: ignore[union-attr]
    definitions = (
        "CREATE DATABASE IF NOT EXISTS gold",
        "CREATE DATABASE noting",
        "CREATE TABLE noting.history (meter STRING, load INT) USING parquet",
        "CREATE VIEW gold.noted AS SELECT meter, load FROM noting.history",
        "CREATE FUNCTION gold.noted_as_of(at INT) RETURNS TABLE (meter STRING, load INT)"
        " RETURN SELECT meter, load FROM noting.history WHERE load < at",
        "CREATE VIEW noting.mine AS SELECT load, meter FROM gold.noted",
    )

    def lines() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    def ask(statement: str) -> list[str]:
        before = len(lines())
        spark.sql(statement).collect()
        spark._jsc.sc().listenerBus().waitUntilEmpty()
        return lines()[before:]

    try:
        for statement in definitions:
            spark.sql(statement)
        spark._jsparkSession.listenerManager().register(listener)
        yield ask
        assert not file.exists() or file.stat().st_mode & 0o777 == 0o600
    finally:
        spark._jsparkSession.listenerManager().unregister(listener)
        spark.sql("DROP FUNCTION IF EXISTS gold.noted_as_of")
        spark.sql("DROP VIEW IF EXISTS gold.noted")
        spark.sql("DROP DATABASE IF EXISTS noting CASCADE")


def test_each_read_of_a_state_is_noted_with_the_entities_that_it_asks_for(notes: Notes) -> None:
    for statement, lines in (
        ("SELECT count(*) FROM gold.noted", ["noted\t"]),
        ("SELECT n.load FROM gold.noted n WHERE n.meter = 'm&' AND n.load > 0", ["noted\tmeter=m%26"]),
        ("SELECT * FROM gold.noted WHERE meter = 'a' OR load = 1", ["noted\t"]),
        ("SELECT * FROM gold.noted_as_of(3) WHERE 'n' = meter", ["noted_as_of\tmeter=n"]),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM gold.noted WHERE meter IN ('a', 'b'))", ["noted\tmeter=a&meter=b"]),
        ("SELECT a.load FROM gold.noted a JOIN gold.noted b USING (meter) WHERE a.load = 1", ["noted\t"] * 2),
        ("SELECT * FROM noting.mine", ["noted\t"]),
        ("CREATE TABLE noting.copy USING parquet AS SELECT * FROM gold.noted", ["noted\t"]),
        ("INSERT INTO noting.copy SELECT * FROM gold.noted WHERE meter = 'z'", ["noted\tmeter=z"]),
        ("SELECT * FROM noting.history", []),
        ("SELECT 1", []),
    ):
        assert notes(statement) == lines, statement
