"""What is published is bit for bit what it was: the bags of every name that users read, against those kept from an
earlier release (`KEEP_GOLDEN=1 pytest tests/golden` writes them anew)."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.sample import prepare_sample
from tests.golden.bags import Bag, bags, keep, kept
from tests.jobs.harness import run, write_source
from tests.jobs.test_windows import records, source_text, write

pytestmark = pytest.mark.spark

SHIPPED = Path(__file__).parents[2] / "dags" / "sources"
YEAR = datetime(2013, 1, 1, tzinfo=UTC)
CHAINS = "\ncompaction: {strategy: tiered, keep_recent: 2, delta_threshold: 4}\n"


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    sources = tmp_path / "sources"
    sources.mkdir()
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing", "sources": sources})


def compare(scenario: str, spark: SparkSession) -> None:
    """The lake's bags against those kept of a scenario."""
    published: dict[str, Bag] = bags(spark)
    if os.environ.get("KEEP_GOLDEN"):
        keep(scenario, published)
    differing = {name: (published.get(name), wanted) for name, wanted in kept(scenario).items()}
    assert {name: pair for name, pair in differing.items() if pair[0] != pair[1]} == {}


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


def test_days_of_flights_and_of_weather_with_chains(lake: SparkSession, home: Settings) -> None:
    shipped(home, "flights")
    shipped(home, "weather", CHAINS)
    prepare_sample(home.landing, last=datetime(2013, 1, 4, tzinfo=UTC).date())
    for first, last in ((0, 1), (3, 3), (2, 2)):
        run(lake, home, first, last, source="flights", start=YEAR)
    for first, last in ((0, 2), (3, 3)):
        run(lake, home, first, last, source="weather", start=YEAR)
    compare("days", lake)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_year_of_flights_and_of_weather_at_once(lake: SparkSession, home: Settings) -> None:
    shipped(home, "flights", CHAINS)
    shipped(home, "weather")
    prepare_sample(home.landing)
    for source in ("flights", "weather"):
        run(lake, home, 0, 364, source=source, start=YEAR)
    compare("year", lake)
    shutil.rmtree(home.landing)
