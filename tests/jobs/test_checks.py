"""Checks of a source file in real runs: what quarantines lands elsewhere, what fails publishes nothing, what warns goes
on, what a person overrides is recorded; and no other check speaks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.errors import ParameterError
from spark_jobs.gates import GateFailed
from spark_jobs.model import STAGES
from spark_jobs.sources import SourceFileError
from tests.jobs.harness import SOURCE, Reading, Session, path_of, published, run, write_drops, write_source

GOOD = [Reading(0, minute, meter, load) for meter in "ab" for minute, load in ((10, 1), (50, 20), (200, 30))]
CHECKS = """
checks:
  load_plausible: {kind: between, column: load, min: 0, max: 1000, treatment: quarantine, mostly: 0.5}
  load_low: {kind: between, column: load, max: 100}
  meter_known: {kind: in, column: meter, values: [a, b, c], treatment: warn}
  few: {kind: between, table: hourly, column: n, max: 3}
  one_state: {kind: unique, table: state, columns: meter}
  some_states: {kind: row_count, table: state, max: 3}
"""
TABLES = ("silver.hourly", "silver.shifts", "gold.meters")


@pytest.fixture
def bare(spark_settings: Settings, tmp_path: Path) -> Settings:
    """Settings of the shared lake with a home of the test's own, without sources."""
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})


def results(spark: Session, run_id: str) -> dict[str, dict[str, Any]]:
    """The newest result of each check of a run; a name tells it."""
    rows = spark.sql(f"SELECT * FROM quality.results WHERE run_id = '{run_id}' AND kind = 'check' ORDER BY token")
    return {row.name: row.asDict() for row in rows.collect()}


def not_passed(spark: Session, run_id: str) -> dict[str, str]:
    return {name: row["verdict"] for name, row in results(spark, run_id).items() if row["verdict"] != "passed"}


