"""Stream times of a whole DataFrame: in ranges of arrivals as in one task, and a warning where it takes one task."""

import random
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.engine.spark.windows import (
    OneTaskWarning,
    adaptive_windows,
    count,
    skipped_counts,
    sliding_windows,
    tumbling_windows,
)
from spark_jobs.engine.spark.windows.stream_times import Arrivals

pytestmark = pytest.mark.spark
START = datetime(2024, 1, 1, tzinfo=UTC)
ARRIVALS = {
    "bigint": lambda n: n * 2**50,
    "tinyint": lambda n: n % 100 - 50,
    "double": lambda n: [float("nan"), float("-inf"), float("inf"), -0.0, 0.0][n] if n < 5 else n / 7 - 20,
    "decimal(20, 3)": lambda n: Decimal(n) / 8,
    "timestamp": lambda n: START + timedelta(microseconds=n),
    "timestamp_ntz": lambda n: (START + timedelta(days=n)).replace(tzinfo=None),
    "date": lambda n: (START + timedelta(days=n)).date(),
}


def rows_of(seed: int | str, arrival: Callable[[int], object], n: int = 400) -> list[tuple[Any, ...]]:
    """Rows out of order, several of one arrival, some without one, without a key or without a time."""
    chance = random.Random(seed)
    return [
        (
            chance.choice(["a", "b", None]) if chance.random() < 0.2 else "a",
            None if chance.random() < 0.1 else chance.randrange(1000) + number,
            None if chance.random() < 0.05 else arrival(chance.randrange(n // 2)),
            number,
        )
        for number in range(n)
    ]


def in_one_task(rows: list[tuple[Any, ...]]) -> dict[int, int | None]:
    """By definition: per row the greatest time of rows with a key that arrived no later, those without one first."""

    def place(arrival: Any) -> tuple[int, Any]:
        if arrival is None:
            return (0, 0)
        return (2, 0) if str(arrival) == "nan" else (1, arrival)

    found = {}
    for _, _, at, number in rows:
        times = [t for key, t, other, _ in rows if key and t is not None and place(other) <= place(at)]
        found[number] = max(times, default=None)
    return found


@pytest.mark.turns
@pytest.mark.parametrize("kind", ARRIVALS)
def test_ranges_of_arrivals_give_the_stream_times_of_one_task(spark: SparkSession, kind: str) -> None:
    rows = rows_of(kind, ARRIVALS[kind])
    df = spark.createDataFrame(rows, f"k string, t long, `at.x` {kind}, n long").repartition(3)
    arrivals = Arrivals("at.x", df.schema["at.x"].dataType, (), "CASE WHEN k IS NOT NULL THEN t END", 40)
    bounds = arrivals._bounds(df)
    assert len(bounds) >= 5, "the rows are in several ranges"
    found = {row.n: row.s for row in arrivals.stream_times(df, "s").collect()}
    assert found == in_one_task(rows)


def windows_of(df: DataFrame, **more: Any) -> list[tuple[Any, ...]]:
    parameters: dict[str, Any] = {
        "key": "k",
        "time": "t",
        "size": 30,
        "aggregates": {"n": count()},
        "grace": 100,
        "arrival": "at",
    }
    windows = sliding_windows(df, **(parameters | more)).collect()
    return sorted((w.k, w.window_start, w.window_end, w.n) for w in windows)


def test_windows_of_a_grace_are_the_same_in_ranges_and_in_one_task(spark: SparkSession) -> None:
    df = spark.createDataFrame(rows_of(1, ARRIVALS["bigint"]), "k string, t long, at long, n long")
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneTaskWarning)
        in_ranges = windows_of(df, rows_a_slice=25)
        assert in_ranges == windows_of(df), "few rows are one task's without a word"
    with pytest.warns(
        OneTaskWarning, match="one task orders all rows of the DataFrame by at, since rows_a_slice is None"
    ):
        assert windows_of(df, rows_a_slice=None) == in_ranges
    texts = df.selectExpr("k", "t", "lpad(CAST(at AS string), 30, '0') AS at")
    with pytest.warns(OneTaskWarning, match="arrivals of type string are not cut into ranges") as told:
        assert windows_of(texts, rows_a_slice=25) == in_ranges
    assert told[0].filename == __file__, "it names the caller's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneTaskWarning)
        tumbling_windows(texts, key="k", time="t", size=9, aggregates={"n": count()}, grace=1, arrival="at", stream="k")


def test_what_adaptive_windows_leave_out_is_counted(spark: SparkSession) -> None:
    rows = [
        ("a", 1, "x", 0, 5), ("a", 3, "x", 1, 5), ("a", 3, "y", 2, 5), ("a", 101, "x", 3, 5), ("a", 2, "z", 4, 5),
        (None, 4, "u", 5, 5), ("a", None, "v", 6, 5), ("a", 102, None, 7, 5), ("a", 103, "w", 8, None),
        ("b", 9, "x", 9, 5),
    ]  # fmt: skip
    df = spark.createDataFrame(rows, "k string, t long, id string, at long, size long").repartition(4)
    shape: dict[str, Any] = {"key": "k", "time": "t", "delta": "id", "size_bytes": "size", "target_batch_size": 2}
    shape |= {"min_duration": 1, "max_duration": 50, "reset": 100}
    none = dict.fromkeys(("negative_time", "late", "late_row"), 0)
    counts = {"null_key": 1, "null_time": 1, "null_value": 2, "repeated_id": 1}
    assert skipped_counts(df, "adaptive", **shape) == counts | none
    counted = sum(len(window.delta_ids) for window in adaptive_windows(df, **shape).collect())
    assert counted + sum(counts.values()) == len(rows)
    late: dict[str, Any] = shape | {"grace": 0, "arrival": "at"}
    # z and b's x come after 101, when the cell up to 100 has ended
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneTaskWarning)
        assert skipped_counts(df, "adaptive", **late) == counts | none | {"late": 2, "late_row": 2}
    counted = sum(len(window.delta_ids) for window in adaptive_windows(df, **late).collect())
    assert counted + sum(counts.values()) + 2 == len(rows)
