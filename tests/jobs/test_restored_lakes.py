"""A lake that comes back from a backup into an empty home: the next runs go on as if nothing had been."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.examination import examine_lake
from spark_jobs.backup import back_up, restore
from spark_jobs.config import Settings
from tests.empty_lake import empty
from tests.jobs.harness import Reading, published, run, write_drops, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

NAMES = ("silver.hourly", "silver.shifts", "gold.state", "bronze.meters_deltas", "silver.hourly_changes")
DROPS = [
    [Reading(0, 10, "a", 1), Reading(0, 700, "b", 2)],
    [Reading(1, 1500, "a", 2), Reading(1, 720, "b", 3)],
    [Reading(2, 3000, "a", 5), Reading(2, 1600, "b", 7)],
]


@pytest.fixture
def lake(empty_lake: SparkSession) -> SparkSession:
    """The shared session over an empty lake."""
    return empty_lake


def shown(lake: SparkSession) -> list[list[tuple[Any, ...]]]:
    return [published(lake, name, "time", "run_id", "chunk_id") for name in NAMES]


def test_runs_go_on_from_a_restored_lake(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    landing = tmp_path / "landing"
    settings = write_source(spark_settings.model_copy(update={"home": first, "landing": landing}))
    write_drops(settings, [reading for drop in DROPS for reading in drop])
    for day in (0, 1):
        run(lake, settings, day, day)
    before = shown(lake)
    place = str(tmp_path / "backup")
    made = back_up(settings, place).backup_set
    run(lake, settings, 2, 2)
    undisturbed = shown(lake)

    # everything is lost: lake, catalog, home
    empty(lake)
    shutil.rmtree(first)
    restored = settings.model_copy(update={"home": second, "sources": second / "sources"})
    restore(restored, place)
    assert made.published["meters"]["token"]
    # the newest drop is run again, and finds what it landed: nothing is landed twice
    assert run(lake, restored, 1, 1)[0]["rows"] == 0
    assert shown(lake) == before
    run(lake, restored, 2, 2)
    assert shown(lake) == undisturbed
    assert {finding.verdict for finding in examine_lake(restored)} <= {"ok", "warning"}
