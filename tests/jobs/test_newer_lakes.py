"""A lake says its format itself: code that is older than the lake leaves it alone, and a lake without one gets it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.arguments import refuse_older_lakes
from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables, ensure_source
from spark_jobs.sources import parse_source
from spark_jobs.storage.coordination import lake_format
from spark_jobs.storage.coordination.lake_format import FORMAT, PROPERTY, LakeNewer, format_of, mark_format
from spark_jobs.storage.delta.table_notes import noted_table
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.jobs.harness import SOURCE, Reading, published, run, write_drops, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

METERS = parse_source(SOURCE, file="meters.yml")


@pytest.fixture
def lake(empty_lake: SparkSession) -> SparkSession:
    """The shared session over an empty lake."""
    return empty_lake


def say(spark: SparkSession, text: str) -> None:
    spark.sql(f"ALTER TABLE {DISMISSALS.qualified} SET TBLPROPERTIES ('{PROPERTY}' = '{text}')")


def versions(spark: SparkSession) -> dict[str, int]:
    """The newest version of each table of bronze, trace and silver that stands in its folder."""
    lake, stands = SparkLake(spark), {}
    for database in ("bronze", "trace", "silver"):
        for table in lake.catalog.names(database):
            if lake.folder.is_stored(database, table):
                stands[f"{database}.{table}"] = noted_table(lake.folder.handle_of(database, table)).version
    return stands


def test_a_new_lake_has_the_format_and_a_plan_gives_it_to_none(lake: SparkSession) -> None:
    assert format_of(SparkLake(lake)) is None
    planned = OverlayLake(SparkLake(lake))
    try:
        ensure_source(planned, METERS)
    finally:
        planned.close()
    assert format_of(SparkLake(lake)) is None
    ensure_source(SparkLake(lake), METERS)
    assert format_of(SparkLake(lake)) == str(FORMAT)


def test_a_lake_of_before_formats_is_read_and_gets_one_once(lake: SparkSession) -> None:
    ensure_source(SparkLake(lake), METERS)
    lake.sql(f"ALTER TABLE {DISMISSALS.qualified} UNSET TBLPROPERTIES ('{PROPERTY}')")
    check_tables(SparkLake(lake), METERS)
    assert format_of(SparkLake(lake)) is None
    ensure_source(SparkLake(lake), METERS)
    marked = versions(lake)
    assert format_of(SparkLake(lake)) == str(FORMAT)
    ensure_source(SparkLake(lake), METERS)
    assert versions(lake) == marked


def test_first_runs_at_once_give_it_one_format(lake: SparkSession) -> None:
    ensure_source(SparkLake(lake), METERS)
    lake.sql(f"ALTER TABLE {DISMISSALS.qualified} UNSET TBLPROPERTIES ('{PROPERTY}')")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: mark_format(SparkLake(lake)), range(4)))
    assert format_of(SparkLake(lake)) == str(FORMAT)


@pytest.mark.parametrize("newer", [str(FORMAT + 1), "soon", "-1", "²", ""])
def test_a_newer_lake_is_refused_before_anything_is_created(lake: SparkSession, newer: str) -> None:
    ensure_source(SparkLake(lake), METERS)
    say(lake, newer)
    other = parse_source(SOURCE.replace("source: meters", "source: gauges").partition("windows:")[0], file="gauges.yml")
    before = versions(lake)
    actions: list[Callable[[Lake], object]] = [
        lambda lake: ensure_source(lake, METERS),
        lambda lake: ensure_source(lake, other),
        lambda lake: check_tables(lake, METERS),
        mark_format,
    ]
    for act in actions:
        with pytest.raises(LakeNewer, match="later version") as refusal:
            act(SparkLake(lake))
        assert refusal.value.as_json() == {"code": "lake_newer", "format": newer, "supported": FORMAT}
    assert versions(lake) == before


def test_runs_and_reads_of_a_newer_lake_are_refused_until_the_code_is_as_new(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path}))
    write_drops(home, [Reading(0, 10, "a", 1), Reading(1, 24 * 60 + 30, "a", 4)])
    run(lake, home, 0, 0)
    rows = published(lake, "silver.hourly")
    assert rows
    say(lake, str(FORMAT + 1))
    before = versions(lake)
    with pytest.raises(LakeNewer):
        run(lake, home, 1, 1)
    with pytest.raises(LakeNewer), refuse_older_lakes(lake, home):
        pytest.fail("the read began")
    assert versions(lake) == before
    assert published(lake, "silver.hourly") == rows
    monkeypatch.setattr(lake_format, "FORMAT", FORMAT + 1)
    run(lake, home, 1, 1)
    assert len(published(lake, "silver.hourly")) > len(rows)
