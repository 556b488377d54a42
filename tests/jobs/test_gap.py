"""Runs that leave drops out: refused before anything lands, shown by a plan, possible when told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.commands.plan import document
from spark_jobs.config import Settings
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.catching_up import drops_due
from spark_jobs.jobs.request import Request
from spark_jobs.plans.plan import gap_of_run, plan_run
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import SealGap
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    Session,
    lake_of,
    published,
    run,
    run_one,
    write_drops,
    write_source,
)

NIGHT = 24 * 60
READINGS = [
    Reading(0, 10, "a", 5),
    Reading(1, NIGHT + 30, "a", 4),
    Reading(2, 2 * NIGHT + 5, "b", 1),
    Reading(3, 3 * NIGHT + 5, "b", 2),
]


@pytest.fixture
def meters(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def test_a_run_that_would_pass_drops_is_refused_before_anything_lands(lake: Session, meters: Settings) -> None:
    run(lake, meters, 0, 0, pass_gap=False)
    before = published(lake, "silver.shifts")
    with pytest.raises(SealGap) as refusal:
        run(lake, meters, 2, 2, pass_gap=False)
    assert refusal.value.facts["drops"] == [["2024-01-02", "2024-01-02"]]
    assert lake.sql("SELECT DISTINCT seq_no FROM bronze.files").collect() == [(0,)]
    later: dict[str, Any] = {"source": "meters", "lo": START + 2 * DAY, "hi": START + 3 * DAY, "run_id": "late"}
    run_one(lake, "land", **later, settings=meters, request=Request(pass_gap=True))
    with pytest.raises(SealGap):
        run_one(lake, "seal", **later, settings=meters)
    source = load_source(meters.sources / "meters.yml")
    assert frontiers.load(lake_of(lake), source).seal_us == micros(START + DAY)
    assert published(lake, "silver.shifts") == before


def test_days_in_any_order_when_told_and_passed_ones_are_not_refused_again(lake: Session, meters: Settings) -> None:
    run(lake, meters, 2, 2, pass_gap=True)
    run(lake, meters, 0, 0, pass_gap=False)
    run(lake, meters, 1, 1, pass_gap=False)
    run(lake, meters, 3, 3, pass_gap=False)
    (row,) = lake.sql("SELECT sum(readings) AS n FROM gold.meters").collect()
    assert row.n == len(READINGS)


@pytest.mark.spark
@pytest.mark.turns
def test_a_plan_shows_the_refusal_that_its_run_would_meet(lake: SparkSession, meters: Settings) -> None:
    source = load_source(meters.sources / "meters.yml")
    interval = (micros(START + DAY), micros(START + 2 * DAY))
    shown = plan_run(meters, source, interval, lake, sample=0)
    assert shown.gap is not None
    assert document(shown)["gap"]["drops"] == [["2024-01-01", "2024-01-01"]]
    assert sum(table.rows for table in shown.tables) > 0
    told = gap_of_run(source, interval, lake)
    assert told is not None
    assert told.facts == shown.gap.facts
    run(lake, meters, 0, 0, pass_gap=False)
    assert plan_run(meters, source, interval, lake, sample=0).gap is None
    assert gap_of_run(source, interval, lake) is None


def test_a_run_that_catches_up_takes_what_was_never_run_since_the_seal_and_no_past_before_the_first_run(
    lake: Session, meters: Settings
) -> None:
    source = load_source(meters.sources / "meters.yml")
    assert drops_due(meters, source, range(3, 4)) == range(3, 4)
    run(lake, meters, 0, 0, pass_gap=False)
    assert drops_due(meters, source, range(1, 2)) == range(1, 2)
    assert drops_due(meters, source, range(3, 4)) == range(1, 4)
    # what a run sealed and did not publish is withdrawn; its drops are taken again: their files may be mended ones
    second: dict[str, Any] = {"source": "meters", "lo": START + DAY, "hi": START + 2 * DAY, "run_id": "second"}
    for stage in ("land", "seal"):
        run_one(lake, stage, **second, settings=meters)
    assert drops_due(meters, source, range(2, 3)) == range(1, 3)
    assert drops_due(meters, source, range(3, 4)) == range(1, 4)
    run(lake, meters, 1, 3, pass_gap=False)
    assert drops_due(meters, source, range(1)) == range(1)
    (row,) = lake.sql("SELECT sum(readings) AS n FROM gold.meters").collect()
    assert row.n == len(READINGS)


def test_a_run_that_caught_up_and_failed_its_gate_takes_the_same_drops_when_it_is_repeated(
    lake: Session, meters: Settings
) -> None:
    home = write_source(meters, SOURCE + "checks: {low: {kind: between, column: load, max: 100}}\n")
    source = load_source(home.sources / "meters.yml")
    run(lake, home, 0, 0, pass_gap=False)
    write_drops(home, [Reading(1, NIGHT + 30, "a", 400)])
    assert drops_due(home, source, range(3, 4)) == range(1, 4)
    with pytest.raises(GateFailed):
        run(lake, home, 1, 3, pass_gap=False)
    # somebody mends the file, and clears the run's first task
    write_drops(home, READINGS)
    assert drops_due(home, source, range(3, 4)) == range(1, 4)
    land, *_ = run(lake, home, 1, 3, pass_gap=False)
    assert land["changed_files"] == ["meters/2024-01-02/a.ndjson"]
    (row,) = lake.sql("SELECT sum(readings) AS n, sum(load) AS total FROM gold.meters").collect()
    assert (row.n, row.total) == (len(READINGS), sum(reading.load for reading in READINGS))
