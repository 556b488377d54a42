"""A plan on the real path: it writes nothing, says what the run then does, and is refused once it is stale."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.base import StalePlan
from spark_jobs.jobs.estimate import estimate_seconds
from spark_jobs.jobs.request import Request
from spark_jobs.plans.plan import Plan, plan_replay, plan_run
from spark_jobs.plans.replay import Asked, quarantined_records, summary
from spark_jobs.sources import create_environment, load_source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    published,
    run,
    write_drops,
    write_lines,
    write_source,
)
from tests.jobs.test_pipeline import ALL, READINGS


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def plan(spark: SparkSession, home: Settings, first: int, last: int, **options: Any) -> Plan:
    source = load_source(home.sources / "meters.yml")
    interval = (micros(START + first * DAY), micros(START + (last + 1) * DAY))
    return plan_run(home, source, interval, spark, request=Request(**options), sample=0)


def listing(*roots: Path | None) -> dict[str, tuple[int, int]]:
    """Every file below the roots with its size and time."""
    files = [file for root in roots if root is not None for file in root.rglob("*") if file.is_file()]
    return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in files}


def row(values: dict[str, Any]) -> tuple[Any, ...]:
    """A row of a preview or a changelog as something that can be counted."""
    left_out = ("change", "time", "revision", "run_id")
    return tuple(sorted((name, repr(value)) for name, value in values.items() if name not in left_out))


def changelog(spark: SparkSession, run_id: str, plan: Plan) -> dict[str, Counter[tuple[Any, ...]]]:
    found = {}
    for table in plan.tables:
        rows = spark.sql(f"SELECT * FROM {table.table}_changes WHERE run_id = '{run_id}'").toArrow().to_pylist()
        found[table.table] = Counter(row(by_columns(values)) for values in rows)
    return found


def by_columns(values: dict[str, Any]) -> dict[str, Any]:
    """A change of a state with its components under their names; of a window as it is."""
    if "ints" not in values:
        return values
    named = {"meter": values["entity"], **dict(zip(values["names"], values["ints"], strict=True))}
    return {**named, **{name: values[name] for name in ("diff", "timestamp", "delta_count")}}


def previewed(plan: Plan) -> dict[str, Counter[tuple[Any, ...]]]:
    return {table.table: Counter(row(values) for values in table.sample) for table in plan.tables}


@pytest.mark.spark
@pytest.mark.turns
def test_a_plan_writes_nothing_and_the_run_does_what_it_says(
    empty_lake: SparkSession, home: Settings, spark_settings: Settings
) -> None:
    roots = (home.home, spark_settings.lake_path)
    before = listing(*roots)
    first = plan(empty_lake, home, 0, 0)
    assert listing(*roots) == before
    assert not {"bronze", "silver"} & {r.namespace for r in empty_lake.sql("SHOW DATABASES").collect()}
    assert first.drops[0].new == ["meters/2024-01-01/a.ndjson"]
    assert first.estimate_s is None
    run(empty_lake, home, 0, 0, planned=first.base)
    assert changelog(empty_lake, "test-0-0", first) == previewed(first)
    before = listing(*roots)
    second = plan(empty_lake, home, 0, 2)
    assert listing(*roots) == before
    assert [(d.drop, len(d.new), len(d.known), d.rows) for d in second.drops] == [
        ("2024-01-01", 0, 1, 0),
        ("2024-01-02", 1, 0, 3),
        ("2024-01-03", 1, 0, 2),
    ]
    counts = {t.table: t.counts for t in second.tables}
    assert counts["gold.meters"] == {"inserted": 0, "changed": 2, "removed": 0}
    (gold,) = (t for t in second.tables if t.table == "gold.meters")
    assert [*gold.sample[0]] == ["change", "diff", "meter", "readings", "load", "timestamp", "delta_count"]
    assert counts["silver.shifts"]["changed"] == 2
    assert second.estimate_s is not None
    run(empty_lake, home, 0, 2, planned=second.base)
    assert changelog(empty_lake, "test-0-2", second) == previewed(second)


@pytest.mark.spark
@pytest.mark.turns
def test_a_replay_and_a_retraction_do_what_their_plans_say(lake: SparkSession, home: Settings) -> None:
    mended = {day: [r.line() for r in [*READINGS, Reading(3, 3 * 24 * 60, "a", 1)] if r.drop == day] for day in (1, 3)}
    names = {}
    for day, lines in mended.items():
        path = write_lines(home, day, [lines[0].replace('"load": ', '"load": "much", "was": '), *lines[1:]])
        names[day] = path.relative_to(home.landing_folder).as_posix()
    run(lake, home, 0, 1)
    run(lake, home, 3, 3)
    for day, lines in mended.items():
        write_lines(home, day, lines)
    source = load_source(home.sources / "meters.yml")
    interval = source.drops.interval(0)[0], source.drops.interval(3)[1]
    before = listing(home.home)
    # one plan and one run, though the drop between has not landed
    replayed = plan_replay(home, source, interval, lake, sample=0)
    assert [(d.drop, d.changed, d.rows, d.rejects_back) for d in replayed.drops] == [
        ("2024-01-02", [names[1]], 1, 1), ("2024-01-04", [names[3]], 1, 1)
    ]  # fmt: skip
    retracted = plan(lake, home, 0, 0, retract=True)
    assert [(len(d.retracted), d.known, d.rows_back) for d in retracted.drops] == [(1, [], 5)]
    assert listing(home.home) == before
    with pytest.raises(ParameterError, match="found none"):
        plan_replay(home, source, source.drops.interval(0), lake, sample=0)
    run(lake, home, 1, 3, planned=replayed.base)
    assert changelog(lake, "test-1-3", replayed) == previewed(replayed)
    assert not replayed.changes_nothing
    assert frontiers.load(SparkLake(lake), source).landed == ((0, 2), (3, 4))
    with pytest.raises(StalePlan):
        run(lake, home, 0, 0, planned=retracted.base)
    retracted = plan(lake, home, 0, 0, retract=True)
    run(lake, home, 0, 0, planned=retracted.base)
    assert changelog(lake, "test-0-0", retracted) == previewed(retracted)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.turns
def test_a_stale_plan_is_refused_by_the_name_of_the_interval(lake: SparkSession, home: Settings) -> None:
    made = plan(lake, home, 0, 1)
    write_drops(home, [Reading(1, 24 * 60 + 40, "z", 1)])
    with pytest.raises(StalePlan, match="other files in 2024-01-02") as refusal:
        run(lake, home, 0, 1, planned=made.base)
    assert refusal.value.facts["intervals"] == ["2024-01-02"]
    made = plan(lake, home, 1, 1)
    run(lake, home, 0, 0)
    with pytest.raises(StalePlan, match="drops landed since in 2024-01-01"):
        run(lake, home, 1, 1, planned=made.base)
    assert plan(lake, home, 0, 0).changes_nothing
    before = {table: published(lake, table) for table in ALL}
    write_source(home, SOURCE.replace("limit: 12 hours", "limit: 1 hour"))
    changed = plan(lake, home, 0, 0)
    assert changed.changed_definition == ["window.hourly"]
    assert before == {table: published(lake, table) for table in ALL}
    run(lake, home, 0, 0, planned=changed.base)
    assert changelog(lake, "test-0-0", changed)["silver.shifts"] >= previewed(changed)["silver.shifts"]


@pytest.mark.spark
@pytest.mark.turns
def test_a_plan_of_an_environment_is_that_of_the_same_change_in_production(
    lake: SparkSession, home: Settings, spark_settings: Settings
) -> None:
    run(lake, home, 0, 1)
    environment = create_environment(home.home, "dev", home.sources)
    # minute DAY - 20 landed 20 minutes late for the window that ends with it
    changed = SOURCE.replace("limit: 12 hours", "limit: 10 min")
    (environment.folder / "meters.yml").write_text(changed)
    before = {table: published(lake, table) for table in ALL}
    files = listing(home.home, spark_settings.lake_path)
    tried = plan(lake, home.model_copy(update={"sources": environment.folder}), 0, 0)
    assert tried.changed_definition == ["window.hourly"]
    assert not tried.changes_nothing
    assert plan(lake, home, 0, 0).changes_nothing, "production has not changed"
    assert before == {table: published(lake, table) for table in ALL}
    assert files == listing(home.home, spark_settings.lake_path)
    write_source(home, changed)
    ordinary = plan(lake, home, 0, 0)
    assert previewed(tried) == previewed(ordinary)
    run(lake, home, 0, 0, planned=ordinary.base)
    assert changelog(lake, "test-0-0", tried) == previewed(tried)


def test_an_estimate_follows_the_rows_and_never_falls_below_the_fastest_run() -> None:
    assert estimate_seconds([], 10) is None
    assert estimate_seconds([(100, 8.0)], 10**6) == 8.0
    assert estimate_seconds([(0, 5.0), (1000, 15.0)], 500) == 10.0
    assert estimate_seconds([(0, 5.0), (1000, 15.0)], 3000) == 35.0
    assert estimate_seconds([(0, 9.0), (1000, 5.0)], 2000) == 7.0


@pytest.mark.spark
@pytest.mark.turns
def test_before_anything_has_landed_nothing_is_in_quarantine(lake: SparkSession, home: Settings) -> None:
    none = quarantined_records(lake, load_source(home.sources / "meters.yml"), Asked())
    assert (summary(none), none.orderBy("file", "line", "landing").collect()) == ([], [])
