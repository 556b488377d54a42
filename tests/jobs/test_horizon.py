"""Rows below the horizon: they land and are told, and change nothing that is published, however the days are sliced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.engine.deltas import BelowHorizon
from spark_jobs.engine.spark.checkpoints import join_as_of
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.reads import chains_of
from spark_jobs.reads.state_reads import rollback_rows
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from tests.empty_lake import empty
from tests.jobs.harness import (
    SOURCE,
    START,
    Reading,
    Session,
    known_states,
    lake_of,
    published,
    run,
    write_drops,
    write_source,
)
from tests.jobs.test_pipeline import DAY, as_sessions, as_sliding, session_oracle, sliding_oracle

KEPT_DAYS = 1
RETENTION = f"retention: {{horizon: {KEPT_DAYS} day}}\n"
WINDOWS = SOURCE + RETENTION
CHAINS = (
    SOURCE[: SOURCE.index("windows:")]
    + SOURCE[SOURCE.index("state:") :]
    + RETENTION
    + "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n"
)
"""The same source without windows, and with chains."""
DAYS = 3

READINGS = [
    Reading(0, 10, "a", 5),
    Reading(0, 65, "a", 7),
    Reading(1, DAY + 30, "a", 4),
    Reading(1, 500, "b", 6),
    Reading(2, 2 * DAY + 5, "b", 1),
    Reading(2, DAY + 10, "a", 2),
    Reading(2, 100, "a", 8),
    # above the horizon when it lands, below it when it becomes known
    Reading(1, 400, "b", 20, seen=2 * DAY + 1),
]
BELOW = {100, 400}
"""Minutes of the rows above that lie below the horizon which a daily run would have met."""


def made(folder: Path, settings: Settings, text: str) -> Settings:
    home = settings.model_copy(update={"home": folder, "landing": folder / "landing"})
    write_drops(home, READINGS)
    return write_source(home, text)


def states(spark: Session, home: Settings) -> set[tuple[Any, ...]]:
    """What the trace, or the chains, say of all entities."""
    rows = known_states(spark, load_source(home.sources / "meters.yml"))
    return {(r["meter"], r["readings"], r["load"]) for r in rows}


def refuses_below(spark: Session, home: Settings) -> None:
    """States are told from the horizon of what the last run published on, and not before it."""
    horizon_us = micros(START) + (DAYS - KEPT_DAYS) * DAY * 60_000_000
    source = load_source(home.sources / "meters.yml")
    assert len(known_states(spark, source, event_us=horizon_us)) == 2
    with pytest.raises(BelowHorizon) as refusal:
        known_states(spark, source, event_us=horizon_us - 1)
    assert refusal.value.facts["horizon_us"] == horizon_us


def listed(spark: Session, action: str) -> Counter[tuple[Any, ...]]:
    rows = spark.sql(
        f"SELECT definition, unix_micros(event_time) AS at FROM silver.late WHERE action = '{action}'"
    ).collect()
    return Counter((r.definition, (r["at"] - micros(START)) // 60_000_000) for r in rows)


def below_is_refused(spark: SparkSession, home: Settings) -> None:
    """By a rollback to there, by one that would take effect there, and by a join; at the horizon all are answered."""
    source, tables = load_source(home.sources / "meters.yml"), lake_of(spark)
    day = DAY * 60_000_000
    horizon = micros(START) + (DAYS - KEPT_DAYS) * day
    for to_us, at_us in ((horizon - 1, horizon + day), (horizon, horizon - 1)):
        with pytest.raises(BelowHorizon):
            rollback_rows(tables, source, "b", to_us, at_us=at_us)
    with pytest.raises(ParameterError, match="'never'"):
        rollback_rows(tables, source, "never", horizon, at_us=horizon)
    for time, refused in ((horizon - 1, True), (horizon, False)):
        asked = spark.sql(f"SELECT 'b' AS meter, timestamp_micros({time}) AS at")
        joined = join_as_of(asked, "meter", "at", chains=chains_of(spark, "meters", home))
        if refused:
            with pytest.raises(PySparkException, match="below_horizon"):
                joined.collect()
        else:
            assert [(r.readings, r.load) for r in joined.collect()] == [(1, 6)]


@pytest.mark.turns
@pytest.mark.parametrize(
    "text", [WINDOWS, pytest.param(CHAINS, marks=[pytest.mark.spark, pytest.mark.long])], ids=["windows", "chains"]
)
def test_a_row_below_the_horizon_changes_nothing_and_is_listed(
    text: str, lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    windows = ("hourly", "shifts") if text is WINDOWS else ()
    tables = [*(f"silver.{window}" for window in windows), "gold.meters"]
    home = made(tmp_path / "daily", spark_settings, text)
    for day in range(DAYS):
        run(lake, home, day, day)
    counted = [r for r in READINGS if r.minute not in BELOW]
    if windows:
        assert as_sliding(lake) == sliding_oracle(counted)
        assert as_sessions(lake) == session_oracle(counted)
    found = {(m, len(own), sum(r.load for r in own)) for m in "ab" if (own := [r for r in counted if r.meter == m])}
    assert {(r.meter, r.readings, r.load) for r in lake.table("gold.meters").collect()} == found
    assert states(lake, home) == found
    assert listed(lake, "below_horizon") == {(d, at): 1 for d in (*windows, None) for at in BELOW}
    refuses_below(lake, home)
    daily = {table: published(lake, table) for table in (*tables, "silver.late")}
    if text is CHAINS:
        assert isinstance(lake, SparkSession)
        below_is_refused(lake, home)

    # what counts stays, also when its file is taken back
    run(lake, home, 0, 0, retract=True)
    assert {table: published(lake, table) for table in tables} == {table: daily[table] for table in tables}
    assert states(lake, home) == found
    assert listed(lake, "kept_below_horizon") == {(d, at): 1 for d in (*windows, None) for at in (10, 65)}

    empty(lake)
    at_once = made(tmp_path / "at-once", spark_settings, text)
    run(lake, at_once, 0, DAYS - 1)
    assert {table: published(lake, table) for table in daily} == daily
    assert states(lake, at_once) == found
    refuses_below(lake, at_once)
