"""A lake without Spark has the same rows as Spark's after the same drops, and DuckDB reads them by the same names."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import name_definitions, source_tables
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import attempt
from spark_jobs.model import STAGES
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions import chain_tables
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.lake import NeedsSpark, TableReader
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.jobs.harness import DAY, SOURCE, START, Reading, run, write_drops, write_lines, write_source
from tests.support.distribution import distribute_all
from tests.support.file_session import FileSession

pytestmark = pytest.mark.spark

OF_THE_MOMENT = {"chunk_id", "first_seen", "landed_at", "last_seen", "moved_at", "recorded_at", "state", "tables"}
"""Columns that differ from run to run: ids drawn at random, times of day, sizes and fingerprints of files."""
CHAINS = f"{SOURCE}compaction: {{delta_threshold: 4}}\n"
LAST = SOURCE.replace("delta_id: id\n", "delta_id: id\nduplicates: last\nsequence: load\n")
KEPT = f"{LAST}retention: {{since: 1 day, horizon: 1 day}}\n"
READINGS = [
    Reading(drop, drop * 1440 + 97 * i % 1440, f"m{i % 3}", 10 * drop + i) for drop in range(4) for i in range(12)
]
LATE = [Reading(2, 1440 + 200, "m1", 7), Reading(3, 600, "m2", 9), Reading(3, 2 * 1440 + 13, "m0", 5)]
AGAIN = [Reading(3, reading.minute, reading.meter, reading.load) for reading in READINGS[:3]]


def said(session: SparkSession | FileSession, settings: Settings) -> dict[str, list[str]]:
    """The rows of each view that users read, without the columns that differ from run to run."""
    views: dict[str, list[str]] = {}
    for statement in name_definitions(find_source(settings.sources, "meters")):
        named = re.match(r"CREATE OR REPLACE VIEW `(\w+)`\.`(\w+)`", statement)
        if named is not None:
            view = session.table(".".join(named.groups()))
            columns = [name for name in view.columns if name not in OF_THE_MOMENT]
            views[".".join(named.groups())] = sorted(map(_shown, view.select(*columns).collect()))
    return views


def _shown(row: Any) -> str:
    """A row as text. What is JSON in it, which Spark writes in its own way, is read."""
    values = row.asDict(recursive=True)
    if "components" in values:
        values["components"] = sorted(json.loads(values["components"]))
        values["times"] = sorted(values["times"].items())
    return repr(sorted(values.items()))


def run_on_files(settings: Settings, lake: FileLake, first: int, last: int, **options: Any) -> None:
    source = find_source(settings.sources, "meters")
    lo, hi = (micros(START + drop * DAY) for drop in (first, last + 1))
    for stage in STAGES:
        request = Request(pass_gap=True, **options)
        attempt(stage, source, settings, lake, lo_us=lo, hi_us=hi, run_id=f"test-{first}-{last}", request=request)


def rows(lake: TableReader, table: Table) -> list[str]:
    """The rows of a table as texts, in order."""
    columns = [name for name in table.column_names if name not in OF_THE_MOMENT]
    stored = lake.stored(table, columns).whole().to_pylist()
    if table.qualified == chain_tables.CHAINS.qualified:
        stored = with_summed_reports(stored)
    return sorted(repr(sorted(row.items())) for row in stored)


def with_summed_reports(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `gold.chain_history`; what the tasks of a run report about compaction, a row each, is summed."""
    reports: dict[tuple[Any, ...], Counter[str]] = {}
    for row in stored:
        if row["era"] == chain_tables.COMPACTION:
            of_run = reports.setdefault((row["known_from"], row["token"]), Counter())
            of_run.update({name: row[name] for name in ("dropped", *(column.name for column in chain_tables.METRICS))})
    segments = [row for row in stored if row["era"] != chain_tables.COMPACTION]
    return segments + [{"known_from": of, "token": token, **counts} for (of, token), counts in reports.items()]


