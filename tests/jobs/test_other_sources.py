"""A source beside others: a broken file stops nobody else, and names that two claim stop a run before it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.sources import SourceFileError
from tests.jobs.harness import SOURCE, Reading, run, write_drops, write_lines, write_source

pytestmark = pytest.mark.spark

ROOMS = (
    SOURCE.replace("source: meters", "source: rooms")
    .replace("meters/", "rooms/")
    .replace("  hourly:", "  by_hour:")
    .replace("  shifts:", "  visits:")
)
BROKEN = "source: rooms\nstart: yesterday\n"


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    return write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))


def sources_with_rows(spark: SparkSession, view: str) -> list[str]:
    return [row.source for row in spark.sql(f"SELECT DISTINCT source FROM {view} ORDER BY source").collect()]


def run_rooms(spark: SparkSession, home: Settings) -> None:
    readings = [reading.line() for reading in (Reading(0, 5, "x", 1), Reading(0, 9, "y", 2))]
    moved = write_lines(home, 0, readings, name="b.ndjson")
    target = home.landing / "rooms" / moved.parent.name / moved.name
    target.parent.mkdir(parents=True, exist_ok=True)
    moved.rename(target)
    run(spark, home, 0, 0, source="rooms")


def test_a_broken_file_beside_it_stops_no_source_and_hides_no_rows(lake: SparkSession, home: Settings) -> None:
    write_source(home, ROOMS, "rooms")
    run_rooms(lake, home)
    write_source(home, BROKEN, "rooms")
    write_drops(home, [Reading(0, 10, "a", 5)])
    assert [summary["stage"] for summary in run(lake, home, 0, 0)][-1] == "publish"
    # what the broken source landed is still there to read
    for view in ("bronze.deltas", "bronze.chunks"):
        assert sources_with_rows(lake, view) == ["meters", "rooms"]
    lake.sql("SELECT * FROM silver.corrections").collect()
    write_source(home, ROOMS, "rooms")
    run(lake, home, 1, 1, source="rooms")
    assert sources_with_rows(lake, "bronze.deltas") == ["meters", "rooms"]


def test_names_that_two_sources_claim_stop_a_run_before_anything_is_written(lake: SparkSession, home: Settings) -> None:
    write_source(home, ROOMS.replace("by_hour", "hourly"), "rooms")
    write_drops(home, [Reading(0, 10, "a", 5)])
    for source, other in (("meters", "rooms.yml"), ("rooms", "meters.yml")):
        with pytest.raises(SourceFileError) as refusal:
            run(lake, home, 0, 0, source=source)
        assert refusal.value.file == f"{source}.yml"
        assert [(p["path"], other in p["found"]) for p in refusal.value.problems] == [("windows.hourly", True)]
        assert not {"bronze", "trace", "silver"} & {row.namespace for row in lake.sql("SHOW DATABASES").collect()}


def test_a_source_that_has_published_a_name_keeps_it(lake: SparkSession, home: Settings) -> None:
    write_drops(home, [Reading(0, 10, "a", 5)])
    run(lake, home, 0, 0)
    write_source(home, ROOMS.replace("by_hour", "hourly"), "rooms")
    write_drops(home, [Reading(1, 24 * 60 + 10, "a", 5)])
    run(lake, home, 1, 1)
    with pytest.raises(SourceFileError, match=r"meters\.yml"):
        run(lake, home, 0, 0, source="rooms")
    assert lake.table("silver.hourly").count() == 2