def test_what_quarantines_lands_elsewhere_and_replays(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    assert set(results(lake, "test-0-0")) == set(_names())
    assert not_passed(lake, "test-0-0") == {}
    before = {table: published(lake, table) for table in TABLES}

    wild = Reading(0, 60, "a", 5000)
    write_drops(home, [*GOOD, wild])
    land, *_ = run(lake, home, 0, 0)
    assert (land["rows"], land["rejects"]) == (0, 1)
    assert not_passed(lake, "test-0-0") == {"load_plausible": "quarantined"}
    told = results(lake, "test-0-0")["load_plausible"]
    assert (told["failing"], json.loads(told["sample"])[0]["line"]) == (1, len(GOOD) + 1)
    rejected = lake.sql("SELECT rule, reason, raw FROM bronze.quarantine").collect()
    reason = "column `load`: expected a value from 0 to 1000 (check load_plausible), found '5000'"
    assert [tuple(row) for row in rejected] == [("check.load_plausible", reason, wild.line())]
    assert {table: published(lake, table) for table in TABLES} == before

    metrics = lake.sql(
        "SELECT seq_no, sum(files), sum(rows), sum(rejects), sum(late_rows), sum(bytes), count(*)"
        " FROM quality.metrics WHERE trace_batches IS NULL GROUP BY seq_no"
    ).collect()
    size = (home.landing_folder / path_of(0)).stat().st_size
    assert [tuple(row) for row in metrics] == [(0, 1, len(GOOD), 1, 0, size, 2)]

    runs = lake.sql("SELECT outcome, inputs, outputs, stages FROM quality.runs ORDER BY token").collect()
    assert [run.outcome for run in runs] == ["published"]  # the second one changed nothing that is published
    assert [file["path"] for file in json.loads(runs[0].inputs)] == [path_of(0)]
    assert [stage["stage"] for stage in json.loads(runs[0].stages)] == [*STAGES]
    written = {table: told["rows"] for table, told in json.loads(runs[0].outputs).items()}
    assert written["silver.hourly_history"] == len(before["silver.hourly"])
    assert written["gold.state_history"] == len(before["gold.meters"])

    # another rule of what lands is another definition; accepted, the row lands
    others = CHECKS.replace("max: 1000", "max: 9000").replace("max: 100}", "max: 9000}")
    write_source(bare, SOURCE + others)
    with pytest.raises(DefinitionChanged, match="parse"):
        run(lake, home, 0, 0)
    land, *_ = run(lake, home, 0, 0, accept_definition=True)
    assert (land["rows"], land["rejects_back"]) == (1, 1)
    assert not_passed(lake, "test-0-0") == {}
    assert [row.replay_state for row in lake.sql("SELECT replay_state FROM bronze.quarantine").collect()] == [
        "replayed"
    ]
    states = lake.sql("SELECT load FROM gold.meters WHERE meter = 'a'").collect()
    assert [row.load for row in states] == [51 + 5000]


def test_too_much_in_quarantine_stops_the_run(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, [Reading(0, minute, "a", 5000) for minute in range(4)] + GOOD[:3])
    with pytest.raises(GateFailed) as failure:
        run(lake, home, 0, 0)
    assert [failed["name"] for failed in failure.value.failed] == ["load_plausible"]
    assert lake.table("trace.published").count() == 0


WILD = [Reading(0, minute, "a", 5000) for minute in range(4)]


@pytest.mark.turns
@pytest.mark.parametrize("way", ["the file", "the check", "the first landing"])
def test_a_run_that_quarantine_stopped_goes_on_once_what_was_wrong_is_mended(
    lake: Session, bare: Settings, way: str
) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    mended = [Reading(1, 1500, "a", load) for load in (1, 2, 3)]
    if way != "the first landing":
        write_drops(home, [*GOOD, WILD[0]])
        run(lake, home, 0, 0)
    write_drops(home, [*mended, *[Reading(1, minute, "a", 5000) for minute in range(1600, 2000, 100)]])
    for _ in range(2):  # nothing is mended
        with pytest.raises(GateFailed, match="4 of 7 rows that break it"):
            run(lake, home, 1, 1)
    if way == "the check":
        write_source(bare, SOURCE + CHECKS.replace("max: 1000", "max: 9000").replace("max: 100}", "max: 9000}"))
    else:
        write_drops(home, [*mended, Reading(1, 1600, "a", 5000)])
    run(lake, home, 1, 1, accept_definition=way == "the check")
    told = results(lake, "test-1-1")["load_plausible"]
    # an accepted definition reads the first drop again, too
    of_all = ("0 of 14 rows that break it", "passed", 0)
    assert (told["observed"], told["verdict"], told["failing"]) == (
        of_all if way == "the check" else ("1 of 4 rows that break it", "quarantined", 1)
    )
    assert lake.table("silver.hourly").count() > 0


def test_rejects_that_are_kept_as_a_range_count_one_by_one(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE.replace("format: ndjson}", "format: ndjson, max_rejects: 1}") + CHECKS)
    write_drops(home, [*WILD, *GOOD[:3]])
    with pytest.raises(GateFailed) as failure:
        run(lake, home, 0, 0)
    (failed,) = failure.value.failed
    assert (failed["name"], failed["observed"], failed["failing"]) == (
        "load_plausible",
        "4 of 7 rows that break it",
        4,
    )


def test_a_person_lets_pass_what_quarantine_stopped(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, [*WILD, *GOOD[:3]])
    with pytest.raises(GateFailed, match="--override load_plausible --because"):
        run(lake, home, 0, 0)
    run(lake, home, 0, 0, overrides={"load_plausible": "a test of the sensor"})
    assert not_passed(lake, "test-0-0") == {"load_plausible": "overridden"}
    said = lake.sql("SELECT name, because FROM quality.overrides").collect()
    assert [tuple(row) for row in said] == [("load_plausible", "a test of the sensor")]
    assert lake.table("silver.hourly").count() > 0


def test_what_fails_publishes_nothing_until_a_person_lets_it_pass(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in TABLES}
    write_drops(home, [Reading(1, 1500, "a", 101), Reading(1, 1510, "z", 100)])
    for _ in range(2):  # a repeated run meets it again
        with pytest.raises(GateFailed) as failure:
            run(lake, home, 1, 1)
        assert [failed["name"] for failed in failure.value.failed] == ["load_low"]
        assert {table: published(lake, table) for table in TABLES} == before
    message = str(failure.value)
    for part in ("load_low: `load`: a value of at most 100", "expected a value of at most 100, found 1 of 2 rows"):
        assert part in message
    assert "file=meters/2024-01-02/a.ndjson, line=1" in message
    assert "--override load_low --because" in message
    runs = lake.sql("SELECT outcome, failed_stage, error_code FROM quality.runs ORDER BY token").collect()
    assert [tuple(run) for run in runs] == [("published", None, None), *[("failed", "land", "gate_failed")] * 2]
    assert not_passed(lake, "test-1-1") == {"load_low": "failed", "meter_known": "warned"}

    with pytest.raises(ParameterError, match="load_low"):
        run(lake, home, 1, 1, overrides={"lod_low": "typo"})
    run(lake, home, 1, 1, overrides={"load_low": "a new sensor, told by the operator"})
    assert not_passed(lake, "test-1-1") == {"load_low": "overridden", "meter_known": "warned"}
    said = lake.sql("SELECT name, because, run_id FROM quality.overrides").collect()
    assert [tuple(row) for row in said] == [("load_low", "a new sensor, told by the operator", "test-1-1")]
    assert {table: published(lake, table) for table in TABLES} != before


@pytest.mark.turns
@pytest.mark.parametrize("way", ["a corrected file", "a retraction"])
def test_what_failed_a_check_goes_on_once_it_is_corrected(lake: Session, bare: Settings, way: str) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in TABLES}
    write_drops(home, [Reading(1, 1500, "a", 101), Reading(1, 1510, "a", 9)])
    with pytest.raises(GateFailed, match="load_low"):
        run(lake, home, 1, 1)
    if way == "a retraction":
        run(lake, home, 1, 1, retract=True)
        assert {table: published(lake, table) for table in TABLES} == before
    write_drops(home, [Reading(1, 1500, "a", 100), Reading(1, 1510, "a", 9)])
    run(lake, home, 1, 1)
    assert not_passed(lake, "test-1-1") == {}
    assert {table: published(lake, table) for table in TABLES} != before