@pytest.mark.parametrize(
    ("text", "in_tasks"),
    [
        pytest.param(CHAINS, False, id="chains"),
        pytest.param(CHAINS, True, id="chains in tasks", marks=pytest.mark.long),
        pytest.param(KEPT, True, id="retention in tasks", marks=pytest.mark.long),
    ],
)
def test_the_tables_have_the_same_rows_as_sparks(
    lake: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, in_tasks: bool
) -> None:
    # what changes lands by Spark there, and in this process here; `in_tasks`: the same holds for every stage
    monkeypatch.setattr("spark_jobs.landing.landing.is_for_here", lambda *_: False)
    if in_tasks:
        distribute_all(monkeypatch)
    settings = write_source(settings.model_copy(update={"spark": "classic"}), text)
    write_drops(settings, [*READINGS, *LATE, *AGAIN])
    write_lines(settings, 1, ["{", Reading(1, 1500, "m9", 1).line(), "[]"], "bad.ndjson")
    other = settings.model_copy(update={"home": tmp_path / "other"})
    of_files = FileSession(tmp_path / "lake")
    for first, last in ((0, 0), (1, 2), (3, 3)):
        run(lake, settings, first, last)
        run_on_files(other, of_files.lake, first, last)
    changes: list[tuple[int, dict[str, Any]]] = [(3, {}), (0, {"retract": True}), (1, {})]
    # a file that changes: rows go, come and change, and one takes the place of a duplicate; then a drop that goes, so
    # that duplicates of its rows count; then the file as it was
    changed = [Reading(3, reading.minute, reading.meter, reading.load + 1) for reading in READINGS[36:40]]
    write_drops(settings, [*changed, *READINGS[42:], READINGS[13], *AGAIN[1:]])
    write_lines(settings, 1, ["[]", Reading(1, 1500, "m9", 1).line(), "{"], "bad.ndjson")
    for drop, options in changes:
        run(lake, settings, drop, drop, **options)
        run_on_files(other, of_files.lake, drop, drop, **options)
    assert said(of_files, settings) == said(lake, settings)
    of_session, source = SparkLake(lake), find_source(settings.sources, "meters")
    compared = [table for table in source_tables(source) if table not in QUALITY]
    assert {table.qualified: rows(of_files.lake, table) for table in compared} == {
        table.qualified: rows(of_session, table) for table in compared
    }
    counts = {table.qualified: len(rows(of_files.lake, table)) for table in compared}
    assert counts["bronze.duplicates_history"] > len(AGAIN)
    assert counts["bronze.quarantine_history"] > 2
    assert counts["silver.late_history"] > 0
    for table in QUALITY:
        assert len(rows(of_files.lake, table)) == len(rows(of_session, table)), table.qualified


def test_spark_opens_the_tables(lake: SparkSession, settings: Settings, tmp_path: Path) -> None:
    settings = write_source(settings)
    write_drops(settings, READINGS)
    of_files, source = FileLake(tmp_path / "lake"), find_source(settings.sources, "meters")
    run_on_files(settings, of_files, 0, 1)
    windows = of_files.folder.handle_of("silver", "hourly_history")
    read = lake.read.format("delta").load(windows.uri)
    assert read.count() == len(of_files.stored(Table("silver", "hourly_history", "", ()), ["n"]).whole()) > 0
    views = {statement for statement in name_definitions(source) if "VIEW" in statement.split("`")[0]}
    assert len(of_files.catalog.views("silver") | of_files.catalog.views("gold")) < len(views)
    assert "hourly" in of_files.catalog.names("silver")


def test_what_needs_spark_is_refused_by_name(settings: Settings, tmp_path: Path) -> None:
    settings = write_source(settings, SOURCE + "checks: {low: {kind: sql, table: rows, sql: load < 100}}\n")
    write_drops(settings, READINGS[:12])
    with pytest.raises(NeedsSpark, match="the check low, a condition in SQL, needs one") as refused:
        run_on_files(settings, FileLake(tmp_path / "lake"), 0, 0)
    assert "tidemark up" in str(refused.value)
