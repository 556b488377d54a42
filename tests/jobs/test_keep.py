"""Windows that are kept for a while: their retractions are dated in the future, and fall due whatever the slicing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.model import STAGES
from tests.empty_lake import empty
from tests.jobs.harness import SOURCE, Reading, Session, minute_of, published, run, write_drops, write_source

MINUTES = 24 * 60
KEPT = SOURCE.replace("    gap: 90 min\n", "    gap: 90 min\n    keep: 1 day\n").replace(
    "    size: 60 min\n", "    size: 60 min\n    keep: 36 hours\n"
)
READINGS = [
    Reading(0, 10, "a", 5),
    Reading(0, 1000, "b", 2),
    Reading(0, 2 * MINUTES + 30, "b", 1),  # known two days ahead
    Reading(1, MINUTES + 30, "a", 4),
    Reading(2, 100, "a", 8),  # its session has gone by then: it must not come back
    Reading(2, 2 * MINUTES + 5, "b", 1),
]


def sessions(spark: Session) -> set[tuple[Any, ...]]:
    return {(r.meter, minute_of(r.window_start), r.n) for r in spark.table("silver.shifts").collect()}


def waiting(spark: Session) -> set[tuple[Any, ...]]:
    """Sessions' retractions and deltas that are not due: their row, when they are (minutes), and their sign."""
    found = set()
    for window, name, column in (
        ("shifts", "silver.shifts_corrections", "meter"),
        (None, "trace.meters_corrections", "entity"),
    ):
        for r in spark.table(name).collect():
            found.add((window, r[column], round(minute_of(r.time), 3), r["diff"]))
    return found


def test_future_updates_show_with_their_publication(lake: Session, spark_settings: Settings, tmp_path: Path) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, KEPT)
    write_drops(home, [*READINGS, Reading(1, 5 * MINUTES, "c", 7)])
    run(lake, home, 0, 0)
    before = waiting(lake)
    stages = list(STAGES)
    for upto in range(1, len(stages)):
        run(lake, home, 1, 1, stages=stages[:upto])
        assert waiting(lake) == before, f"after {stages[upto - 1]}"
    run(lake, home, 1, 1)
    assert (None, "c", 5 * MINUTES, 1) in waiting(lake)


@pytest.mark.long
def test_a_window_leaves_when_it_is_due_and_its_history_stays(
    lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, KEPT)
    write_drops(home, READINGS)
    run(lake, home, 0, 0)
    assert sessions(lake) == {("a", 10, 1), ("b", 1000, 1)}
    assert waiting(lake) == {
        ("shifts", "a", MINUTES + 10, -1),
        ("shifts", "b", MINUTES + 1000, -1),
        (None, "b", 2 * MINUTES + 30, 1),
    }
    run(lake, home, 1, 1)
    assert sessions(lake) == {("a", MINUTES + 30, 1)}
    gone = lake.sql("SELECT meter, time, diff FROM silver.shifts_changes WHERE diff < 0").collect()
    assert {(r.meter, round(minute_of(r.time), 3)) for r in gone} == {("a", 2 * MINUTES), ("b", 2 * MINUTES)}
    assert lake.sql("SELECT * FROM silver.shifts_as_of(TIMESTAMP'2024-01-01 23:59:59.999999')").count() == 2
    run(lake, home, 2, 2)
    # the day is over at 2 days + 30: kept to 3 days + 30, one run more
    assert sessions(lake) == {("b", 2 * MINUTES + 5, 2)}
    daily = {table: published(lake, table, "final") for table in ("silver.hourly", "silver.shifts")}
    empty(lake)
    (tmp_path / "leases" / "meters.lease").unlink()
    run(lake, home, 2, 2)
    run(lake, home, 0, 1)
    assert daily == {table: published(lake, table, "final") for table in daily}
    assert daily["silver.hourly"]
