"""Merged chunks answer as the chunks they are made of, and what lands or goes afterwards finds its rows in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.config import Settings
from spark_jobs.distribution import Cut
from spark_jobs.jobs.visits import merge
from spark_jobs.landing.counted import counted_rows
from spark_jobs.landing.merging import ChunkMerges, RowsDiffer, merge_due, runs_of
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.reads.why import why
from spark_jobs.session_settings import session_settings
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.delta.dense_files import WRITER_OPTIONS
from spark_jobs.storage.delta.fingerprints import NOTED_SQL
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.empty_lake import empty
from tests.jobs.harness import (
    MINUTE,
    START,
    Reading,
    lake_of,
    path_of,
    published,
    run,
    write_lines,
    write_source,
)
from tests.jobs.test_pipeline import ALL, DAY

pytestmark = [pytest.mark.spark, pytest.mark.long]

METERS = ("a", "b", "c")


@pytest.fixture
def home(spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("home")
    return write_source(spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"}))


def readings(drop: int, seed: int = 7) -> list[Reading]:
    """Rows of a drop: some of the day before, one that an earlier drop brought too."""
    chance = random.Random(seed * 100 + drop)
    late = [Reading(drop, max(0, drop * DAY - chance.randint(1, 300)), chance.choice(METERS), 1)]
    own = [Reading(drop, drop * DAY + chance.randint(0, DAY - 1), chance.choice(METERS), i) for i in range(12)]
    again = [Reading(drop, r.minute, r.meter, r.load) for r in readings(drop - 1, seed)[1:3]] if drop else []
    return [*own, *late, *again]


def write(home: Settings, drop: int, rows: list[Reading], name: str = "a.ndjson") -> None:
    write_lines(home, drop, [row.line() for row in rows], name)


def source_of(home: Settings) -> Source:
    return load_source(home.sources / "meters.yml")


def answers(spark: SparkSession, home: Settings) -> dict[str, Any]:
    """What can be asked of the lake: published tables, landed rows, ranges, latest values, explanations."""
    source = source_of(home)
    told: dict[str, Any] = {table: published(spark, table) for table in ALL}
    told["deltas"] = rows_of(spark.table("bronze.meters_deltas").drop("chunk_id"))
    told["standing"] = rows_of(counted_rows(lake_of(spark), source))
    told["sums"] = rows_of(spark.sql("SELECT diff, sum(rows) FROM bronze.meters_chunks GROUP BY diff"))
    landed_rows = SourceChunks(lake_of(spark), source)
    at = [micros(START + minute * MINUTE) for minute in (DAY // 2, 2 * DAY, 9 * DAY)]
    for meter, timeline in zip(METERS, ("taken", "seen", "taken"), strict=True):
        told[f"range of {meter}"] = landed_rows.range_query(meter, timeline, at[0], at[1]).to_pylist()
        told[f"all of {meter}"] = landed_rows.range_query(meter, timeline, 0, at[2], ["heat"]).to_pylist()
        told[f"latest of {meter}"] = [landed_rows.latest_at(meter, timeline, t) for t in at[1:]]
    told["why"] = why(lake_of(spark), source, "gold.meters", ["a"])
    return told


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def changes(spark: SparkSession, home: Settings, between: Callable[[], object]) -> list[dict[str, Any]]:
    """What is published after each of: three drops, a retraction, a changed and a late file, the drop's return."""
    told = []

    def after() -> None:
        told.append({table: published(spark, table) for table in ALL})
        between()

    for drop in range(3):
        write(home, drop, readings(drop))
    run(spark, home, 0, 0)
    run(spark, home, 1, 2)
    after()
    run(spark, home, 1, 1, retract=True)
    after()
    write(home, 0, [r for r in readings(0) if r.load % 3] + readings(0, seed=8)[:3])
    write(home, 2, readings(2, seed=9), "b.ndjson")
    run(spark, home, 0, 2)
    after()
    run(spark, home, 1, 1, only_file=path_of(1))
    after()
    return told