def test_rows_are_counted_as_they_stand_in_the_drops_that_a_run_lands_of(lake: Session, bare: Settings) -> None:
    home = write_source(bare, f"{SOURCE}checks:\n  all_there: {{kind: row_count, min: 6, max: 6}}\n")
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    write_drops(home, [*GOOD[:-1], replace(GOOD[-1], load=31)])  # of which one row lands
    run(lake, home, 0, 0)
    told = results(lake, "test-0-0")["all_there"]
    assert (told["verdict"], told["observed"]) == ("passed", "6")
    write_drops(home, GOOD[:-1])
    with pytest.raises(GateFailed, match=r"(?s)all_there.*found 5"):
        run(lake, home, 0, 0)


def test_rows_together_are_checked_as_they_stand_in_the_drops_that_a_run_lands_of(
    lake: Session, bare: Settings
) -> None:
    checks = """checks:
  mostly_low: {kind: between, column: load, max: 25, mostly: 0.5}
  loads: {kind: unique, columns: [meter, load]}
  recent: {kind: freshness, column: at, within: 21 h}
"""
    home = write_source(bare, SOURCE + checks)
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    # each of the rows that land is high and early; of all rows half are high, and two are late
    write_drops(home, [replace(GOOD[0], load=26), *GOOD[1:]])
    run(lake, home, 0, 0)
    observed = {name: row["observed"] for name, row in results(lake, "test-0-0").items()}
    assert not_passed(lake, "test-0-0") == {}
    assert observed["mostly_low"] == "3 of 6 rows that break it"
    # the row that lands is like one that has been there
    write_drops(home, [replace(GOOD[0], load=GOOD[1].load), *GOOD[1:]])
    with pytest.raises(GateFailed) as failure:
        run(lake, home, 0, 0)
    (failed,) = failure.value.failed
    assert (failed["name"], failed["failing"]) == ("loads", 2)
    assert {row["load"] for row in failed["sample"]} == {GOOD[1].load}


def test_published_tables_are_checked_as_they_would_be(lake: Session, bare: Settings) -> None:
    home = write_source(bare, SOURCE + CHECKS)
    write_drops(home, GOOD)
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in TABLES}
    # two rows more in an hour: no row is wrong, a window is
    write_drops(home, [Reading(1, 1500 + minute, "a", 1) for minute in range(4)])
    with pytest.raises(GateFailed) as failure:
        run(lake, home, 1, 1)
    (failed,) = failure.value.failed
    assert (failed["gate"], failed["name"], failed["relation"]) == ("silver", "few", "silver.hourly")
    assert {row["n"] for row in failed["sample"]} == {4}
    write_drops(home, [Reading(1, 1500, meter, 1) for meter in "bc"])
    run(lake, home, 1, 1)
    write_drops(home, [Reading(2, 3000, "d", 1)])
    with pytest.raises(GateFailed) as failure:
        run(lake, home, 2, 2)
    assert [failed["name"] for failed in failure.value.failed] == ["some_states"]
    assert before != {table: published(lake, table) for table in TABLES}


@pytest.mark.turns
@pytest.mark.parametrize(
    ("check", "found"),
    [
        pytest.param("{kind: sql, sql: 'load <'}", "checks.mine.sql", marks=pytest.mark.spark),
        pytest.param("{kind: sql, sql: 'lod < 3'}", "lod", marks=pytest.mark.spark),
        ("{kind: expectation, type: ExpectNothingOfTheSort}", "has no ExpectNothingOfTheSort"),
        ("{kind: matches, column: meter, pattern: 'a++b'}", "RE2"),
    ],
)
def test_a_wrong_check_names_itself_before_anything_lands(
    lake: SparkSession, bare: Settings, check: str, found: str
) -> None:
    home = write_source(bare, f"{SOURCE}checks:\n  mine: {check}\n")
    write_drops(home, GOOD)
    with pytest.raises(SourceFileError, match=found) as refused:
        run(lake, home, 0, 0)
    assert "checks.mine" in str(refused.value)
    assert lake.table("bronze.files").count() == 0


def _names() -> list[str]:
    return [line.split(":")[0].strip() for line in CHECKS.splitlines() if line.startswith("  ")]
