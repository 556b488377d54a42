"""The sample: its drops hold what the original says, in its order, with the counts that the design names."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path

import pytest

from spark_jobs.jobs.prepare import main
from spark_jobs.sample import SampleDrop, flight_instants, prepare_sample, sample_rows
from tests.moto import BUCKET, bucket_files, s3_server

FIRST, LAST = dt.date(2013, 1, 1), dt.date(2013, 1, 7)


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("landing")


@pytest.fixture(scope="module")
def week(landing: Path) -> list[SampleDrop]:
    return prepare_sample(landing, first=FIRST, last=LAST)


@pytest.fixture(scope="module")
def year() -> list[tuple[str, dict[str, str]]]:
    """Every flight with the day on which it lands, and of its values those that the counts are about."""
    header, rows = sample_rows("flights")
    names = header.strip().split(",")
    places = {name: names.index(name) for name in ("tailnum", "scheduled", "departed", "known")}
    split = ((str(day), line.rstrip("\n").split(",")) for day, line in rows)
    return [(day, {name: values[place] for name, place in places.items()}) for day, values in split]


def test_the_first_week_of_flights_has_5805_rows_of_which_8_have_no_aircraft(week: list[SampleDrop]) -> None:
    rows = []
    for drop in week:
        if drop.source == "flights":
            with Path(drop.path).open(newline="", encoding="utf-8") as file:
                landed = list(csv.DictReader(file))
            assert len(landed) == drop.rows
            assert all(row["known"].startswith(f"{drop.day}T") for row in landed)
            rows += landed
    assert len(rows) == 5_805
    assert sum(row["tailnum"] == "NA" for row in rows) == 8


@pytest.mark.turns
def test_the_year_has_the_lateness_that_the_design_names(year: list[tuple[str, dict[str, str]]]) -> None:
    assert len(year) == 336_776
    event_days = [(day, (row["departed"] or row["scheduled"])[:10]) for day, row in year]
    assert sum(day < event_day for day, event_day in event_days) == 79
    assert round(sum(day > event_day for day, event_day in event_days) / len(year), 2) == 0.16
    assert sum(row["departed"] == "" for _, row in year) == 8_255
    assert sum(bool(row["departed"]) and row["known"] < row["departed"] for _, row in year) == 687
    assert sum(row["tailnum"] == "NA" for _, row in year) == 2_512
    assert all(row["known"].startswith(day) for day, row in year)


def test_weather_has_every_row_once_and_keeps_nulls() -> None:
    rows = [(str(day), json.loads(line)) for day, line in sample_rows("weather")[1]]
    assert len(rows) == 26_115
    assert sum(row["wind_gust"] is None for _, row in rows) == 20_778
    assert all(row["time_hour"].startswith(day) for day, row in rows)
    assert rows[0][1]["wind_speed"] == 10.357019999999999


def test_a_second_run_changes_no_file(landing: Path, week: list[SampleDrop]) -> None:
    before = {drop.path: Path(drop.path).stat().st_mtime_ns for drop in week if drop.source == "weather"}
    again = prepare_sample(landing, first=FIRST, last=LAST, sources=("weather",))
    assert {drop.path for drop in again} == set(before)
    assert not any(drop.written for drop in again)
    assert {path: Path(path).stat().st_mtime_ns for path in before} == before
    assert [path.name for path in (landing / "flights" / "2013-01-01").iterdir()] == ["flights.csv"]


def test_a_damaged_drop_is_written_anew(landing: Path, week: list[SampleDrop]) -> None:
    path = landing / "weather" / "2013-01-03" / "weather.ndjson"
    content = path.read_bytes()
    path.write_bytes(content[:100])
    (mended,) = prepare_sample(landing, first=dt.date(2013, 1, 3), last=dt.date(2013, 1, 3), sources=("weather",))
    assert mended.written
    assert path.read_bytes() == content


def test_drops_are_put_into_a_bucket_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        root, day = f"s3a://{BUCKET}/landing", {"first": FIRST, "last": FIRST}
        (put,) = prepare_sample(root, **day, sources=("weather",))
        (again,) = prepare_sample(f"{root}/", **day, sources=("weather",))
        (local,) = prepare_sample(tmp_path, **day, sources=("weather",))
        with bucket_files(environment).open_input_file(f"{BUCKET}/landing/weather/2013-01-01/weather.ndjson") as stored:
            assert stored.read() == Path(local.path).read_bytes()
    assert (put.written, again.written, put.rows) == (True, False, local.rows)


@pytest.mark.parametrize(
    ("dep_delay", "air_time", "instants"),
    [
        ("2", "227", ("2013-01-01T10:15", "2013-01-01T10:17", "2013-01-01T14:04")),
        ("-5", "NA", ("2013-01-01T10:15", "2013-01-01T10:10", "2013-01-01T10:15")),
        ("NA", "NA", ("2013-01-01T10:15", None, "2013-01-01T10:15")),
    ],
)
def test_a_flight_is_known_when_it_has_landed(dep_delay: str, air_time: str, instants: tuple[str | None, ...]) -> None:
    expected = tuple(t and dt.datetime.fromisoformat(f"{t}Z").timestamp() / 60 for t in instants)
    assert flight_instants("2013-01-01T10:00:00Z", "15", dep_delay, air_time) == expected


def test_the_job_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--landing-root", str(tmp_path), "--from", "2013-01-01", "--to", "2013-01-02", "--source", "weather"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"weather": {"drops": 2, "written": 2, "rows": 124}}
