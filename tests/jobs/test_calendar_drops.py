"""Drops of a time zone's calendar, through the whole pipeline and in Spark's SQL."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.model import STAGES
from spark_jobs.sources import Source, load_source
from spark_jobs.sources.drops import schedule
from spark_jobs.sources.quantities import DAY_US, instant_at, parse_every, parse_instant
from spark_jobs.storage.descriptions.sql import drop_start_sql
from tests.empty_lake import empty
from tests.jobs.harness import SOURCE, Session, published, run_one, write_source

NEW_YORK = (
    SOURCE.replace("start: 2024-01-01\n", "start: 2026-03-06\ntimezone: America/New_York\n")
    .replace("kind: sliding", "kind: tumbling")
    .replace("late: {policy: reemit, limit: 12 hours}", "late: next_window")
)
DAYS = 4
"""The third one, 2026-03-08, has 23 hours."""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("zone", "every", "start"),
    [
        ("America/New_York", "1 day", "2026-01-01T05:00"),
        ("Australia/Lord_Howe", "1 day", "2025-12-31T13:00"),
        ("Asia/Kathmandu", "1 week", "2025-12-31T18:15"),
        ("Africa/Cairo", "1 day", "2023-12-31T22:00"),
        ("America/Havana", "1 day", "2024-01-01T05:00"),
        ("America/Sao_Paulo", "1 month", "2016-01-01T02:00"),
        (None, "1 quarter", "2024-01-01"),
    ],
)
def test_spark_starts_drops_when_the_kernel_does(lake: SparkSession, zone: str | None, every: str, start: str) -> None:
    drops = schedule(parse_instant(start), parse_every(every), zone)
    assert drops.calendar is not None
    rows = lake.range(1200).selectExpr("id", f"{drop_start_sql(drops, 'id')} AS start").collect()
    assert [row.start for row in rows] == [drops.start(row.id) for row in rows]


def _write(settings: Settings, source: Source) -> None:
    """A reading every two hours of each day, and of each day but the first one from the evening before."""
    for number in range(DAYS):
        lo, hi = (instant_at(time) for time in source.drops.interval(number))
        times = [lo + timedelta(hours=h) for h in range(0, 24, 2) if lo + timedelta(hours=h) < hi]
        times += [lo - timedelta(minutes=m) for m in (20, 150) if number]
        path = settings.landing_folder / source.drops.path(source.path, number).replace("*", "a.ndjson")
        path.parent.mkdir(parents=True)
        lines = [
            {"id": f"{number}-{i}", "meter": "m", "at": t.isoformat(), "seen": lo.isoformat(), "load": i, "heat": i / 3}
            for i, t in enumerate(times)
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _run(spark: Session, settings: Settings, source: Source, first: int, last: int) -> None:
    lo, hi = instant_at(source.drops.start(first)), instant_at(source.drops.start(last + 1))
    given: dict[str, Any] = {"source": "meters", "lo": lo, "hi": hi, "run_id": f"test-{first}-{last}"}
    for stage in STAGES:
        run_one(spark, stage, **given, settings=settings)


@pytest.mark.turns
def test_days_with_and_without_a_change_of_clocks_give_what_one_backfill_gives(
    lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    settings = write_source(settings, NEW_YORK)
    source = load_source(settings.sources / "meters.yml")
    _write(settings, source)
    assert source.drops.interval(2)[1] - source.drops.interval(2)[0] == DAY_US * 23 // 24
    names = ("silver.hourly", "silver.shifts", "gold.meters", "silver.late")
    found = []
    for slices in ([(n, n) for n in range(DAYS)], [(0, DAYS - 1)]):
        for first, last in slices:
            _run(lake, settings, source, first, last)
        found.append([published(lake, name, "run_id", "noted_at") for name in names])
        empty(lake)
    daily, at_once = found
    assert daily == at_once
    # moved on to the start of its own drop, an hour earlier in UTC than that of the day before
    assert daily[0]
    assert daily[3]
