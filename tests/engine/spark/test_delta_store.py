"""The store on a Delta table keeps the contract of every chunk store, with one commit per operation."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import SparkSession

from spark_jobs.engine.chunks import ChunkStore, StoreConfig
from spark_jobs.engine.spark.chunks import DeltaChunkStore
from spark_jobs.errors import ParameterError
from tests.engine.chunk_store_contract import ChunkStoreContract, chunk, on_day, rows

pytestmark = [pytest.mark.spark, pytest.mark.turns(together=True)]

TIMELINES, COMPONENTS = ("day", "sent"), {"flow": "bigint", "heat": "bigint"}


class TestDeltaStore(ChunkStoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, spark: SparkSession, database: str) -> None:
        self.spark, self.names = spark, (f"{database}.chunks_{number}" for number in itertools.count())

    def new_store(self, config: StoreConfig) -> ChunkStore:
        # of another class, with the methods that the contract names
        return DeltaChunkStore(  # type: ignore[return-value]
            self.spark, next(self.names), timelines=TIMELINES, components=COMPONENTS, config=config
        )


def test_every_operation_is_one_commit_or_none_and_another_process_finds_the_same(
    spark: SparkSession, database: str
) -> None:
    name = f"{database}.chunks"

    def opened(config: StoreConfig) -> DeltaChunkStore:
        return DeltaChunkStore(spark, name, timelines=TIMELINES, components=COMPONENTS, config=config)

    def commits() -> int:
        return int(spark.sql(f"DESCRIBE HISTORY {name}").agg({"version": "max"}).head(1)[0][0])

    store = opened(StoreConfig())
    made = [chunk(f"c{n}", on_day((10 * n, n, n), (10 * n + 1, n + 1, n))) for n in range(4)]
    assert all(report.changed for report in store.insert_all(made))
    assert commits() == 1
    assert not store.insert(made[2]).changed
    assert store.drop_time_range("day", 90, 99) == 0
    assert commits() == 1
    assert opened(StoreConfig()).insert(chunk("late", on_day((5, 0, 7)))).changed
    assert (commits(), len(store.chunks())) == (2, 1)
    assert store.drop_time_range("day", 2, 3) == 4
    assert commits() == 3
    assert store.stats().temporal.rows == 5
    with pytest.raises(ParameterError, match="timelines day, sent"):
        store.insert_all([chunk("x", on_day((90, 1, 1))), chunk("y", rows((91, {"felt": 1}, {"flow": 1})))])
    assert (commits(), store.stats().temporal.rows) == (3, 5)
