"""The Delta plane keeps the contract of the in-memory one, and an arrangement on it and on records reads alike."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.twins import consolidation as naive
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import FRONTIERS, UPDATE
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, StateConflict, seal_all
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.plane import Slice
from spark_jobs.trace.records_journal import RecordsJournal
from tests.engine.arrangement_contract import DataPlaneContract, Row

pytestmark = [pytest.mark.spark, pytest.mark.turns]

DATA = (Column("key", "STRING", "Key."), Column("value", "STRING", "Value."))


def updates_of(database: str, name: str = "updates") -> Table:
    return Table(database, name, "Updates.", (*UPDATE, *DATA), ("batch",), ("time",))


def journal_of(database: str) -> Table:
    return Table(database, "frontiers", FRONTIERS.comment, FRONTIERS.columns, ("source",), ("token",))


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    updates = [(key, value, instant(time), diff) for key, value, time, diff in rows]
    return spark.createDataFrame(updates, "key STRING, value STRING, time TIMESTAMP, diff BIGINT")


def listed(updates: DataFrame) -> list[Row]:
    rows = [tuple(row) for row in updates.collect()]
    if "time" not in updates.columns:
        return rows
    return [(key, value, micros(time.replace(tzinfo=UTC)), diff) for key, value, time, diff in rows]


@pytest.fixture
def opened(spark: SparkSession, database: str) -> Callable[[], Arrangement[DataFrame]]:
    """Opens the same collection anew, as another process would."""
    lake = SparkLake(spark)
    for table in (updates_of(database), journal_of(database)):
        lake.spark.sql(table.ddl())
    return lambda: Arrangement(DeltaPlane(lake, updates_of(database)), RecordsJournal(lake, journal_of(database)))


@pytest.fixture(scope="module")
def shared_plane(spark: SparkSession) -> Iterator[DeltaPlane]:
    """One plane for all tests of the contract: handles are fresh, so they don't see each other's batches."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"CREATE DATABASE {name}")
    lake = SparkLake(spark)
    lake.spark.sql(updates_of(name).ddl())
    yield DeltaPlane(lake, updates_of(name))
    spark.sql(f"DROP DATABASE {name} CASCADE")


