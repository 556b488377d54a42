"""The weather sample on the real path: the state at each hour is that hour's row, before and after compaction."""

from __future__ import annotations

import csv
import datetime as dt
import io
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.engine.spark.checkpoints import join_as_of
from spark_jobs.jobs.reads import chains_of
from spark_jobs.sample import prepare_sample, sample_file
from spark_jobs.storage.coordination.read_counts import Reads, reads_of
from tests.jobs.harness import lake_of, run, write_source

pytestmark = [pytest.mark.spark, pytest.mark.long]

COMPONENTS = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
RETENTION = "retention: {since: 7 days}\n"
SHIPPED = (CHECKOUT / "dags" / "sources" / "weather.yml").read_text()
assert RETENTION in SHIPPED, "the source that ships lets the past go, which these tests read"
KEPT = SHIPPED.replace(RETENTION, "")
STRATEGIES = {
    "full": "{strategy: full, delta_threshold: 20}",
    "tiered": "{strategy: tiered, keep_recent: 5, delta_threshold: 20}",
    "time_boundary": "{strategy: time_boundary, interval: 6 h, delta_threshold: 20}",
    "adaptive": "{strategy: adaptive, keep_recent: 5, delta_threshold: 20}",
}
NEVER = "{delta_threshold: 100000, max_chain_length: 100000}"


def compacted(home: Settings, how: str) -> Settings:
    return write_source(home, f"{KEPT}\ncompaction: {how}\n", "weather")


def hours(until: dt.datetime) -> dict[tuple[str, dt.datetime], tuple[Any, ...]]:
    """The sample's own rows, read with Python's csv."""
    rows = csv.DictReader(io.StringIO(sample_file("weather.csv").read_text(encoding="utf-8")))
    found = {}
    for row in rows:
        time = dt.datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
        if time < until:
            found[row["origin"], time] = tuple(bits(float(row[c]) if row[c] != "NA" else None) for c in COMPONENTS)
    return found


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


def states(spark: SparkSession, home: Settings, asked: Any) -> dict[tuple[str, dt.datetime], tuple[Any, ...]]:
    chains = chains_of(spark, "weather", home)
    frame = spark.createDataFrame(sorted(asked), "origin STRING, at TIMESTAMP")
    joined = join_as_of(frame, "origin", "at", chains=chains).collect()
    return {(r.origin, _aware(r.at)): tuple(bits(r[c]) for c in COMPONENTS) for r in joined}


def _aware(time: dt.datetime) -> dt.datetime:
    return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time


def checkpoints(spark: SparkSession) -> tuple[int, int]:
    """How many there are, and the most deltas that are pending after one."""
    pending = spark.sql("SELECT max(pending) FROM gold.chains").collect()[0][0]
    return spark.table("gold.checkpoints").count(), pending


def _each_strategy(spark: SparkSession, home: Settings, how: str, days: int, every: int) -> None:
    prepare_sample(
        home.landing_folder, first=START.date(), last=(START + dt.timedelta(days - 1)).date(), sources=("weather",)
    )
    home = compacted(home, NEVER)
    expected = hours(START + dt.timedelta(days))
    first = days // 2
    run(spark, home, 0, first - 1, source="weather", start=START)
    early = {place: row for place, row in expected.items() if place[1] < START + dt.timedelta(first)}
    assert states(spark, home, early) == early
    assert reads_of(lake_of(spark), home.home, "weather") == Reads(1)
    assert checkpoints(spark) == (0, max(Counter(origin for origin, _ in early).values()))
    home = compacted(home, how)
    for day in range(first, days, every):
        run(spark, home, day, min(day + every, days) - 1, source="weather", start=START)
    made, pending = checkpoints(spark)
    assert made > 3 * days * 24 // 20 // 2
    assert pending <= 40
    assert states(spark, home, expected) == expected


def test_the_state_at_each_hour_is_that_hours_row_before_and_after_compaction(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    _each_strategy(lake, home, STRATEGIES["tiered"], days=4, every=2)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_the_same_for_each_hour_of_the_year(
    strategy: str, lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    _each_strategy(lake, home, STRATEGIES[strategy], days=365, every=61)
