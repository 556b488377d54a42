"""Rows with times at the ends of the calendar, and rows without a key: each is in windows or listed with a reason, and
hides no other row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.audit.examination import examine_source
from spark_jobs.config import Settings
from spark_jobs.engine.windows import LISTED_REASONS
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.tables import PUBLISHED
from tests.jobs.harness import SOURCE, Reading, Session, run, write_lines, write_source

EXTREME = (
    SOURCE.replace("arrival: seen\n", "")
    .replace("heat: float", "heat: float, region: string")
    .replace(
        "state:",
        """  ends: {kind: tumbling, size: 1 day, key: meter, time: seen, aggregates: {n: count()}}
  regions: {kind: tumbling, size: 1 h, key: [region, meter], time: taken, aggregates: {n: count()}}
state:""",
    )
)
USUAL = [Reading(0, 10, "a", 1), Reading(1, 1450, "a", 2), Reading(1, 20, "a", 3), Reading(1, 30, "b", 5)]
"""The third and the fourth come a day late, in the file of rows with extreme times."""


def line(reading: Reading, region: str | None = "r", **changed: Any) -> str:
    return json.dumps({**json.loads(reading.line()), "region": region, **changed})


EXTREMES = [
    line(Reading(1, 1500, "first", 7), id="1", at="0001-01-01T00:30:00Z"),
    line(Reading(1, 1500, "typo", 7), id="2", at="0024-03-01T10:00:00Z"),
    line(Reading(1, 40, "open", 7), id="3", seen="9999-12-31T00:00:00Z"),
    line(Reading(1, 1460, "nowhere", 7), None, id="4"),
]
FILES: list[Sequence[str]] = [
    [line(r) for r in USUAL if r.drop == 0],
    [line(r) for r in USUAL if r.drop == 1] + EXTREMES,
]


def told(spark: Session, name: str) -> list[tuple[Any, ...]]:
    """The rows of a published name, sorted, without what slicing may change. By Arrow: `collect` knows no time of the
    first day of year 1."""
    rows = spark.table(name).drop("revision", "known_from").toArrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def windows(spark: Session, name: str, *columns: str) -> set[tuple[Any, ...]]:
    started = f"SELECT *, date_format(window_start, 'yyyy-MM-dd HH:mm') AS start FROM silver.{name}"
    rows = spark.sql(started).toArrow().to_pylist()
    return {tuple(row[column] for column in ("meter", "start", *columns)) for row in rows}


@pytest.mark.spark
@pytest.mark.turns
def test_extreme_times_and_rows_without_a_key_hide_no_row_and_are_told(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}), EXTREME)
    accounts = {}
    for drop, lines in enumerate(FILES):
        write_lines(home, drop, lines)
        stages = run(lake, home, drop, drop)
        accounts = next(stage["accounts"] for stage in stages if "accounts" in stage)
    source = load_source(home.sources / "meters.yml")
    regions = {("a", "2024-01-01 00:00", 2), ("a", "2024-01-02 00:00", 1), ("b", "2024-01-01 00:00", 1)}
    regions |= {("open", "2024-01-01 00:00", 1), ("typo", "0024-03-01 10:00", 1), ("first", "0001-01-01 00:00", 1)}
    assert windows(lake, "regions", "n") == regions
    days = {("a", "2024-01-01 00:00", 1), ("a", "2024-01-02 00:00", 2)}
    assert windows(lake, "ends", "n") == days | {(m, "2024-01-02 00:00", 1) for m in ("b", "first", "typo", "nowhere")}
    assert {start for meter, start in windows(lake, "shifts") if meter == "first"} == {"0001-01-01 00:30"}
    old = lake.sql("SELECT meter FROM silver.regions WHERE window_start < TIMESTAMP'0002-01-01 00:00:00'").collect()
    assert [row.meter for row in old] == ["first"]
    listed = lake.table("silver.late").select("action", "definition", "entity", "late_by").collect()
    assert {tuple(row) for row in listed if row.action in LISTED_REASONS} == {
        ("out_of_range", "ends", "open", None),
        ("out_of_range", "hourly", "first", None),
        ("null_key", "regions", "nowhere", None),
    }
    reasons = {name: (account["null_key"], account["out_of_range"]) for name, account in accounts.items()}
    assert reasons == {"hourly": (0, 1), "shifts": (0, 0), "ends": (0, 1), "regions": (1, 0)}
    states = {row.meter: row.load for row in lake.table("gold.meters").select("meter", "load").collect()}
    assert states == {"a": 6, "b": 5, "first": 7, "typo": 7, "open": 7, "nowhere": 7}
    assert audit(home, source, lake).failed == []

    # an earlier version published nothing of the second file but the states
    right = {table: told(lake, table) for table in ("silver.regions", "silver.ends", "silver.hourly", "silver.late")}
    for definition in source.windows:
        lake.sql(f"DELETE FROM silver.{definition}_history WHERE known_from >= '2024-01-02 00:00:01'")
    lake.sql("DELETE FROM silver.late_history WHERE action IN ('null_key', 'out_of_range')")
    lake.sql(
        f"UPDATE {PUBLISHED.qualified} SET definition = replace(definition, '\"reading\":\"1\",', ''), tables = NULL"
    )
    (finding,) = (f for f in examine_source(home, source) if f.verdict == "wrong")
    assert (finding.what, "before year 1000" in finding.found) == ("meters: publication", True)
    assert [verdict.name for verdict in audit(home, source, lake).failed] == ["records_at_odds"]
    run(lake, home, 1, 1)
    assert {table: told(lake, table) for table in right} == right
    assert [finding for finding in examine_source(home, source) if finding.verdict == "wrong"] == []
    assert audit(home, source, lake).failed == []
    assert [stage["commits"] for stage in run(lake, home, 1, 1)] == [0] * 5
