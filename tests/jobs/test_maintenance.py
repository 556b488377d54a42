"""Maintenance changes no answer, keeps a lake small over many days, and does every step whatever another one does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.reads.why import why
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.storage.delta.file_upkeep import Footprint
from spark_jobs.storage.delta.places import lake_root
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.upkeep import maintenance
from spark_jobs.upkeep.maintenance import (
    MaintenanceStep,
    StepFailed,
    maintain_installation,
    maintain_source,
    step_failed,
)
from tests.empty_lake import empty
from tests.jobs.harness import DAY, SOURCE, START, path_of, published, run, write_source
from tests.jobs.test_merging import answers, readings, rows_of, source_of, write

pytestmark = pytest.mark.spark

STEPS = ["chunks", "trace", "fold", "results", "compact", "vacuum", "audit"]
PUBLISHED = ("silver.hourly", "silver.shifts", "gold.meters")
RETAINED = SOURCE + "retention: {since: 3 days, horizon: 60 days}\n"


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    """A home of the test's own, in which no file that is out of use stays for longer than it takes to ask."""
    own = {"home": tmp_path, "landing": tmp_path / "landing", "file_retention_hours": 0}
    return write_source(spark_settings.model_copy(update=own))


def maintained(spark: SparkSession, home: Settings) -> dict[str, MaintenanceStep]:
    return {step.step: step for step in maintain_source(home, source_of(home), spark)}


def everything(spark: SparkSession, home: Settings, *days: int) -> dict[str, Any]:
    """All answers, with those about the past: each published name as of some days' ends, changelogs, explanations."""
    told = answers(spark, home)
    for day in days:
        at = f"{START + (day + 1) * DAY:%Y-%m-%d}T00:00:00Z"
        known = f"timestamp'{at}' - interval 1 microsecond"
        for read in ("silver.hourly_as_of", "silver.shifts_as_of", "gold.meters_as_of"):
            told[f"{read} {day}"] = rows_of(spark.sql(f"SELECT * FROM {read}({known})"))
        told[f"late {day}"] = rows_of(spark.sql(f"SELECT * FROM silver.late_as_of('meters', {known})"))
    for name in ("silver.hourly_changes", "silver.shifts_changes", "gold.meters_changes", "trace.meters_corrections"):
        told[name] = rows_of(spark.table(name))
    told["publications"] = rows_of(spark.table("trace.publications"))
    told["why of a window"] = why(SparkLake(spark), source_of(home), "silver.hourly", window_of(spark))
    return told


def window_of(spark: SparkSession) -> list[str]:
    first = spark.table("silver.hourly").orderBy("meter", "window_start").first()
    assert first is not None
    return [first.meter, f"{first.window_start:%Y-%m-%dT%H:%M:%S.%fZ}"]


@pytest.mark.turns
def test_maintenance_changes_no_answer(lake: SparkSession, home: Settings) -> None:
    for drop in range(4):
        write(home, drop, readings(drop))
        run(lake, home, drop, drop)
    run(lake, home, 1, 1, retract=True)
    write(home, 2, readings(2, seed=9), "b.ndjson")
    run(lake, home, 2, 2)
    before = everything(lake, home, 0, 1, 2, 3)
    steps = maintained(lake, home)
    assert list(steps) == STEPS
    assert [step.found for step in steps.values() if step.failed] == []
    assert steps["chunks"].after.files < steps["chunks"].before.files
    assert steps["compact"].after.files < steps["compact"].before.files
    assert steps["vacuum"].after.files < steps["vacuum"].before.files
    assert steps["vacuum"].after.bytes < steps["vacuum"].before.bytes
    assert everything(lake, home, 0, 1, 2, 3) == before
    # what has been taken back comes again, on tables that were maintained
    run(lake, home, 1, 1, only_file=path_of(1))
    again = maintained(lake, home)
    assert [step.found for step in again.values() if step.failed] == []
    after_return = {name: published(lake, name) for name in PUBLISHED}
    empty(lake)
    for folder in ("leases", "views"):
        for file in (home.home / folder).glob("*"):
            file.unlink()
    run(lake, home, 0, 3)
    assert {name: published(lake, name) for name in PUBLISHED} == after_return


@pytest.mark.long
def test_maintenance_changes_no_answer_of_a_source_that_keeps_chains(lake: SparkSession, home: Settings) -> None:
    write_source(home, SOURCE + "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n")
    for drop in range(3):
        write(home, drop, readings(drop))
        run(lake, home, drop, drop)
    names = (*PUBLISHED, "gold.checkpoints", "gold.chains")
    before = {name: rows_of(lake.table(name)) for name in names}
    assert before["gold.chains"]
    steps = maintained(lake, home)
    assert [step.found for step in steps.values() if step.failed] == []
    assert steps["compact"].after.files < steps["compact"].before.files
    assert {name: rows_of(lake.table(name)) for name in names} == before


