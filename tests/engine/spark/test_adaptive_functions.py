"""`adaptive_windows` and calendar periods on DataFrames; the kernels' own tests compare them with their twins."""

import datetime
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.engine.spark.windows import (
    adaptive_windows,
    approx_quantile,
    at_count,
    at_size,
    at_time,
    collect,
    count,
    tumbling_windows,
    vector_mean,
)
from spark_jobs.engine.twins.adaptive_windows import NaiveAdaptiveRow, adaptive
from spark_jobs.engine.windows import Cuts
from spark_jobs.errors import ParameterError

pytestmark = pytest.mark.spark


@pytest.mark.turns
def test_adaptive_windows_equal_the_twin_key_by_key(spark: SparkSession) -> None:
    chance = random.Random(5)
    rows = [(key, chance.randrange(500), n, chance.randrange(9), n % 4) for key in "abc" for n in range(60)]
    df = spark.createDataFrame(rows, "k string, t int, id long, size int, vector long").repartition(3)
    triggers = [at_time(), at_count(7), at_size(30)]
    shape: dict[str, Any] = {"target_batch_size": 4, "min_duration": 5, "max_duration": 60, "reset": 200}
    shape["rate_window"] = 20
    windows = adaptive_windows(
        df, key="k", time="t", delta="id", vector="vector", size_bytes="size", triggers=triggers, **shape
    )
    cuts = Cuts(4, 5, 60, 200, tuple(triggers), 100 * 2**20, 1, rate_window=20)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in windows.collect():
        found.setdefault(row.k, []).append(
            (row.window_start, row.window_end, row.trigger, row.delta_ids, row.stats.rate, row.stats.rate_window)
        )
        assert row.stats.delta_count == len(row.delta_ids)
        assert row.stats.duration == row.window_end - row.window_start
    for key in "abc":
        deltas = [NaiveAdaptiveRow(time, n, size) for k, time, n, size, _ in rows if k == key]
        wanted = [
            (w.start, w.end, w.trigger, [d.delta for d in w.deltas], w.rate, w.rate_window)
            for w in adaptive(deltas, cuts)
        ]
        assert sorted(found[key]) == sorted(wanted)


def test_defaults_fit_timestamps(spark: SparkSession) -> None:
    df = spark.sql("SELECT 1 AS k, timestamp_micros(id * 1000) AS t, id FROM range(250)")
    windows = adaptive_windows(df, key="k", time="t", delta="id", aggregates={"n": count()}).collect()
    assert sum(row.n for row in windows) == 250
    assert {row.trigger for row in windows} <= {"time", "count"}
    assert max(row.stats.delta_count for row in windows) <= 100


@pytest.mark.parametrize(
    ("parameter", "wrong"),
    [
        ("delta", {"delta": "nodelta"}),
        ("size_bytes", {"size_bytes": "k"}),
        ("size_bytes", {"triggers": [at_size(5)]}),
        ("triggers", {"triggers": ["time"]}),
        ("target_batch_size", {"target_batch_size": 0}),
        ("min_duration", {"min_duration": 5, "max_duration": 4}),
        ("max_duration", {"max_duration": None}),
        ("reset", {"reset": 0}),
        ("rate_window", {"rate_window": 0}),
        ("memory_max_bytes", {"memory_max_bytes": 0}),
        ("aggregates", {"aggregates": {"stats": count()}}),
    ],
)
def test_a_wrong_parameter_of_adaptive_windows_is_named(
    spark: SparkSession, parameter: str, wrong: dict[str, object]
) -> None:
    df = spark.createDataFrame([], "k string, t long, id long")
    parameters: dict[str, Any] = {
        "key": "k",
        "time": "t",
        "delta": "id",
        "min_duration": 1,
        "max_duration": 9,
        "reset": 10,
    } | wrong
    with pytest.raises(ParameterError) as refusal:
        adaptive_windows(df, **parameters)
    assert refusal.value.facts["parameter"] == parameter


def test_tumbling_windows_follow_the_calendar_of_a_zone(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'a' AS k, timestamp '2013-03-10 12:00:00' AS t, 2.5D AS v, array(1.0D, 2.0D) AS w")
    windows = tumbling_windows(
        df,
        key="k",
        time="t",
        size="1 day",
        zone="America/New_York",
        aggregates={"q": approx_quantile("v", 0.5, 0), "all": collect("v", 3), "mean": vector_mean("w")},
    )
    row = windows.head(1)[0]
    assert (row.q, row["all"], row["mean"]) == (2.5, [2.5], [1.0, 2.0])
    assert row.window_end - row.window_start == datetime.timedelta(hours=23)
    assert windows.selectExpr("cast(window_start AS string)").head(1)[0][0] == "2013-03-10 05:00:00"


@pytest.mark.parametrize(
    ("parameter", "wrong"),
    [
        ("size", {"size": "1 fortnight"}),
        ("size", {"size": "0 days"}),
        ("zone", {"size": "1 day", "zone": "Mars/Olympus"}),
        ("zone", {"size": 5, "zone": "UTC"}),
        ("offset", {"size": "1 day", "offset": 1}),
        ("time", {"size": "1 day", "time": "i"}),
    ],
)
def test_a_wrong_period_of_the_calendar_is_named(spark: SparkSession, parameter: str, wrong: dict[str, Any]) -> None:
    df = spark.createDataFrame([], "k string, t timestamp, i long")
    with pytest.raises(ParameterError) as refusal:
        tumbling_windows(df, **({"key": "k", "time": "t", "aggregates": {"n": count()}} | wrong))
    assert refusal.value.facts["parameter"] == parameter
