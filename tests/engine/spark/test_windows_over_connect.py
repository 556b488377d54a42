"""The window functions under Spark Connect: the same calls as under classic Spark, in a process of its own."""

from pathlib import Path

import pytest

from tests.connect_program import run_program

pytestmark = [pytest.mark.spark, pytest.mark.turns]

PROGRAM = """
from datetime import timedelta

from pyspark.sql import Observation, SparkSession

from spark_jobs.errors import ParameterError
from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.spark.windows import *

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")

rows = [(f"k{n % 2}", n * 7919 % 500, n, 0.1 * (n % 7) if n % 11 else None) for n in range(300)]
df = spark.createDataFrame(rows, "k string, t long, at long, v double")
values = {"n": count(), "total": sum_("v"), "low": min_("v"), "last": last("v")}
shared = {"key": "k", "time": "t", "aggregates": values}


def twin(kind, null_values, **parameters):
    held = [row for row in rows if null_values == "skip_value" or row[3] is not None]
    content = kind([naive.NaiveRow(row[0], row[1]) for row in held], **parameters)
    return sorted((w.key, w.start, w.end, len(numbers)) for w, numbers in content.items())


def found(windows):
    return sorted(tuple(row)[:4] for row in windows.collect())


told = Observation()
for how in ({"rows_a_slice": None}, {"rows_a_slice": 40, "metrics": told, "memory_max_bytes": 2**20}):
    windows = sliding_windows(df, size=5, clip_at_zero=False, **shared, **how)
    assert found(windows) == twin(naive.sliding_windows, "skip_row", size=5, clip_at_zero=False)
    windows = hopping_windows(df, size=9, advance=4, **shared, **({} if "metrics" in how else how))
    assert found(windows) == twin(naive.hopping_windows, "skip_value", size=9, advance=4, offset=0)
    windows = session_windows(df, gap=3, **shared, **(how | {"metrics": None}))
    assert found(windows) == twin(naive.session_windows, "skip_value", gap=3)
assert told.get["rows"] >= 272, told.get
late = {"size": 5, "grace": 3, "arrival": "at", "clip_at_zero": False}
n_late = skipped_rows(df, "sliding", **shared, **late).where("reason = 'late'").count()
pairs = sum(row.n for row in sliding_windows(df, **shared, **late).collect())
assert n_late > 0 < pairs
at = df.selectExpr("k", "timestamp_seconds(t * 3600) AS t", "at", "v")
days = tumbling_windows(at, size="1 day", zone="Europe/Berlin", **shared).collect()
assert sum(row.n for row in days) == 300
lasting = {"min_duration": timedelta(hours=1), "max_duration": timedelta(hours=9)}
deltas = adaptive_windows(at, key="k", time="t", delta="at", **lasting)
assert sum(row.stats.delta_count for row in deltas.collect()) == 300
try:
    sliding_windows(df, size=-1, **shared)
except ParameterError as refusal:
    assert refusal.parameter == "size"
else:
    raise AssertionError("a negative size was taken")
spark.stop()
"""


def test_the_functions_give_the_same_under_connect(tmp_path: Path) -> None:
    run_program(PROGRAM, tmp_path)
