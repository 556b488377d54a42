"""What is published is bit for bit what it was: the bags of every name that users read, against those kept from an
earlier release (`KEEP_GOLDEN=1 pytest tests/golden` writes them anew)."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.sample import prepare_sample
from spark_jobs.sources import find_source
from tests.golden.bags import bags, keep, kept, shown
from tests.jobs.harness import run, write_source
from tests.jobs.test_windows import records, source_text, write
from tests.moto import bucket_files

pytestmark = pytest.mark.spark

SHIPPED = Path(__file__).parents[2] / "dags" / "sources"
YEAR = datetime(2013, 1, 1, tzinfo=UTC)
CHAINS = "\ncompaction: {strategy: tiered, keep_recent: 2, delta_threshold: 4}\n"


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    sources = tmp_path / "sources"
    sources.mkdir()
    landing = os.environ.get("TEST_LANDING") or tmp_path / "landing"
    return spark_settings.model_copy(update={"home": tmp_path, "landing": landing, "sources": sources})


def land(home: Settings, last: datetime) -> None:
    """Put the sample's files up to a day into the landing directory, a bucket's folder as a user does it: with the
    store's own tools."""
    folder = home.home / "landing"
    prepare_sample(folder, last=last.date())
    if isinstance(home.landing, str):
        bucket = home.landing.removeprefix("s3a://")
        fs.copy_files(str(folder), bucket, fs.LocalFileSystem(), bucket_files({**os.environ}))


def compare(scenario: str, spark: SparkSession) -> None:
    """The lake's bags against those kept of a scenario."""
    if os.environ.get("KEEP_GOLDEN"):
        keep(scenario, bags(spark, shown(spark)))
    wanted = kept(scenario)
    assert bags(spark, wanted) == wanted


@pytest.mark.parametrize(
    "days",
    [
        pytest.param([0, 1, 2, 3], marks=pytest.mark.long),
        pytest.param([2, 0, 3, 1], marks=pytest.mark.long),
        pytest.param([3, 2, 1, 0], marks=pytest.mark.long),
    ],
    ids=lambda days: "".join(map(str, days)),
)
def test_windows_of_every_kind_by_days_in_an_order(lake: SparkSession, home: Settings, days: list[int]) -> None:
    write_source(home, source_text())
    write(home, records(seed=31))
    for day in days:
        run(lake, home, day, day)
    compare(f"meters-{''.join(map(str, days))}", lake)


def shipped(home: Settings, name: str, more: str = "") -> None:
    (home.sources / f"{name}.yml").write_text((SHIPPED / f"{name}.yml").read_text() + more)


@pytest.mark.turns
def test_days_of_flights_and_of_weather_with_chains(lake: SparkSession, home: Settings) -> None:
    shipped(home, "flights")
    shipped(home, "weather", CHAINS)
    land(home, datetime(2013, 1, 4, tzinfo=UTC))
    for first, last in ((0, 1), (3, 3), (2, 2)):
        run(lake, home, first, last, source="flights", start=YEAR)
    for first, last in ((0, 2), (3, 3)):
        run(lake, home, first, last, source="weather", start=YEAR)
    compare("days", lake)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "slices"), [("flights-2", [(0, 1)]), ("flights-7", [(0, 2), (4, 6), (3, 3)])], ids=["two", "seven"]
)
def test_days_of_flights(lake: SparkSession, home: Settings, scenario: str, slices: list[tuple[int, int]]) -> None:
    """Of `test_cluster`, which has them worked out elsewhere."""
    shipped(home, "flights", CHAINS)
    land(home, YEAR + timedelta(days=max(last for _, last in slices)))
    for first, last in slices:
        run(lake, home, first, last, source="flights", start=YEAR)
    compare(scenario, lake)


# without the views of causes, which have tens of millions of rows for a year; the bags of days have them
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_year_of_flights_and_of_weather_month_by_month(lake: SparkSession, home: Settings) -> None:
    shipped(home, "flights")
    shipped(home, "weather", CHAINS)
    prepare_sample(home.landing_folder)
    starts = [(datetime(2013, month, 1, tzinfo=UTC) - YEAR).days for month in range(1, 13)] + [365]
    for source in ("flights", "weather"):
        for first, end in pairwise(starts):
            run(lake, home, first, end - 1, source=source, start=YEAR)
    compare("year", lake)
    for source in ("flights", "weather"):
        assert audit(home, find_source(home.sources, source), lake).failed == []
    shutil.rmtree(home.landing)
