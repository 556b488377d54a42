"""Reading drops through Spark: one DataFrame of good rows and rejects, whatever the files are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.reader import list_drop_files, read_files
from spark_jobs.sample import prepare_sample
from spark_jobs.sources import Source, first_row_id, read_sources, row_id

pytestmark = pytest.mark.spark
SOURCES = read_sources(Path(__file__).parents[2] / "dags" / "sources").sources


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landing")
    prepare_sample(root, last=dt.date(2013, 1, 7))
    return root


def listed(root: Path, source: Source, days: int) -> list[LandingFile]:
    return [file for seq_no in range(days) for file in list_drop_files(root, source, seq_no)]


def test_the_first_week_of_flights_reads_with_its_8_rejects(spark: SparkSession, landing: Path) -> None:
    rows = read_files(spark, SOURCES["flights"], listed(landing, SOURCES["flights"], 7)).collect()
    good = [row for row in rows if row.rule is None]
    rejects = [row for row in rows if row.rule is not None]
    assert (len(good), len(rejects)) == (5_797, 8)
    assert {row.rule for row in rejects} == {"missing_entity"}
    first = min(good, key=lambda row: row.row_id)
    assert (first.seq_no, first.file, first.line) == (0, "flights/2013-01-01/flights.csv", 2)
    assert first.row_id == row_id(first_row_id(0, first.file), 2)
    assert (first.entity, first.c_dep_delay, first.c_air_time) == ("N14228", 2, 227)
    assert first.delta_id == "UA|1545|EWR|2013-01-01T10:15:00Z"
    assert first.extra == {}
    assert len({row.row_id for row in rows}) == len(rows)
    for row in rejects:
        assert row.entity is None
        assert row.c_origin is None
        assert ",NA," in row.raw


def test_times_are_instants_whatever_the_sessions_zone(spark: SparkSession, landing: Path) -> None:
    frame = read_files(spark, SOURCES["weather"], listed(landing, SOURCES["weather"], 1))
    earliest = frame.selectExpr(
        "unix_micros(min(event_time)) lo", "unix_micros(min(t_time_hour)) t", "count(*) n"
    ).head(1)[0]
    assert earliest.lo == earliest.t == 1_357_020_000_000_000
    assert frame.where("c_wind_gust IS NULL").count() > 0


def test_a_bad_entry_of_a_drop_is_one_row_and_the_rest_is_read(
    spark: SparkSession, landing: Path, tmp_path: Path
) -> None:
    drop = tmp_path / "weather" / "2013-01-01"
    drop.mkdir(parents=True)
    (drop / "b.ndjson").write_bytes((landing / "weather" / "2013-01-01" / "weather.ndjson").read_bytes())
    (drop / "a.ndjson").mkdir()
    (drop / "c.ndjson").write_bytes(b"")
    (drop / "d.ndjson").symlink_to("/etc/hostname")
    files = list_drop_files(tmp_path, SOURCES["weather"], 0)
    rows = read_files(spark, SOURCES["weather"], files).collect()
    assert {row.file: row.rule for row in rows if row.line is None} == {
        "weather/2013-01-01/a.ndjson": "not_a_file",
        "weather/2013-01-01/c.ndjson": "empty_file",
        "weather/2013-01-01/d.ndjson": "outside_landing",
    }
    assert all(row.row_id is None and row.raw is None for row in rows if row.line is None)
    assert {row.file for row in rows if row.line is not None} == {"weather/2013-01-01/b.ndjson"}
    assert sum(row.line is not None for row in rows) == 52


def test_a_drop_that_never_landed_has_no_files(spark: SparkSession, tmp_path: Path) -> None:
    files = list_drop_files(tmp_path, SOURCES["flights"], 3)
    assert files == []
    assert read_files(spark, SOURCES["flights"], files).count() == 0
