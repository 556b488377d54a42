"""A run that ends before it has published leaves no trace in visible times, and the run that takes in what it landed
says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.engine.arrangement import ReadLease
from spark_jobs.jobs.visits import hold
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination import publication
from spark_jobs.trace import frontiers
from tests.empty_lake import empty
from tests.jobs.harness import Reading, Session, known_states, lake_of, run, write_drops, write_lines, write_source
from tests.jobs.test_crashes import Killed, kill_after
from tests.jobs.test_pipeline import DAY, READINGS

CHANGELOGS = ("silver.hourly_changes", "silver.shifts_changes", "gold.meters_changes")
Change = tuple[Any, ...]


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def interrupt(spark: Session, home: Settings, first: int, last: int, target: str, patch: pytest.MonkeyPatch) -> None:
    """A run that ends right after its commit to `target`."""
    with patch.context() as killing, pytest.raises(Killed, match=target):
        kill_after(killing, target)
        run(spark, home, first, last)


def changelogs(spark: Session) -> dict[str, list[Change]]:
    """Every change of every published table with its visible time."""
    return {
        name: sorted((tuple(row) for row in spark.sql(f"SELECT * FROM {name}").drop("run_id").collect()), key=repr)
        for name in CHANGELOGS
    }


def states(spark: Session, home: Settings) -> list[list[Change]]:
    """What was known of every meter at ticks around the ends of the days that are published."""
    lake, source = lake_of(spark), load_source(home.sources / "meters.yml")
    published_us = publication.load(lake, source).published_us
    ends = [source.drops.interval(n)[1] for n in range(4)]
    times = [t for hi in ends for t in (hi - 1, hi) if t < published_us]
    return [sorted((tuple(row.values()) for row in known_states(spark, source, known_us=t)), key=repr) for t in times]


def published_by(spark: Session) -> list[str]:
    """The runs that published, oldest publication first."""
    rows = spark.sql("SELECT run_id FROM trace.publications ORDER BY published").collect()
    return [row.run_id for row in rows]


EXPECTED: dict[int, Any] = {}
"""What undisturbed runs of so many days of READINGS publish."""


def undisturbed(spark: Session, home: Settings, days: int) -> Any:
    if days not in EXPECTED:
        EXPECTED[days] = of_runs(spark, home, days)
    return EXPECTED[days]


def of_runs(spark: Session, home: Settings, days: int, before_last: Callable[[], Any] = lambda: None) -> Any:
    for day in range(days):
        if day == days - 1:
            before_last()
        run(spark, home, day, day)
    published = changelogs(spark), states(spark, home)
    empty(spark)
    return published


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("bronze.files", marks=pytest.mark.long),
        "trace.frontiers",
        pytest.param("gold.state_history", marks=pytest.mark.long),
    ],
)
def test_a_repeated_run_publishes_at_the_time_of_an_undisturbed_one(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    expected = undisturbed(lake, home, 2)
    run(lake, home, 0, 0)
    interrupt(lake, home, 1, 1, target, monkeypatch)
    landed = run(lake, home, 1, 1)[0]
    assert (changelogs(lake), states(lake, home)) == expected
    assert (landed["files"], landed["rows"], landed["resumed_files"], landed["resumed_rows"]) == (1, 3, 1, 3)
    assert run(lake, home, 1, 1)[0]["files"] == 0, "what is published is not taken in again"


def test_a_file_that_changes_between_an_interrupted_run_and_the_next_leaves_no_trace_of_the_first(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = [Reading(1, DAY - 20, "a", 3).line(), Reading(1, DAY + 31, "a", 40).line()]
    as_it_was = (home.landing_folder / "meters" / "2024-01-02" / "a.ndjson").read_text().splitlines()
    expected = of_runs(lake, home, 2, lambda: write_lines(home, 1, corrected))
    write_lines(home, 1, as_it_was)
    run(lake, home, 0, 0)
    interrupt(lake, home, 1, 1, "silver.hourly_history", monkeypatch)
    write_lines(home, 1, corrected)
    landed = run(lake, home, 1, 1)[0]
    assert changelogs(lake) == expected[0]
    assert (landed["rows"] - landed["rows_back"], landed["resumed_rows"]) == (2, 3)


@pytest.mark.long
def test_days_that_run_after_an_interrupted_later_one_are_known_from_their_own_ends(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(lake, home, 4)
    interrupt(lake, home, 0, 0, "trace.frontiers", monkeypatch)
    interrupt(lake, home, 0, 0, "trace.frontiers", monkeypatch)
    run(lake, home, 0, 0)
    interrupt(lake, home, 1, 3, "silver.shifts_history", monkeypatch)
    for day in (1, 2, 3):
        run(lake, home, day, day)
    assert (changelogs(lake), states(lake, home)) == expected
    source = load_source(home.sources / "meters.yml")
    assert frontiers.load(lake_of(lake), source).landed == ((0, 4),)
    assert published_by(lake) == [f"test-{day}-{day}" for day in range(4)]


@pytest.mark.spark
@pytest.mark.turns
def test_what_an_interrupted_run_landed_counts_as_landed_once_another_run_takes_it_in(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, home, 0, 0)
    interrupt(lake, home, 1, 1, "bronze.files", monkeypatch)
    # nor is it a gap that the run would have to be told to pass
    landed = run(lake, home, 2, 2, pass_gap=False)[0]
    assert (landed["files"], landed["resumed_files"]) == (2, 1)
    source = load_source(home.sources / "meters.yml")
    assert frontiers.load(lake_of(lake), source).landed == ((0, 3),)
    assert published_by(lake) == ["test-0-0", "test-2-2"]
    hold(home, source, lake, ReadLease("audit", source.drops.interval(2)[0], 2**62))
    run(lake, home, 0, 2)
    assert published_by(lake) == ["test-0-0", "test-2-2"], "what moves the frontiers afterwards did not publish"


def test_a_run_that_sealed_where_another_one_published_later_is_not_named_for_it(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(lake, home, 0, 1, "trace.frontiers", monkeypatch)
    run(lake, home, 0, 0)
    run(lake, home, 1, 1)
    assert published_by(lake) == ["test-0-0", "test-1-1"]
