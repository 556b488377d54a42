"""Queries of landed chunks say what the files say, whatever drop, file and order the rows came in."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli import app as command_line
from spark_jobs.config import Settings
from spark_jobs.engine.chunks import Row
from spark_jobs.engine.spark.chunks import NothingLanded, SourceChunks, UnknownComponent, UnknownTimeline
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.descriptions.times import micros
from tests.engine.landed_rows import latest_of, range_of
from tests.jobs.harness import DAY, START, write_lines, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

SOURCE = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, seen: timestamp, load: {type: int, optional: true},
          heat: {type: float, optional: true}, note: {type: string, optional: true}}
timelines: {taken: at, seen: seen}
event_time: [taken, seen]
entity: meter
"""


def minutes(number: int) -> datetime:
    return START + timedelta(minutes=number)


def line(meter: str, taken: int | None, seen: int, **values: Any) -> str:
    times = {"at": None if taken is None else minutes(taken).isoformat(), "seen": minutes(seen).isoformat()}
    return json.dumps({"id": f"{meter}{taken}-{seen}", "meter": meter, **times, **values})


Line = tuple[int, str, int | None, int, dict[str, Any]]
LINES: list[Line] = [
    # drop, then what line() takes; ties on `taken`, out of order, a row without it, sparse columns
    (0, "a", 10, 20, {"load": 1, "heat": 0.5}),
    (0, "a", 30, 31, {"load": 2}),
    (0, "a", 5, 40, {"load": 3}),
    (0, "b", 10, 20, {"load": 100}),
    (1, "a", 30, 1500, {"load": 4, "note": "again"}),
    (1, "a", None, 1510, {"load": 5}),
    (1, "a", 1490, 1500, {"heat": 2.5}),
    (2, "a", 2900, 2950, {"load": 6}),
]


@pytest.fixture
def landed(lake: SparkSession, settings: Settings) -> tuple[SparkSession, Source]:
    settings = write_source(settings, SOURCE)
    for drop in range(3):
        write_lines(settings, drop, [line(m, taken, seen, **v) for d, m, taken, seen, v in LINES if d == drop])
        _land(lake, settings, drop)
    return lake, load_source(settings.sources / "meters.yml")


def _land(spark: SparkSession, settings: Settings, drop: int) -> None:
    # none of the drops is sealed
    _stage("land", spark, settings, drop, drop, pass_gap=True)


def _stage(stage: str, spark: SparkSession, settings: Settings, first: int, last: int, **options: Any) -> None:
    lo, hi = START + first * DAY, START + (last + 1) * DAY
    run_id = f"r{first}-{last}"
    run_stage(
        stage, source="meters", lo=lo, hi=hi, run_id=run_id, settings=settings, spark=spark, request=Request(**options)
    )


def expected_range(meter: str, key: int, lo: int, hi: int, columns: list[str]) -> list[tuple[Any, ...]]:
    """(time, values) by (time, arrival) of the rows in the range that have any of the columns."""
    rows: list[tuple[Any, ...]] = [
        (time, number, *[values.get(column) for column in columns])
        for number, (_, of, taken, seen, values) in enumerate(LINES)
        if of == meter and (time := taken if key == 2 else seen) is not None and lo <= time <= hi
        if any(c in values for c in columns)
    ]
    return [(minutes(time), *values) for time, _, *values in sorted(rows)]


def test_ranges_and_latest_values_are_those_of_the_files(landed: tuple[SparkSession, Source]) -> None:
    spark, source = landed
    chunks = SourceChunks(spark, source)
    for timeline, key, lo, hi, columns in (
        ("taken", 2, 5, 30, ["load"]),
        ("taken", 2, 6, 3000, ["load", "heat", "note"]),
        ("seen", 3, 20, 1510, ["load"]),
        ("seen", 3, 30, 20, ["load"]),
    ):
        found = chunks.range_query("a", timeline, micros(minutes(lo)), micros(minutes(hi)), columns)
        assert found.column_names == ["row_id", "time", *columns]
        rows = [tuple(row.values())[1:] for row in found.to_pylist()]
        assert rows == expected_range("a", key, lo, hi, columns)
    latest = chunks.latest_at("a", "taken", micros(minutes(2000)), ["load", "heat", "note"])
    assert {name: (answer.time, answer.value) for name, answer in latest.items()} == {
        "load": (micros(minutes(30)), 4),
        "heat": (micros(minutes(1490)), 2.5),
        "note": (micros(minutes(30)), "again"),
    }
    assert chunks.latest_at("a", "taken", micros(minutes(4)), None) == {}
    nobody = chunks.range_query("nobody", "taken", 0, micros(minutes(9999)))
    assert (nobody.num_rows, nobody.column_names[2:]) == (0, list(source.columns))


def test_a_chunk_that_no_ledger_row_names_is_not_seen(landed: tuple[SparkSession, Source]) -> None:
    spark, source = landed
    spark.sql("INSERT INTO bronze.meters_chunks SELECT * EXCEPT (landing), 99 AS landing FROM bronze.meters_chunks")
    found = SourceChunks(spark, source).range_query("b", "taken", 0, micros(minutes(9999)), ["load"])
    assert found["load"].to_pylist() == [100]


