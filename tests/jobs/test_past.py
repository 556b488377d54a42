"""The past on real tables: as-of functions, the changelog and its causes, why a row is what it is, and folding."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition, histories
from spark_jobs.errors import ParameterError
from spark_jobs.failures import recognize
from spark_jobs.portal.changes import changes
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.overview import source_facts, source_page
from spark_jobs.reads.as_of import entity_state, states_at, windows_as_of
from spark_jobs.reads.point import BeforeFirstPublication
from spark_jobs.reads.why import Why, why
from spark_jobs.session_settings import session_settings
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.fold import fold
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.empty_lake import empty
from tests.jobs.harness import DAY, START, Reading, minute_of, published, run, write_drops, write_source
from tests.jobs.test_pipeline import READINGS, as_sessions, as_sliding, due, session_oracle, sliding_oracle

pytestmark = [pytest.mark.spark, pytest.mark.turns(together=True)]

NAMES = {
    "silver.hourly": "silver.hourly_as_of({at})",
    "silver.shifts": "silver.shifts_as_of({at})",
    "gold.meters": "gold.meters_as_of({at})",
    "gold.state": "gold.state_as_of('meters', {at})",
    "silver.late": "silver.late_as_of('meters', {at})",
}
"""What users read now -> the function that reads it as of a time."""

Rows = list[tuple[Any, ...]]


@dataclass
class Days:
    """A lake after three daily runs, and what each published name said after each: by SQL of the newest time then."""

    spark: SparkSession
    home: Settings
    source: Source
    then: dict[str, dict[str, Rows]]


@pytest.fixture(scope="module")
def days(spark: SparkSession, spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Days]:
    folder = tmp_path_factory.mktemp("home")
    home = write_source(spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"}))
    write_drops(home, READINGS)
    empty(spark)
    made = Days(spark, home, load_source(home.sources / "meters.yml"), {})
    for day in range(3):
        run(spark, home, day, day)
        at = f"timestamp'{START + (day + 1) * DAY:%Y-%m-%d %H:%M:%S}' - INTERVAL '0.000001' SECOND"
        made.then[at] = {table: published(spark, table, "final") for table in NAMES}
    yield made
    empty(spark)


def as_of(days: Days, at: str) -> dict[str, Rows]:
    return {table: published(days.spark, function.format(at=at), "final") for table, function in NAMES.items()}


def summed(spark: SparkSession, table: str, at: str) -> Rows:
    """The changelog up to a time, by definition: rows whose diffs sum to one."""
    columns = [c for c in spark.table(table).columns if c not in ("revision", "known_from", "final")]
    listed = ", ".join(columns)
    rows = spark.sql(
        f"SELECT {listed}, sum(diff) AS diff FROM {table}_changes WHERE time <= {at} GROUP BY {listed}"
    ).collect()
    assert {row["diff"] for row in rows} <= {0, 1}
    return sorted((tuple(row)[:-1] for row in rows if row["diff"]), key=repr)


def test_every_published_name_reads_as_it_was_known(days: Days) -> None:
    for at, tables in days.then.items():
        assert as_of(days, at) == tables
        assert {table: summed(days.spark, table, at) for table in ("silver.hourly", "silver.shifts")} == {
            table: tables[table] for table in ("silver.hourly", "silver.shifts")
        }
    assert published(days.spark, "silver.hourly_as_of()") == list(days.then.values())[-1]["silver.hourly"]


def test_the_state_of_one_entity_is_that_of_all_at_every_pair_of_times(days: Days) -> None:
    lake = SparkLake(days.spark)
    ends = [micros(START + (day + 1) * DAY) - 1 for day in range(3)]
    compared = 0
    for known_us, event_us in itertools.product([None, *ends], [None, ends[0] - 7 * 3_600_000_000, ends[1]]):
        times = {"known_us": known_us, "event_us": event_us}
        states = {row.meter: row.asDict() for row in states_at(lake, days.source, **times).collect()}
        for entity in {*states, "nobody"}:
            found = entity_state(lake, days.source, entity, **times).to_pylist()
            one = [{**row, "timestamp": row["timestamp"].replace(tzinfo=None)} for row in found]
            assert one == ([states[entity]] if entity in states else [])
            compared += len(one)
    assert compared > 12


def test_between_publications_states_go_by_the_deltas_and_tables_by_the_publication(days: Days) -> None:
    spark, lake = days.spark, SparkLake(days.spark)

    def by_delta(known_us: int) -> set[tuple[Any, ...]]:
        return {(r.meter, r.readings, r.load) for r in states_at(lake, days.source, known_us=known_us).collect()}

    def by_table(known_us: int) -> set[tuple[Any, ...]]:
        rows = spark.sql(f"SELECT meter, readings, load FROM gold.meters_as_of(timestamp_micros({known_us}))").collect()
        return {tuple(row) for row in rows}

    ends = [micros(START + (day + 1) * DAY) - 1 for day in range(3)]
    for known_us in ends:
        assert by_delta(known_us) == by_table(known_us)
    minutes = 24 * 60 + 120
    known_us = micros(START) + minutes * 60_000_000
    assert by_table(known_us) == by_table(ends[0])
    # a delta is visible at its own time, its arrival (here a minute into its drop) or the seal, whatever comes last
    visible = [r for r in READINGS if max(r.minute, r.drop * 24 * 60 + 1) <= minutes]
    loads = {m: [r.load for r in visible if r.meter == m] for m in "ab"}
    assert by_delta(known_us) == {(m, len(own), sum(own)) for m, own in loads.items()} != by_table(known_us)


def test_the_portal_shows_what_is_published(days: Days) -> None:
    spark = days.spark
    lake = HeldLake(days.home.lake)
    facts = source_facts(lake, days.source)
    page = source_page(lake, facts)
    assert facts.frontier_times["published"] == facts.frontier_times["complete"] == START + 3 * DAY
    assert page.entities == spark.table("gold.meters").count()
    told = {w.definition: (w.windows, w.final, w.restated, sum(w.by_drop.values())) for w in page.windows}
    assert told == {
        table: (rows.count(), rows.where("final").count(), rows.where("revision > 0").count(), rows.count())
        for table in ("hourly", "shifts")
        for rows in [spark.table(f"silver.{table}")]
    }
    # a row that is late for several definitions is one late row
    late_rows = spark.sql("SELECT DISTINCT row_id, date_format(drop_lo, 'yyyy-MM-dd') AS d FROM silver.late").collect()
    late = Counter(row.d for row in late_rows)
    assert spark.table("silver.late").count() > len(late_rows)
    label = days.source.drops.label
    assert {label(drop.seq_no): drop.late for drop in facts.drops.values() if drop.late} == late
    assert facts.late == sum(n for _, n in page.late.by_lateness) == late.total()
    assert [(label(drop.seq_no), drop.rows) for drop in facts.drops.values()] == [
        ("2024-01-01", 5),
        ("2024-01-02", 3),
        ("2024-01-03", 2),
    ]
    assert [(run.run_id, run.state) for run in facts.runs] == [(f"test-{d}-{d}", "published") for d in (2, 1, 0)]
    assert all(run.checks and not run.failed for run in facts.runs)
    publications = {row.run_id: row.published for row in spark.table("trace.publications").collect()}
    assert {run.run_id for run in facts.runs} == {*publications}
    assert page.chains is None
    assert [cell.verdict for month in page.months for cell in month.days] == ["ok"] * 3


def test_what_a_run_changed_is_what_its_changelog_says(days: Days) -> None:
    spark = days.spark
    lake = HeldLake(days.home.lake)
    for run_ in source_facts(lake, days.source).runs:
        assert run_.published is not None
        for change in changes(lake, days.source, run_.published, 3):
            where = f"run_id = '{run_.run_id}'"
            diffs = Counter(row["diff"] for row in spark.table(f"{change.table}_changes").where(where).collect())
            assert (change.inserted + change.changed, change.removed + change.changed) == (diffs[1], diffs[-1])
            assert len(change.sample) >= min(3, diffs[1])


REFUSED = (PySparkException, Py4JJavaError)
"""What a query raises: a classic session leaves an exception of a broadcast as Java wrapped it."""


def test_what_could_still_change_is_refused_by_its_code(days: Days) -> None:
    for function in ("silver.hourly_as_of(", "silver.late_as_of('meters', "):
        with pytest.raises(REFUSED, match="not_published"):
            days.spark.sql(f"SELECT * FROM {function}timestamp'2024-01-04')").collect()
        with pytest.raises(REFUSED, match=r"before_first_publication: .*2024-01-01 23:59:59\.999999"):
            days.spark.sql(f"SELECT * FROM {function}timestamp'2024-01-01 23:59:59.999998')").collect()
        assert days.spark.sql(f"SELECT * FROM {function}timestamp'2024-01-01 23:59:59.999999')").count() >= 0
    first_us = micros(START + DAY) - 1
    with pytest.raises(BeforeFirstPublication) as refused:
        windows_as_of(SparkLake(days.spark), Definition(days.source, "hourly"), first_us - 1)
    assert refused.value.facts == {"at_us": first_us - 1, "first_us": first_us}
    assert windows_as_of(SparkLake(days.spark), Definition(days.source, "hourly"), first_us).count()
    with pytest.raises(REFUSED, match="not_published: expected something published of nobody"):
        days.spark.sql("SELECT * FROM gold.state_as_of('nobody')").collect()


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_time_so_early_that_no_file_has_a_row_of_it_is_refused(
    days: Days, spark_settings: Settings, adaptive: str
) -> None:
    with session_settings(days.spark, {"spark.sql.adaptive.enabled": adaptive}):
        for function in NAMES.values():
            for early in ("2023-12-31", "2024-01-01 12:00:00"):
                for columns in ("*", "count(*)"):
                    with pytest.raises(REFUSED, match="before_first_publication") as raised:
                        at = f"timestamp'{early}'"
                        days.spark.sql(f"SELECT {columns} FROM {function.format(at=at)}").collect()
                    refusal = recognize(raised.value, spark_settings)
                    assert isinstance(refusal, BeforeFirstPublication)
                    assert refusal.expected == "a time from the first publication on, 2024-01-01 23:59:59.999999"
                    assert refusal.next_step.startswith("ask later: a run of several drops")
                    assert "SQLSTATE" not in refusal.sentence()


def test_each_change_names_the_updates_that_caused_it(days: Days) -> None:
    """The second day brought a late row at 23:40, and one at 00:30 that goes on with the session of the evening."""
    rows = days.spark.sql(
        "SELECT window_start, diff, update_event_time FROM silver.shifts_causes"
        " WHERE meter = 'a' AND run_id = 'test-1-1'"
    ).collect()
    day = 24 * 60
    evening, late, night = day - 30, day - 20, day + 30
    found = {(minute_of(r.window_start), r["diff"], minute_of(r.update_event_time)) for r in rows}
    assert found == {(evening, diff, cause) for diff in (-1, 1) for cause in (late, night)}
    causes = days.spark.sql("SELECT diff, run_id FROM gold.meters_causes WHERE entity = 'b'").collect()
    # what was future-dated on the first day is taken in by the second run, not by the one that landed it
    assert Counter((r["diff"], r.run_id) for r in causes) == {
        (1, "test-0-0"): 1,
        (-1, "test-1-1"): 2,
        (1, "test-1-1"): 2,
        (-1, "test-2-2"): 1,
        (1, "test-2-2"): 1,
    }


def told(found: Why) -> list[tuple[str, int, str]]:
    """Drop, line and run of the deltas behind a row."""
    return [(delta["file"].split("/")[1], delta["line"], delta["run_id"]) for delta in found.deltas]


def test_why_names_the_lines_behind_a_row_and_what_caused_each_revision(days: Days) -> None:
    lake = SparkLake(days.spark)
    session = why(lake, days.source, "silver.shifts", ["a", "window_start=2024-01-01T23:30:00Z"])
    first, second = ("2024-01-01", "2024-01-02")
    assert told(session) == [(first, 3, "test-0-0"), (second, 1, "test-1-1"), (second, 2, "test-1-1")]
    assert [(r.revision, r.run_id, r.values["n"], len(r.causes)) for r in session.revisions] == [
        (0, "test-0-0", 1, 1),
        (1, "test-1-1", 3, 2),
    ]
    assert session.revisions[0].known_to == session.revisions[1].known_from
    state = why(lake, days.source, "meters", ["b"])
    assert told(state) == [
        (first, 4, "test-0-0"),
        (first, 5, "test-0-0"),
        (second, 3, "test-1-1"),
        ("2024-01-03", 2, "test-2-2"),
    ]
    assert sum(delta["load"] for delta in state.deltas) == 18
    # the third day's row at minute 100 is in the bounds of no published window: it came too late for all
    sliding = why(lake, days.source, "hourly", ["a", "2024-01-01T00:05:00Z"])
    one = why(lake, days.source, "hourly", ["a", "2024-01-01T00:05:00Z"], 1)
    assert (one.n_deltas, one.deltas) == (len(sliding.deltas), sliding.deltas[:1])
    assert [delta["load"] for delta in sliding.deltas] == [5, 7]
    assert why(lake, days.source, "hourly", ["nobody", "2024-01-01T00:05:00Z"]).revisions == []
    with pytest.raises(ParameterError, match="a value for each of meter, window_start"):
        why(lake, days.source, "hourly", ["a"])
    with pytest.raises(ParameterError, match=r"silver\.hourly, silver\.shifts, gold\.meters"):
        why(lake, days.source, "daily", ["a"])


def test_why_says_the_same_in_every_time_zone(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, asked = SparkLake(days.spark), ("silver.shifts", ["a", "window_start=2024-01-01T23:30:00Z"])
    here = why(lake, days.source, *asked)
    assert here.revisions[0].known_from == START + DAY - timedelta(microseconds=1)
    monkeypatch.setenv("TZ", "Australia/Lord_Howe")
    time.tzset()
    try:
        assert why(lake, days.source, *asked) == here
    finally:
        monkeypatch.undo()
        time.tzset()


def test_folding_leaves_no_closing_row_and_changes_no_answer(days: Days) -> None:
    """Also what comes after: a folded window is restated again as any other."""
    spark, lake = days.spark, SparkLake(days.spark)
    before = as_of(days, "NULL"), published(spark, "silver.hourly_changes")
    current = publication.load(lake, days.source)
    kept = histories(days.source)
    counts = [fold(lake, history, current, Fence("meters", 10**6)) for history in kept]
    assert counts[0] == 0, "late rows made new hourly windows and took none back"
    assert all(counts[1:])
    assert lake.commits == 2
    assert [spark.table(h.table.qualified).where("era = 'closing'").count() for h in kept] == [0, 0, 0]
    assert [fold(lake, history, current, Fence("meters", 10**6 + 1)) for history in kept] == [0, 0, 0]
    assert (as_of(days, "NULL"), published(spark, "silver.hourly_changes")) == before
    for at, tables in days.then.items():
        assert as_of(days, at) == tables


def test_a_fold_of_an_attempt_that_was_given_up_is_skipped(days: Days) -> None:
    spark, lake = days.spark, SparkLake(days.spark)
    late = Reading(3, 2 * 24 * 60 + 5, "b", 40)
    write_drops(days.home, [late, READINGS[-1]])
    (days.home.home / "leases" / "meters.lease").write_text('{"token": 1000002, "run_id": null, "pid": null}')
    run(spark, days.home, 3, 3)
    rows = due([*READINGS, late], 4)
    assert as_sliding(spark) == sliding_oracle(rows)
    assert as_sessions(spark) == session_oracle(rows)
    shifts = histories(days.source)[1]
    current = publication.load(lake, days.source)
    assert fold(lake, shifts, current, Fence("meters", 5)) > 0
    assert spark.table(shifts.table.qualified).where("era = 'closing'").count() > 0
    assert as_sliding(spark) == sliding_oracle(rows)
