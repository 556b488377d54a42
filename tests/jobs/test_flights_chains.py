"""The flights sample with chains: sums are the CSV's, and the past read from chains is what was published then."""

from __future__ import annotations

import csv
import datetime as dt
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.reads.as_of import states_at
from spark_jobs.reads.point import ReadPoint
from spark_jobs.sample import prepare_sample
from spark_jobs.sources import load_source
from tests.jobs.harness import lake_of, run, write_source

pytestmark = [pytest.mark.spark, pytest.mark.long]

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
SHIPPED = (CHECKOUT / "dags" / "sources" / "flights.yml").read_text()
DAYS = 7
Sums = dict[str, tuple[int, ...]]


def sums_of(folder: Path, reached: dt.datetime) -> Sums:
    """Flights, minutes in the air, miles and minutes of delay per aircraft, of what is not future-dated."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path in sorted(folder.glob("flights/*/*")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                told = row["departed"] if row["departed"] not in ("", "NA") else row["scheduled"]
                if row["tailnum"] == "NA" or dt.datetime.fromisoformat(told.replace("Z", "+00:00")) >= reached:
                    continue
                values = [int(row[c]) if row[c] != "NA" else 0 for c in ("air_time", "distance", "dep_delay")]
                for place, value in enumerate([1, *values]):
                    found[row["tailnum"]][place] += value
    return {tail: tuple(values) for tail, values in found.items()}


def test_a_week_of_flights_compacted_every_day(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, f"{SHIPPED}\ncompaction: {{keep_recent: 2, delta_threshold: 5}}\n", "flights")
    prepare_sample(
        home.landing_folder, first=START.date(), last=(START + dt.timedelta(DAYS - 1)).date(), sources=("flights",)
    )
    source, tables = load_source(home.sources / "flights.yml"), lake_of(lake)
    components = ["flights", "air_minutes", "miles", "delay_minutes"]
    told: dict[int, set[tuple[object, ...]]] = {}
    for day in range(DAYS):
        run(lake, home, day, day, source="flights", start=START)
        published = lake.sql("SELECT * FROM gold.flights").select("tailnum", *components).collect()
        told[ReadPoint.open(tables, source).known_us] = {tuple(row) for row in published}
    last = {row[0]: tuple(row)[1:] for row in published}
    assert last == sums_of(home.landing_folder, START + dt.timedelta(DAYS))
    assert lake.table("gold.checkpoints").count() > 100
    for known_us, expected in told.items():
        states = states_at(tables, source, known_us=known_us).select("tailnum", *components).collect()
        assert {tuple(row) for row in states} == expected
