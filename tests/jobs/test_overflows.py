"""A sum that does not fit into its type is null, and a warning names it; all else publishes, and it heals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.sources import find_source
from tests.jobs.harness import Reading, Session, run, write_drops, write_source

MOST = 2**63 - 1
READINGS = [
    Reading(0, 10, "a", MOST),
    Reading(0, 20, "a", 5),
    Reading(0, 200, "a", 7),
    Reading(0, 10, "b", 3),
]


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a home and a landing directory of their own, over the shared session's lake."""
    update = {"home": tmp_path, "landing": tmp_path / "landing"}
    return write_source(spark_settings.model_copy(update=update))


def sums(lake: Session) -> dict[tuple[str, int], int | None]:
    """Of sessions, which begin at the first reading: by meter and minute the sum of their loads."""
    rows = lake.sql("SELECT meter, hour(window_start) * 60 + minute(window_start) AS minute, total FROM silver.shifts")
    return {(row.meter, row.minute): row.total for row in rows.collect()}


def loads(lake: Session) -> dict[str, tuple[int, int | None]]:
    return {row.meter: (row.readings, row.load) for row in lake.table("gold.meters").collect()}


def warnings(lake: Session, run_id: str) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    chosen = f"kind = 'overflow' AND verdict = 'warned' AND run_id = '{run_id}'"
    rows = lake.table("quality.results").where(chosen).collect()
    assert all(row.on_failure and row.gate in ("silver", "gold") for row in rows)
    return {row.relation: (row.failing, json.loads(row.sample)) for row in rows}


@pytest.mark.spark
@pytest.mark.turns
def test_a_sum_that_overflows_is_null_with_a_warning_until_it_fits_again(lake: SparkSession, home: Settings) -> None:
    source = find_source(home.sources, "meters")
    write_drops(home, READINGS)
    summaries = run(lake, home, 0, 0)
    assert sums(lake) == {("a", 10): None, ("a", 200): 7, ("b", 10): 3}
    assert loads(lake) == {"a": (3, None), "b": (1, 3)}
    said = warnings(lake, "test-0-0")
    assert set(said) == {"silver.hourly", "silver.shifts", "gold.meters"}
    failing, sample = said["silver.shifts"]
    assert failing == 1
    assert sample == [
        {"meter": "a", "window_start": "2024-01-01 00:10:00+00:00", "column": "total", "about": float(2**63)}
    ]
    assert [row["entity"] for row in said["gold.meters"][1]] == ["a"]
    assert any("silver.shifts fits" in line for summary in summaries for line in summary.get("not_passed", []))
    assert audit(home, source, lake).failed == []

    # a late row brings it back into its type; what a day does not touch it does not speak of
    write_drops(home, [Reading(1, 30, "a", -MOST)])
    run(lake, home, 1, 1)
    assert sums(lake) == {("a", 10): 5, ("a", 200): 7, ("b", 10): 3}
    assert loads(lake) == {"a": (4, 12), "b": (1, 3)}
    assert set(warnings(lake, "test-1-1")) <= {"silver.hourly"}
    then = lake.sql("SELECT total FROM silver.shifts_as_of(timestamp'2024-01-02 00:00:00') WHERE total IS NULL")
    assert then.count() == 1, "as it was known then"

    # and without that row it overflows again
    run(lake, home, 1, 1, retract=True)
    assert sums(lake) == {("a", 10): None, ("a", 200): 7, ("b", 10): 3}
    assert loads(lake) == {"a": (3, None), "b": (1, 3)}
    assert audit(home, source, lake).failed == []