def test_what_is_published_does_not_depend_on_merges_between_changes(lake: SparkSession, home: Settings) -> None:
    expected = changes(lake, home, lambda: None)
    empty(lake)
    for file in home.landing_folder.rglob("*.ndjson"):
        file.unlink()

    def merged() -> None:
        before = answers(lake, home)
        chunks = lake.table("bronze.meters_chunks").count()
        assert merge(home, source_of(home), lake).chunks_before == chunks
        # what a retraction takes back of one drop is in few chunks as it is
        went = lake.table("bronze.meters_chunks").where("diff < 0").count()
        assert lake.table("bronze.meters_chunks").count() < chunks + went
        assert answers(lake, home) == before
        assert merge(home, source_of(home), lake) == ChunkMerges()

    assert changes(lake, home, merged) == expected
    # a row that came, went and came again stands twice among the rows that came
    several = lake.sql(
        "SELECT row_id FROM (SELECT explode(row_ids) AS row_id FROM bronze.meters_chunks WHERE diff > 0)"
    )
    assert several.count() > several.distinct().count()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("tasks", [1, 2], ids=["in this process", "in tasks of Spark"])
def test_a_merge_that_ends_between_its_files_and_its_commit_leaves_files_alone(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr("spark_jobs.landing.merging.cut_work", lambda *_: Cut(tasks == 1, tasks, 100))
    for drop in range(3):
        write(home, drop, readings(drop))
        run(lake, home, drop, drop)
    before, chunks = answers(lake, home), lake.table("bronze.meters_chunks").count()

    def files_alone(self: SparkLake, table: Table, rows: DataFrame, *_: object) -> None:
        rows.write.options(**WRITER_OPTIONS).mode("append").parquet(self.folder.handle(table).uri)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(SparkLake, "replace_dense", files_alone)
        patch.setattr(DeltaTable, "create_write_transaction", _killing)
        merge(home, source_of(home), lake)
    assert (answers(lake, home), lake.table("bronze.meters_chunks").count()) == (before, chunks)
    assert merge(home, source_of(home), lake).chunks_after < chunks
    assert answers(lake, home) == before


def test_what_has_landed_and_is_not_published_is_not_merged(lake: SparkSession, home: Settings) -> None:
    for drop in range(2):
        write(home, drop, readings(drop))
        run(lake, home, drop, drop)
    expected = {table: published(lake, table) for table in ALL}
    write(home, 2, readings(2))
    # the newest landing is in the trace, and will be withdrawn from it
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr("spark_jobs.jobs.stages.restate_states", _killing)
        run(lake, home, 2, 2)
    newest = lake.table("bronze.files").agg({"landing": "max"}).head(1)[0][0]
    of_newest = f"SELECT * FROM bronze.meters_chunks WHERE landing = {newest}"
    pending = rows_of(lake.sql(of_newest))
    assert pending
    assert merge(home, source_of(home), lake).chunks_before
    assert rows_of(lake.sql(of_newest)) == pending
    assert {table: published(lake, table) for table in ALL} == expected
    run(lake, home, 2, 2)
    assert merge(home, source_of(home), lake).chunks_before


def _killing(*_: object, **__: object) -> None:
    raise Killed


def test_runs_merge_when_eight_landings_came_and_say_so_of_lost_rows(lake: SparkSession, home: Settings) -> None:
    source = source_of(home)
    for drop in range(9):
        write(home, drop, readings(drop))
        told = {summary["stage"]: summary for summary in run(lake, home, drop, drop)}["compact"]
        assert (told["chunks_before"] > 0) == (drop == 8)
    assert len(runs_of(lake_of(lake), source, {})) == 2
    before = answers(lake, home)
    assert merge_due(lake_of(lake), source, 10**6, 10**6) == ChunkMerges()
    newest = lake.table("bronze.meters_chunks").agg({"landing": "max"}).collect()[0][0]
    # as by a fault of our own: others' commits are refused before
    with session_settings(lake, NOTED_SQL):
        lake.sql(f"DELETE FROM bronze.meters_chunks WHERE landing = {newest}")
    with pytest.raises(RowsDiffer):
        merge(home, source, lake)
    lake.sql("RESTORE TABLE bronze.meters_chunks TO VERSION AS OF " + str(_version(lake) - 1))
    assert answers(lake, home) == before


def _version(spark: SparkSession) -> int:
    return int(spark.sql("DESCRIBE HISTORY bronze.meters_chunks LIMIT 1").head(1)[0]["version"])