@pytest.mark.turns
def test_of_a_source_file_that_no_run_has_accepted_nothing_is_judged(lake: SparkSession, home: Settings) -> None:
    write(home, 0, readings(0))
    run(lake, home, 0, 0)
    write_source(home, SOURCE.replace("size: 60 min", "size: 30 min"))
    steps = maintained(lake, home)
    assert [step.found for step in steps.values() if step.failed] == []
    assert "window.hourly" in steps["audit"].found
    assert "nothing was judged" in steps["audit"].found


@pytest.mark.turns
def test_a_step_that_fails_is_named_and_the_others_are_done(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 0, readings(0))
    run(lake, home, 0, 0)

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(maintenance, "fold", full)
    steps = maintained(lake, home)
    assert list(steps) == STEPS
    [failed] = [step for step in steps.values() if step.failed]
    assert (failed.step, failed.found) == ("fold", "OSError: no space left on device")
    told = step_failed([failed])
    assert isinstance(told, StepFailed)
    assert "meters, fold" in str(told)
    assert "tidemark doctor" in str(told)


@pytest.mark.parametrize("refused", [False, True], ids=["by itself", "as the cause of a refusal"])
def test_a_lost_lake_server_ends_the_maintenance_so_that_it_is_done_again(
    home: Settings, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    lost = SparkConnectGrpcException("ended", errorClass="INVALID_HANDLE.SESSION_NOT_FOUND")

    def loses(*_: Any) -> None:
        if refused:
            raise ParameterError(expected="a", found="b") from lost
        raise lost

    session = SimpleNamespace(stop=lambda: None, interruptAll=lambda: None)
    monkeypatch.setattr("spark_jobs.session.open_session", lambda *_: session)
    folder = SimpleNamespace(is_stored=lambda *_: True, handle=loses)
    monkeypatch.setattr(maintenance, "SparkLake", lambda spark: SimpleNamespace(folder=folder))
    with pytest.raises(ServerUnreachable):
        maintenance.maintain(home, "meters", "maintain")


def simulate(spark: SparkSession, home: Settings, days: int, every: int) -> list[dict[str, float]]:
    """Runs of so many days, with rows that are late and drops that are taken back, and maintenance after each `every`;
    returns what the lake was after each maintenance."""
    write_source(home, RETAINED)
    figures = []
    seconds, rows = 0.0, 0
    for day in range(days):
        landed = readings(day)
        write(home, day, landed)
        rows += len(landed)
        begun = time.monotonic()
        run(spark, home, day, day)
        seconds += time.monotonic() - begun
        if day % every == every - 1:
            steps = maintained(spark, home)
            assert [step.found for step in steps.values() if step.failed] == []
            stored, in_use = steps["vacuum"].after, steps["compact"].after
            logs = sum(1 for path in Path(lake_root(spark)).rglob("_delta_log/*") if path.is_file())
            size = sum(path.stat().st_size for path in Path(lake_root(spark)).rglob("*.parquet"))
            figures.append(
                {
                    "day": day + 1,
                    "files in use": in_use.files,
                    "data files": stored.files - logs,
                    "bytes a row": round(size / rows),
                    "seconds a run": round(seconds / every, 2),
                }
            )
            print(figures[-1])
            seconds = 0.0
    return figures


def hold_bounded(figures: list[dict[str, float]]) -> None:
    """A lake that was maintained has no more files late than early, and no more bytes a row."""
    early, late = figures[0], figures[-1]
    assert late["files in use"] <= early["files in use"] + 2
    assert late["data files"] <= 1.2 * early["data files"] + 4
    assert late["bytes a row"] <= early["bytes a row"]


@pytest.mark.turns
def test_a_lake_that_is_maintained_stays_small(lake: SparkSession, home: Settings) -> None:
    hold_bounded(simulate(lake, home, 6, 3))


@pytest.mark.long
def test_a_lake_that_is_maintained_stays_small_for_long(lake: SparkSession, home: Settings) -> None:
    hold_bounded(simulate(lake, home, 16, 4))


def test_old_logs_reports_and_plans_leave_and_a_backup_is_made(spark_settings: Settings, tmp_path: Path) -> None:
    settings = spark_settings.model_copy(update={"home": tmp_path})
    old, new, other = (tmp_path / name for name in ("logs/airflow/dag/old.log", "logs/dbt/new", "leases/old.lease"))
    # its part runs, and has had nothing to say
    silent = tmp_path / "logs" / "supervisor.log"
    for path in (old, new, other, silent, tmp_path / "reports" / "meters.html", tmp_path / "plans" / "runs" / "1.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("told")
        if path != new:
            os.utime(path, (0, 0))
    [step] = maintain_installation(settings)
    assert (step.before, step.after) == (Footprint(4, 16), Footprint(1, 4))
    assert (old.parent.exists(), new.exists(), other.exists(), silent.exists()) == (False, True, True, True)
    # a backup that fails keeps nothing from leaving
    nowhere = replace_backup(settings, tmp_path / "nowhere")
    steps = list(maintain_installation(nowhere))
    assert [(step.step, step.failed) for step in steps] == [("backup", True), ("leftovers", False)]
    assert steps[0].do


def replace_backup(settings: Settings, place: Path) -> Settings:
    """Settings with a backup of a lake in which nothing was published."""
    return settings.model_copy(update={"lake": str(place / "lake"), "backup": str(place / "backup")})