def test_what_lands_between_two_questions_is_in_the_second_answer(landed: tuple[SparkSession, Source]) -> None:
    spark, source = landed
    chunks = SourceChunks(spark, source)
    asked = ("b", "taken", 0, micros(minutes(9999)), ["load"])
    assert chunks.range_query(*asked)["load"].to_pylist() == [100]
    spark.sql(
        "INSERT INTO bronze.meters_chunks BY NAME SELECT * EXCEPT (landing, row_ids), 98 AS landing,"
        " transform(row_ids, id -> id + 1000000) AS row_ids FROM bronze.meters_chunks WHERE entity = 'b'"
    )
    assert chunks.range_query(*asked)["load"].to_pylist() == [100], "written, not landed"
    assert chunks.latest_at("b", "taken", micros(minutes(9999)), ["load"])["load"].value == 100
    spark.sql(
        "INSERT INTO bronze.files BY NAME SELECT * EXCEPT (landing), 98 AS landing FROM bronze.files"
        " WHERE source = 'meters' LIMIT 1"
    )
    assert chunks.range_query(*asked)["load"].to_pylist() == [100, 100]


def test_unknown_names_are_refused_by_name(landed: tuple[SparkSession, Source]) -> None:
    spark, source = landed
    chunks = SourceChunks(spark, source)
    with pytest.raises(UnknownTimeline, match="one of the timelines taken, seen of meters, found 'felt'"):
        chunks.range_query("a", "felt", 0, 1)
    with pytest.raises(UnknownComponent, match="found 'weight'"):
        chunks.latest_at("a", "taken", 0, ["load", "weight"])
    with pytest.raises(ParameterError, match="a string as timeline"):
        chunks.range_query("a", ["taken"], 0, 1)  # type: ignore[arg-type]  # the wrong type is the case
    with pytest.raises(ParameterError, match="a list of strings as components"):
        chunks.latest_at("a", "taken", 0, "load")
    other = source.model_copy(update={"source": "never_landed"})
    with pytest.raises(NothingLanded, match="never_landed"):
        SourceChunks(spark, other)


def _random_files(chance: random.Random) -> dict[tuple[int, str], list[tuple[str, Row]]]:
    """Rows of 30 meters in files of three drops; a meter's times never tie, so that row ids order nothing."""
    files: dict[tuple[int, str], list[tuple[str, Row]]] = {}
    for number in range(30):
        taken, seen = (chance.sample(range(60), 9) for _ in range(2))
        for place in range(9):
            values = {name: chance.choice([None, None, chance.randint(0, 99)]) for name in ("load", "heat")}
            row = Row(0, {"taken": taken[place], "seen": seen[place]}, values)
            files.setdefault((chance.randrange(3), chance.choice("ab")), []).append((f"m{number}", row))
    return files


def test_the_command_answers_with_what_was_not_taken_back(
    lake: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20240117)
    settings = write_source(settings, SOURCE)
    files = _random_files(chance)
    monkeypatch.setattr("spark_jobs.cli.commands.query.server_session", lambda *_: nullcontext(lake))
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def write(drop: int, file: str) -> None:
        rows = [line(m, r.times["taken"], r.times["seen"], **r.data) for m, r in files[drop, file]]
        write_lines(settings, drop, rows, f"{file}.ndjson")

    def asked(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        code = command_line.run(["query", "meters", *arguments, "--components", "load,heat", "--json"])
        told = json.loads(capsys.readouterr().out)
        assert code == 0, told
        return told["rows"]

    for drop, file in files:
        write(drop, file)
    for stage in ("land", "seal"):
        _stage(stage, lake, settings, 0, 2)
    for stage in ("land", "seal"):
        _stage(stage, lake, settings, 0, 0, retract=True, only_file="meters/2024-01-01/a.ndjson")
    del files[0, "a"]
    files[1, "b"] = [pair for pair in files[1, "b"] if chance.random() < 0.5]
    write(1, "b")
    _land(lake, settings, 1)

    for meter in (f"m{number}" for number in range(30)):
        rows = [row for rows in files.values() for owner, row in rows if owner == meter]
        timeline, at = chance.choice(["taken", "seen"]), chance.randint(20, 60)
        told = asked("--entity", meter, "--timeline", timeline, "--latest-at", minutes(at).isoformat())
        got = {row["component"]: (datetime.fromisoformat(row["time"]), row["value"]) for row in told}
        expected = latest_of(rows, timeline, at, ["load", "heat"])
        assert got == {name: (minutes(time), value) for name, (time, _, value) in expected.items()}, meter
        ends = ("--from", minutes(10).isoformat(), "--to", minutes(at).isoformat())
        got_rows = [
            (datetime.fromisoformat(row["time"]), row["load"], row["heat"])
            for row in asked("--entity", meter, "--timeline", timeline, *ends)
        ]
        expected_rows = range_of(rows, timeline, 10, at, ["load", "heat"])
        wanted = [(None if time is None else minutes(time), *values) for _, time, *values in expected_rows]
        assert got_rows == wanted, meter
