"""Each function of the pinned Spark that SQL may call, and each option of one, is allowed to logins or refused."""

from __future__ import annotations

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.attack]


@pytest.fixture
def sql(spark: SparkSession) -> JavaObject:
    return spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]


@pytest.fixture
def lists(sql: JavaObject) -> JavaObject:
    return sql.hive.thriftserver.tidemark.Functions


def names(several: JavaObject) -> list[str]:
    """The members of a collection of Scala's."""
    return sorted(several.mkString("\n").split("\n"))


@pytest.mark.parametrize(
    ("registry", "allowed", "refused"),
    [("FunctionRegistry", "Allowed", "Refused"), ("TableFunctionRegistry", "AllowedTables", "RefusedTables")],
)
def test_each_function_is_decided(
    sql: JavaObject, lists: JavaObject, registry: str, allowed: str, refused: str
) -> None:
    found = getattr(sql.catalyst.analysis, registry).builtin().listFunction()
    known = sorted(line.split(".")[-1].strip("`") for line in names(found))
    assert known == sorted([*names(getattr(lists, allowed)()), *names(getattr(lists, refused)())])


@pytest.mark.parametrize(("kind", "allowed"), [("json", "OptionsOfJson"), ("csv", "OptionsOfCsv")])
def test_each_option_is_decided(spark: SparkSession, lists: JavaObject, kind: str, allowed: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    options = (
        jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{kind}.{kind.upper()}Options$")
        .getField("MODULE$")
        .get(None)
    )
    decided = [*names(getattr(lists, allowed)()), *names(lists.RefusedOptions())]
    assert set(names(options.getAllOptions())) <= set(decided)
    assert len(set(decided)) == len(decided)
    assert set(names(getattr(lists, allowed)())) <= set(names(options.getAllOptions()))
