"""Pins of several sources of which one is behind: each at its own newest time, all at one, or one alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.reads.point import BeforeFirstPublication, NotPublished
from spark_jobs.sources import read_sources
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.upkeep.pins import PinEmpty, make_pin, pins
from tests.jobs.harness import DAY, START, Reading, run, write_drops, write_source
from tests.jobs.test_other_sources import ROOMS, run_rooms

pytestmark = [pytest.mark.spark, pytest.mark.turns]


def test_a_source_that_is_behind_empties_no_pin_of_another(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_source(home, ROOMS, "rooms")
    run_rooms(lake, home)
    write_drops(home, [Reading(3, 3 * 24 * 60 + 10, "a", 5)])
    run(lake, home, 3, 3)
    sources, tables = read_sources(home.sources).sources, SparkLake(lake)
    meters, rooms = sources["meters"], sources["rooms"]

    # rooms has published to the end of the first day, before meters published at all
    both = make_pin(tables, [meters, rooms], "both")
    assert (both.kind, both.at, [*both.times]) == ("newest", None, ["meters", "rooms"])
    assert both.times["meters"] - both.times["rooms"] == 3 * DAY
    for table in ("both__hourly", "both__by_hour"):
        assert lake.table(f"pins.{table}").count() > 0

    with pytest.raises(BeforeFirstPublication, match=r"the first publication of meters on, 2024-01-04"):
        make_pin(tables, [meters, rooms], "early", micros(START + DAY) - 1)
    assert [pin.name for pin in pins(tables)] == ["both"]
    with pytest.raises(NotPublished, match="expected a time before the publication of rooms"):
        make_pin(tables, [meters, rooms], "late", micros(START + 4 * DAY) - 1)

    early = make_pin(tables, [rooms], "early", micros(START + DAY) - 1)
    assert (early.kind, early.sources, early.at) == ("time", ["rooms"], START + DAY - (DAY / 86_400_000_000))
    assert pins(tables) == [both, early]


def test_a_source_that_published_no_row_is_not_pinned(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    run(lake, home, 0, 0, pass_gap=True)
    with pytest.raises(PinEmpty, match="pin the other sources by --source") as refusal:
        make_pin(SparkLake(lake), [*read_sources(home.sources).sources.values()], "nothing")
    assert (refusal.value.facts["source"], pins(SparkLake(lake))) == ("meters", [])
