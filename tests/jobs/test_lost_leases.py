"""Leases are files of one machine: where they are lost, or another machine's, the lake says how tokens go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.storage.delta.fences import Fence, Superseded
from spark_jobs.storage.delta.records import newest_token
from spark_jobs.storage.descriptions.tables import FRONTIERS
from tests.empty_lake import empty
from tests.jobs.harness import Session, lake_of, published, run, write_drops, write_source
from tests.jobs.test_interrupted import interrupt
from tests.jobs.test_pipeline import ALL, READINGS


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def everything(spark: Session) -> dict[str, list[tuple[Any, ...]]]:
    return {table: published(spark, table, "final") for table in ALL}


def test_a_run_without_the_leases_goes_on_where_the_lake_stands(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(2):
        run(lake, home, day, day)
    expected, leases = everything(lake), home.home / "leases"
    empty(lake)
    run(lake, home, 0, 0)
    # rows that this attempt writes have tokens that no record knows
    interrupt(lake, home, 1, 1, "silver.hourly_history", monkeypatch)
    written = lake.sql("SELECT max(token) FROM silver.hourly_history").collect()[0][0]
    shutil.rmtree(leases)
    landed, *_, publishing = run(lake, home, 1, 1)
    assert landed["token"] > written
    assert "lost" in landed["lease"]
    assert publishing["moved"]
    assert "lease" not in publishing, "the stages after it count on"
    assert everything(lake) == expected
    # a copy that is as old as the first day's
    (leases / "meters.lease").write_text(
        json.dumps({"token": 4, "run_id": "another", "pid": 1, "staged": {"window": 3}})
    )
    assert [summary["commits"] for summary in run(lake, home, 1, 1)][-1] == 0
    assert everything(lake) == expected


def test_a_commit_that_is_too_late_says_so(lake: Session, home: Settings) -> None:
    run(lake, home, 0, 0)
    held = lake_of(lake)
    late = Fence("meters", newest_token(held.folder, "meters") - 3)
    with pytest.raises(Superseded, match="under this token or a greater one"):
        held.record(FRONTIERS, [{"source": "meters", "token": late.token}], late)
