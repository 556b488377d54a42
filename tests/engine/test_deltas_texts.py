"""Lists of numbers out of texts, beside what Spark makes of the same texts."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.deltas import lists_of

TEXTS = [
    None, "", " ", "[]", " [ ] ", "[1]", "[1,2,3]", "[ -1 , 0 ]\n", "[null]",
    "[1, null, 2]", "[,]", "[1,]", "[1 2]", "[01]", "[+1]",
    "[1.5]", "[1e3, -2.25E-1]", "[1.]", "[.5]", "[9223372036854775807, -9223372036854775808]", "[9223372036854775808]",
    "[123456789012345678901234567890]", "[1e400]", "[-0.0]", "[true]", '["1"]', '["NaN", "Infinity", "-Infinity"]',
    "[NaN]",
    "[Infinity, -Infinity]", "[[1]]", "[1] 2", "[1][2]", "x", "{}", '{"a": [1]}', "1",
    "null", "[nul]", "[1, x]", "first",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("element", "kind"), [(pa.int64(), "BIGINT"), (pa.float64(), "DOUBLE")])
def test_lists_are_read_as_spark_reads_them(spark: SparkSession, element: pa.DataType, kind: str) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text STRING")
    read = F.from_json("text", f"ARRAY<{kind}>")
    one_list = F.col("text").rlike(r"^\s*\[[^\[\]]*\]\s*$")
    rows = frame.select("text", read.alias("list"), (~one_list | read.isNull()).alias("broken")).collect()
    lists, broken = lists_of(pa.array(TEXTS, pa.string()), element)
    found = zip(TEXTS, lists.to_pylist(), broken.tolist(), strict=True)
    for row, (text, own, is_broken) in zip(rows, found, strict=True):
        assert is_broken == bool(row.broken and text is not None), text
        if not is_broken:
            assert _shown(own) == _shown(row.list), text


def _shown(numbers: list[float] | None) -> str:
    return repr(numbers and [math.nan if isinstance(n, float) and math.isnan(n) else n for n in numbers])
