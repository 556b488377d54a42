"""The stages on real Spark and Delta, over a small source with late, future-dated, repeated and broken rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition
from spark_jobs.publish.changes import changes_since
from spark_jobs.reads.as_of import states_at, windows_as_of
from spark_jobs.reads.point import NotPublished, ReadPoint
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from tests.empty_lake import empty
from tests.jobs.harness import (
    MINUTE,
    START,
    Reading,
    Session,
    lake_of,
    minute_of,
    published,
    run,
    write_drops,
    write_lines,
    write_source,
)

DAY = 24 * 60

READINGS = [
    Reading(0, 10, "a", 5),
    Reading(0, 65, "a", 7),
    Reading(0, DAY - 30, "a", 1),
    Reading(0, 200, "b", 2),
    Reading(0, DAY + 20, "b", 9),  # future-dated: the drop before its own day
    # late by hours, and one whose session goes on over midnight
    Reading(1, DAY - 20, "a", 3),
    Reading(1, DAY + 30, "a", 4),
    Reading(1, DAY + 500, "b", 6),
    # late beyond the limit of `hourly` for every window, within that of `shifts`
    Reading(2, 100, "a", 8),
    Reading(2, 2 * DAY + 5, "b", 1),
    Reading(3, 3 * DAY + 5, "c", 1),
]

ALL = ("silver.hourly", "silver.shifts", "silver.late", "gold.meters")


@pytest.fixture
def home(spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the shared session with landing, leases and quality of the test's own."""
    folder = tmp_path_factory.mktemp("home")
    return write_source(spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"}))


@pytest.fixture
def fresh(lake: Session, home: Settings) -> tuple[Session, Settings]:
    write_drops(home, READINGS)
    return lake, home


def sliding_oracle(readings: list[Reading], size: int = 60, limit: int = 720) -> Counter[tuple[Any, ...]]:
    """KIP-450 by definition over (reading, window) pairs that are not late beyond the limit; in ticks of a minute.

    Right windows start a microsecond after their row: as all times are whole minutes, that is told apart by a half.
    """
    rows = [(r.meter, r.minute, r.load, r.drop * DAY - limit) for r in readings]
    found: Counter[tuple[Any, ...]] = Counter()
    for meter in {m for m, *_ in rows}:
        own = [(t, load, least) for m, t, load, least in rows if m == meter]
        lefts = {t - size for t, _, least in own if t >= least}
        rights = {t + 1e-9 for t, _, least in own if t + size >= least}
        for start in lefts | rights:
            inside = [load for t, load, least in own if start <= t <= start + size and start + size >= least]
            if inside:
                found[meter, round(start, 3), len(inside), sum(inside), max(inside)] += 1
    return found


def session_oracle(readings: list[Reading], gap: int = 90) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for meter in {r.meter for r in readings}:
        own = sorted((r.minute, r.load) for r in readings if r.meter == meter)
        session = [own[0]]
        for row in [*own[1:], None]:
            if row is None or row[0] - session[-1][0] > gap:
                found[meter, session[0][0], session[-1][0], len(session), sum(load for _, load in session)] += 1
                session = []
            if row is not None:
                session.append(row)
    return found


def as_sliding(spark: Session) -> Counter[tuple[Any, ...]]:
    rows = spark.table("silver.hourly").collect()
    return Counter((r.meter, round(minute_of(r.window_start), 3), r.n, r.total, r.high) for r in rows)


def as_sessions(spark: Session) -> Counter[tuple[Any, ...]]:
    rows = spark.table("silver.shifts").collect()
    return Counter((r.meter, minute_of(r.window_start), minute_of(r.window_end), r.n, r.total) for r in rows)


def due(readings: list[Reading], days: int) -> list[Reading]:
    """What counts once the drops of the first `days` days have run: landed, and not future-dated."""
    return [r for r in readings if r.drop < days and r.minute < days * DAY]


def test_each_daily_run_publishes_what_the_rows_so_far_define(fresh: tuple[Session, Settings]) -> None:
    spark, home = fresh
    for day in range(3):
        run(spark, home, day, day)
        rows = due(READINGS, day + 1)
        assert as_sliding(spark) == sliding_oracle(rows)
        assert as_sessions(spark) == session_oracle(rows)
        state = {r.meter: (r.readings, r.load) for r in spark.table("gold.meters").collect()}
        meters = {r.meter for r in rows}
        assert state == {
            m: (sum(r.meter == m for r in rows), sum(r.load for r in rows if r.meter == m)) for m in meters
        }
    times = [minutes * 60_000_000 + micros(START) for minutes in (0, DAY, 2 * DAY, 3 * DAY, 9 * DAY)]
    changes = changes_since(lake_of(spark), load_source(home.sources / "meters.yml"), times)
    assert changes == {
        f"silver.{name}_history": {str(time): changed_starts(spark, name, time) for time in times}
        for name in ("hourly", "shifts")
    }


def changed_starts(spark: Session, name: str, since_us: int) -> list[int | None]:
    return list(
        spark.sql(
            f"SELECT unix_micros(min(window_start)), unix_micros(max(window_start)) FROM silver.{name}_history"
            f" WHERE known_from >= timestamp_micros({since_us}) OR known_to >= timestamp_micros({since_us})"
        ).collect()[0]
    )


def _daily(spark: Session, home: Settings) -> None:
    for day in range(4):
        run(spark, home, day, day)


def _at_once(spark: Session, home: Settings) -> None:
    run(spark, home, 0, 3)


def _backwards_and_twice(spark: Session, home: Settings) -> None:
    for first, last in ((3, 3), (0, 1), (0, 1), (2, 2)):
        run(spark, home, first, last)


@pytest.mark.long
def test_any_slicing_of_the_days_publishes_the_same(lake: Session, home: Settings) -> None:
    write_drops(home, READINGS)
    results = []
    slicings: list[Callable[[Session, Settings], None]] = [_daily, _at_once, _backwards_and_twice]
    for slicing in slicings:
        empty(lake)
        slicing(lake, home)
        results.append({table: published(lake, table, "final") for table in ALL})
    assert results[0]["silver.hourly"] != []
    assert results[0] == results[1]
    assert results[0] == results[2]


def test_a_repeated_run_changes_nothing_and_commits_nothing(fresh: tuple[Session, Settings]) -> None:
    spark, home = fresh
    run(spark, home, 0, 1)
    before = {table: published(spark, table) for table in ALL}
    summaries = run(spark, home, 0, 1)
    assert [summary["commits"] for summary in summaries] == [0, 0, 0, 0, 0]
    assert before == {table: published(spark, table) for table in ALL}


@pytest.mark.spark
@pytest.mark.long
def test_as_of_an_earlier_time_reads_what_was_published_then(fresh: tuple[Session, Settings]) -> None:
    spark, home = fresh
    source = load_source(home.sources / "meters.yml")
    assert isinstance(spark, SparkSession)
    lake, hourly = lake_of(spark), Definition(source, "hourly")
    then: dict[int, tuple[Counter[tuple[Any, ...]], list[tuple[Any, ...]]]] = {}
    for day in range(3):
        run(spark, home, day, day)
        time_us = ReadPoint.open(lake, source).known_us
        then[time_us] = (as_sliding(spark), published(spark, "gold.meters"))
    for time_us, (windows, states) in then.items():
        rows = windows_as_of(lake, hourly, time_us).collect()
        assert Counter((r.meter, round(minute_of(r.window_start), 3), r.n, r.total, r.high) for r in rows) == windows
        known = states_at(lake, source, known_us=time_us).collect()
        assert sorted((r.meter, r.readings, r.load) for r in known if r.timestamp) == sorted(s[:3] for s in states)
    with pytest.raises(NotPublished):
        ReadPoint.open(lake, source, max(then) + 1)


def test_bad_rows_are_quarantined_with_their_line_and_the_rest_lands(lake: Session, home: Settings) -> None:
    good = Reading(0, 10, "a", 5)
    twice = good.line()
    lines = [good.line(), "{not json", Reading(0, 20, "a", 1).line().replace('"a"', "null"), twice, ""]
    write_lines(home, 0, lines)
    write_lines(home, 0, [], name="empty.ndjson")
    (home.landing_folder / "meters" / "2024-01-01" / "torn.ndjson.gz").write_bytes(b"\x1f\x8b\x08\x00torn")
    summaries = run(lake, home, 0, 0)
    assert summaries[0]["rows"] == 1
    assert summaries[0]["duplicates"] == 1
    rejects = {(r.file.rsplit("/", 1)[1], r.line) for r in lake.table("bronze.quarantine").collect()}
    assert rejects == {
        ("a.ndjson", 2),
        ("a.ndjson", 3),
        ("empty.ndjson", None),
        ("torn.ndjson.gz", None),
    }
    assert all(r.reason and r.rule for r in lake.table("bronze.quarantine").collect())
    ledger = lake.table("bronze.files").collect()
    assert sum(r.rows for r in ledger) == 1
    assert sum(r.rejects for r in ledger) == 4
    assert as_sessions(lake) == session_oracle([good])


def test_a_missing_drop_is_an_empty_day(lake: Session, home: Settings) -> None:
    write_drops(home, [READINGS[0], READINGS[-1]])
    summaries = run(lake, home, 0, 3)
    assert summaries[0]["empty_drops"] == ["2024-01-02", "2024-01-03"]
    assert as_sessions(lake) == session_oracle([READINGS[0], READINGS[-1]])


def test_late_rows_are_listed_with_what_was_done(fresh: tuple[Session, Settings]) -> None:
    spark, home = fresh
    run(spark, home, 0, 3)
    found = {(r.definition, minute_of(r.event_time)): r.action for r in spark.table("silver.late").collect()}
    assert found == {("hourly", DAY - 20): "reemit", ("hourly", 100): "discard", ("shifts", 100): "reemit"}
    assert {r.late_by for r in spark.table("silver.late").where("definition = 'hourly'").collect()} == {
        20 * MINUTE // (MINUTE / 60_000_000),
        (2 * DAY - 100) * 60_000_000,
    }
