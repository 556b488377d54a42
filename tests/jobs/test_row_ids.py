"""Row ids follow from drop, path and line: what becomes of a file moves no row of another one."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.request import Request
from spark_jobs.landing.counted import counted_rows
from spark_jobs.landing.places import RowIdsShared
from spark_jobs.reads.why import why
from spark_jobs.sources import Source, first_row_id, load_source, row_id
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    Session,
    lake_of,
    path_of,
    published,
    run,
    run_one,
    write_lines,
    write_source,
)

NIGHT = 24 * 60
PLAIN = SOURCE[: SOURCE.index("windows:")] + SOURCE[SOURCE.index("state:") :]
NO_DELTA_IDS = SOURCE.replace("delta_id: id\n", "")


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})


def land(spark: Session, home: Settings, drop: int, **options: Any) -> dict[str, Any]:
    """The first stage alone, of one drop."""
    lo = START + drop * DAY
    request = Request(pass_gap=True, **options)
    return run_one(spark, "land", source="meters", lo=lo, hi=lo + DAY, settings=home, run_id="test", request=request)


def counts(summary: dict[str, Any]) -> tuple[int, int]:
    """Rows that this landing itself brought and took back."""
    rows, rows_back = (summary[name] - summary[f"resumed_{name}"] for name in ("rows", "rows_back"))
    return rows, rows_back


def test_one_file_of_a_drop_goes_or_joins_and_no_row_of_the_others_moves(lake: Session, home: Settings) -> None:
    home = write_source(home, PLAIN)
    content = {"a": [Reading(0, 10, "x", 1)], "b": [Reading(0, 20 + i, "y", i) for i in range(20)]}
    content["c"] = [Reading(0, 50 + i, "y", i) for i in range(7)]
    for name, readings in content.items():
        write_lines(home, 0, [reading.line() for reading in readings], name)
    run(lake, home, 0, 0)
    source = load_source(home.sources / "meters.yml")

    def told() -> list[tuple[str, int, str, int]]:
        deltas = why(lake_of(lake), source, "meters", ["y"]).deltas
        return sorted((d["file"], d["line"], d["run_id"], d["row_id"]) for d in deltas)

    before = told()
    assert [line[:3] for line in before] == [
        (path_of(0, name), line + 1, "test-0-0") for name in "bc" for line in range(len(content[name]))
    ]
    taken_back = run(lake, home, 0, 0, retract=True, only_file=path_of(0, "a"))[0]
    assert counts(taken_back) == (0, 1)
    assert [row.meter for row in lake.table("gold.meters").collect()] == ["y"]
    write_lines(home, 0, [Reading(0, 5 + i, "z", 1).line() for i in range(3)], "0")
    write_lines(home, 1, [Reading(1, NIGHT + 5, "x", 1).line()])
    assert counts(run(lake, home, 0, 1)[0]) == (4, 0)
    assert told() == before


@pytest.mark.spark
@pytest.mark.long
def test_files_that_come_change_go_and_come_back_in_any_order_leave_what_a_first_landing_would(
    lake: SparkSession, home: Settings
) -> None:
    spark, home = lake, write_source(home, NO_DELTA_IDS)
    source = load_source(home.sources / "meters.yml")
    chance = random.Random(11)
    # of each file what it says, and what of it counts
    files: dict[tuple[int, str], list[Reading]] = {}
    counting: dict[tuple[int, str], list[Reading]] = {}
    shown: dict[int, tuple[Any, ...]] = {}
    for step in range(12):
        drop, options = chance.randrange(2), {}
        known = [place for place in files if place[0] == drop]
        place = chance.choice(known) if known and chance.random() < 0.7 else (drop, f"{chance.randrange(10_000)}")
        if place in counting and chance.random() < 0.5:
            options = {"retract": True, "only_file": path_of(*place)}
            del counting[place]
        elif place in files and place not in counting:
            options = {"only_file": path_of(*place)}
            counting[place] = files[place]
        else:
            lines = files.get(place, [])[chance.randrange(3) :]
            more = [
                Reading(drop, drop * NIGHT + chance.randrange(-300, NIGHT), chance.choice("abc"), step)
                for _ in range(chance.randrange(1, 5))
            ]
            files[place] = counting[place] = chance.sample([*lines, *more], len(lines) + len(more))
            write_lines(home, drop, [reading.line() for reading in files[place]], place[1])
        summary = land(spark, home, drop, **options)
        now = counted(spark, source)
        assert now == expected(counting)
        came = {item for item in now.items() if item not in shown.items()}
        went = {item for item in shown.items() if item not in now.items()}
        assert counts(summary) == (len(came), len(went))
        assert {i for i, _ in came | went} <= {row_id(first_row_id(drop, path_of(*place)), n) for n in range(1, 99)}
        shown = now
    assert shown
    run(spark, home, 0, 1)
    fresh(spark, home, [place for place in files if place not in counting])


def expected(counting: dict[tuple[int, str], list[Reading]]) -> dict[int, tuple[Any, ...]]:
    """Row id -> values, of these files."""
    return {
        row_id(first_row_id(drop, path_of(drop, name)), line): (reading.meter, reading.minute, reading.load)
        for (drop, name), readings in counting.items()
        for line, reading in enumerate(readings, start=1)
    }


def counted(spark: SparkSession, source: Source) -> dict[int, tuple[Any, ...]]:
    minute = f"CAST((unix_micros(event_time) - {int(START.timestamp() * 1e6)}) / 6e7 AS INT)"
    rows = counted_rows(lake_of(spark), source).selectExpr("row_id", "c_meter", f"{minute} AS minute", "c_load")
    return {row[0]: tuple(row[1:]) for row in rows.collect()}


def fresh(spark: Session, home: Settings, gone: list[tuple[int, str]]) -> None:
    """Compare with a source that lands what counts in one run: rows with their ids, windows, late rows and state."""
    for drop, name in gone:
        (home.landing_folder / path_of(drop, name)).unlink()
    text = NO_DELTA_IDS.replace("source: meters", "source: again")
    for window in ("hourly", "shifts"):
        text = text.replace(f"  {window}:", f"  {window}_again:")
    write_source(home, text, "again")
    run(spark, home, 0, 1, source="again")
    for window in ("hourly", "shifts"):
        assert published(spark, f"silver.{window}", "final") == published(spark, f"silver.{window}_again", "final")
    assert published(spark, "gold.meters") == published(spark, "gold.again")
    of_runs = ("source", "known_from", "time", "landing", "run_id", "definition", "chunk_id")
    for table in ("bronze.{}_deltas", "silver.late"):
        ours, theirs = (
            sorted(map(repr, spark.table(table.format(name)).where(f"source = '{name}'").drop(*of_runs).collect()))
            for name in ("meters", "again")
        )
        assert ours == theirs, table


def test_files_whose_lines_would_share_row_ids_are_refused_before_anything_counts(
    lake: Session, home: Settings
) -> None:
    home = write_source(home, PLAIN)
    names = {first_row_id(0, path_of(0, f"{i}")): f"{i}" for i in range(120_000)}
    low, high = min(pairwise(sorted(names)), key=lambda pair: pair[1] - pair[0])
    short, long, other = names[high], names[low], "another name"
    lines = [Reading(0, i % NIGHT, "a", i).line() for i in range(high - low + 1)]
    assert len(lines) < 20_000
    write_lines(home, 0, lines, long)
    write_lines(home, 0, [Reading(0, 5, "b", i).line() for i in range(2)], short)

    def refused() -> None:
        with pytest.raises(RowIdsShared, match="rename the one that has not landed") as refusal:
            land(lake, home, 0)
        assert refusal.value.facts["files"] == [path_of(0, name) for name in (long, short)]

    refused()
    assert not lake.table("bronze.files").count()
    write_lines(home, 0, lines[:-1], long)
    assert counts(land(lake, home, 0)) == (len(lines) + 1, 0), "its last row is just before the other's first"
    write_lines(home, 0, lines, long)
    refused()
    assert lake.table("bronze.files").count() == 2
    assert counts(land(lake, home, 0, retract=True, only_file=path_of(0, long))) == (0, len(lines) - 1)
    refused()
    (home.landing_folder / path_of(0, long)).rename(home.landing_folder / path_of(0, other))
    assert counts(land(lake, home, 0)) == (len(lines), 0)