class TestDeltaPlane(DataPlaneContract):
    @pytest.fixture
    def plane(self, shared_plane: DeltaPlane) -> DeltaPlane:
        return shared_plane

    @pytest.fixture(autouse=True)
    def session(self, spark: SparkSession) -> None:
        self.spark = spark

    def table(self, rows: Iterable[Row]) -> DataFrame:
        return frame(self.spark, rows)

    def rows(self, updates: DataFrame) -> list[Row]:
        return listed(updates)

    def test_a_large_batch_is_several_sorted_files(self, plane: DeltaPlane, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spark_jobs.trace.delta_plane.ROWS_PER_FILE", 10)
        wanted = [(f"k{i % 7}", "x", i, 1) for i in range(35)]
        handle = plane.new_handle("T")
        rows = self.table(wanted).selectExpr("*", f"'{handle}' AS batch")
        plane.write(rows, n_rows=35)
        stored = plane.stored([handle])[handle]
        assert (stored.n_updates, stored.least, stored.greatest) == (35, 0, 34)
        placed = SparkLake(self.spark).read(plane._table).where(f"batch = '{handle}'")
        files: dict[str, list[Any]] = {}
        for row in placed.selectExpr("_metadata.file_path AS file", "key", "unix_micros(time) AS time").collect():
            files.setdefault(row.file, []).append((row.key, row.time))
        assert len(files) > 1
        assert all(rows == sorted(rows) for rows in files.values())
        keys = [{key for key, _ in rows} for rows in files.values()]
        assert sum(map(len, keys)) == len(set().union(*keys))


def test_the_two_zeros_stay_apart(spark: SparkSession, database: str) -> None:
    lake = SparkLake(spark)
    table = Table(database, "measured", "Updates.", (*UPDATE, Column("heat", "DOUBLE", "A number.")), ("batch",), ())
    lake.spark.sql(table.ddl())
    plane = DeltaPlane(lake, table)
    updates = [
        (heat, instant(5), diff) for heat, diff in ((-0.0, 1), (0.0, 1), (0.0, 1), (-0.0, 2), (None, 1), (7.5, 1))
    ]
    raw = plane.put(spark.createDataFrame(updates, "heat DOUBLE, time TIMESTAMP, diff BIGINT"))
    drained = plane.drain([raw.handle], Frontier.at(0), Frontier.at(9))
    assert drained is not None
    merged = plane.merge(drained.handle, plane.put(plane.read([])).handle, Frontier.at(6))
    wanted = [("-0.0", 3), ("0.0", 2), ("7.5", 1), ("None", 1)]
    for handle in (drained.handle, merged.handle):
        part = Slice(handle, Frontier.at(0), Frontier.at(9))
        assert sorted((str(row.heat), row.diff) for row in plane.read([part]).collect()) == wanted
        assert sorted((str(row.heat), row.diff) for row in plane.accumulate([part]).collect()) == wanted


HISTORY: list[list[Row]] = [
    [("a", "x", 1, 1), ("b", "x", 3, 2), ("a", "x", 9, 1)],
    [("a", "x", 5, -1), ("a", "y", 5, 1), ("b", "x", 5, -1)],
    [("b", "x", 12, -1), ("c", "z", 11, 1), ("a", "x", 9, -1)],
]


def test_an_arrangement_on_delta_reads_like_the_list_of_its_updates(
    opened: Callable[[], Arrangement[DataFrame]], spark: SparkSession
) -> None:
    arrangement = opened()
    history: list[Row] = []
    for updates, seal in zip(HISTORY, (5, 9, 15), strict=True):
        arrangement.write(frame(spark, updates))
        history += updates
        arrangement.seal(seal)
        arrangement.drain()
        arrangement.unsealed_step()
        arrangement = opened()
        arrangement.check()
        bags = {at: naive.accumulate([u for u in history if u[2] <= at]) for at in (seal // 2, seal - 1)}
        assert {at: listed(arrangement.snapshot(at)) for at in bags} == bags
    assert [batch.level for batch in arrangement.state.trace] == [0, 0, 0]
    arrangement.allow_compaction(Frontier.at(14))
    assert arrangement.compact().merges == 1
    assert listed(opened().snapshot(14)) == naive.accumulate(history)
    assert Counter(listed(opened().updates())) == Counter(listed(arrangement.updates()))
    assert opened().plane.stored().keys() == arrangement.state.handles()


def test_an_advance_on_delta_is_one_write_and_one_commit_and_reads_like_the_list(
    opened: Callable[[], Arrangement[DataFrame]], spark: SparkSession
) -> None:
    arrangement = opened()
    history: list[Row] = []
    lake = arrangement.plane._lake  # type: ignore[attr-defined]
    for updates, seal in zip([*HISTORY, []], (5, 9, 11, 15), strict=True):
        before = lake.commits
        done = arrangement.advance(frame(spark, updates) if updates else None, seal)
        assert done.appended == len(updates)
        history += updates
        # the write, the state, and what it replaced
        assert lake.commits <= before + 3
        arrangement = opened()
        arrangement.check(data=True)
        bags = {at: naive.accumulate([u for u in history if u[2] <= at]) for at in (seal // 2, seal - 1)}
        assert {at: listed(arrangement.snapshot(at)) for at in bags} == bags
        assert all(batch.least >= seal for batch in arrangement.state.unsealed)
        assert arrangement.plane.stored().keys() <= arrangement.state.handles()
    refused = frame(spark, [("a", "x", 20, 1)])
    before, stored = arrangement.state, arrangement.plane.stored()
    for broken, code in (
        (refused.withColumn("time", F.lit(None).cast("timestamp")), "malformed_updates"),
        (refused.withColumn("diff", F.lit(None).cast("bigint")), "malformed_updates"),
        (refused.drop("value"), "malformed_updates"),
        (frame(spark, [("a", "x", 14, 1)]), "time_below_seal"),
        (frame(spark, [("b", "y", 20, 2**62), ("b", "y", 21, 2**62)]), "diff_overflow"),
    ):
        with pytest.raises(TidemarkError, match=code):
            arrangement.advance(broken, 16)
        assert (arrangement.state, opened().state, arrangement.plane.stored()) == (before, before, stored)


def test_a_sweep_removes_what_no_state_names_and_nothing_else(
    opened: Callable[[], Arrangement[DataFrame]], spark: SparkSession
) -> None:
    arrangement = opened()
    beside = Arrangement(arrangement.plane, arrangement.journal, collection="second")
    for each in (arrangement, beside):
        each.write(frame(spark, HISTORY[0]))
    orphan = arrangement.plane.put(frame(spark, HISTORY[1]))
    assert arrangement.sweep() == (orphan,)
    assert arrangement.plane.stored().keys() == arrangement.state.handles() | beside.state.handles()
    assert opened().sweep() == ()
    assert Counter(listed(opened().updates())) == Counter(HISTORY[0])
    # a writer that stored before the sweep finds its state moved on, whichever collection it writes
    with pytest.raises(StateConflict):
        beside.seal(1)


def test_of_two_writers_one_conflicts_and_nothing_is_lost(
    opened: Callable[[], Arrangement[DataFrame]], spark: SparkSession
) -> None:
    first, second = opened(), opened()
    first.write(frame(spark, [("a", "x", 1, 1)]))
    with pytest.raises(StateConflict):
        second.write(frame(spark, [("b", "x", 1, 1)]))
    assert listed(second.updates()) == []
    second.refresh()
    second.write(frame(spark, [("b", "x", 1, 1)]))
    first.refresh()
    assert sorted(listed(first.updates())) == [("a", "x", 1, 1), ("b", "x", 1, 1)]
    assert [batch.seqno for batch in first.state.unsealed] == [(0, 1), (1, 2)]


def test_collections_of_one_journal_seal_together_or_not_at_all(opened: Callable[[], Arrangement[DataFrame]]) -> None:
    one, other = opened(), opened()
    two = Arrangement(one.plane, one.journal, collection="second")
    Arrangement(other.plane, other.journal, collection="second").seal(3)
    with pytest.raises(StateConflict) as conflict:
        seal_all([one, two], 7)
    assert conflict.value.facts["collections"] == ["second"]
    assert opened().state.seal == Frontier.at(0)
    two.refresh()
    other.seal(2)
    one.refresh()
    seal_all([one, two], 7)
    assert opened().state.seal == Frontier.at(7)


def test_what_could_not_be_read_again_is_refused_and_changes_nothing(
    spark: SparkSession, opened: Callable[[], Arrangement[DataFrame]]
) -> None:
    arrangement = opened()
    arrangement.write(frame(spark, [("a", "x", 3, 1), ("b", "x", 9, 2**62)]))
    good = frame(spark, [("a", "x", 5, 1)])
    broken: list[Any] = [
        good.withColumn("time", F.lit(None).cast("timestamp")),
        good.withColumn("diff", F.lit(None).cast("bigint")),
        good.withColumn("time", F.lit(5)),
        good.withColumn("diff", F.lit(1.0)),
        good.withColumn("diff", F.lit(True)),
        good.withColumn("key", F.array(F.lit("a"))),
        good.drop("value"),
        good.select("*", F.lit("b").alias("key")),
        good.toArrow(),
        frame(spark, [("b", "x", 5, 2**62)]),
        frame(spark, [("c", "x", 5, -(2**62)), ("c", "x", 6, -(2**62)), ("c", "x", 7, -1)]),
    ]

    def picture() -> list[Any]:
        handles = arrangement.plane.stored()
        return [arrangement.state, opened().state, handles, sorted(listed(arrangement.updates()))]

    before = picture()
    for updates in broken:
        with pytest.raises(TidemarkError) as refusal:
            arrangement.write(updates)
        assert refusal.value.code in ("malformed_updates", "diff_overflow")
    for time in (2**63, 1.5, None, True):
        for refused in (
            lambda time=time: arrangement.seal(time),
            lambda time=time: arrangement.allow_compaction(Frontier(time) if time is not None else 3),  # type: ignore[arg-type]
            lambda time=time: arrangement.snapshot(time),
        ):
            with pytest.raises(TidemarkError, match="time_out_of_range"):
                refused()
    assert picture() == before
    arrangement.write(frame(spark, [("b", "x", 5, 2**62 - 1)]).withColumn("diff", F.col("diff").cast("bigint")))
    arrangement.seal(10)
    arrangement.drain()
    assert listed(opened().snapshot(9)) == [("a", "x", 1), ("b", "x", 2**63 - 1)]
