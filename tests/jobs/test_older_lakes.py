"""Lakes that an older version made: a read says what they lack and what to run, a run gives it to them, and everything
then reads as in a lake that never lacked it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_jobs.cli.arguments import refuse_older_lakes
from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import LakeOlder, check_tables
from spark_jobs.reads.as_of import states_at
from spark_jobs.reads.chain_metrics import chain_metrics
from spark_jobs.reads.why import why
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.descriptions.chain_tables import CHAINS, METRICS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON, FRONTIERS, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.jobs.harness import SOURCE, Reading, published, run, write_drops, write_source

pytestmark = pytest.mark.spark

CHAINED = SOURCE + "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n"
READINGS = [Reading(0, 10 * i, "a", i) for i in range(6)] + [Reading(1, 24 * 60 + 30, "b", 4), Reading(1, 45, "a", 9)]
NAMES = ("silver.hourly", "silver.late", "gold.meters", "gold.checkpoints", "gold.compactions")


@pytest.fixture
def lake(empty_lake: SparkSession) -> SparkSession:
    """The shared session over an empty lake."""
    return empty_lake


def as_an_older_version(spark: SparkSession, table: Table, columns: list[str]) -> None:
    """The table with its rows as it would be if it had been made without the columns."""
    rows = spark.table(table.qualified).drop(*columns).localCheckpoint()
    spark.sql(f"DROP TABLE {table.qualified}")
    kept = tuple(column for column in table.columns if column.name not in columns)
    skipping = tuple(column for column in table.skipping if column not in columns)
    older = replace(table, columns=kept, skipping=skipping)
    SparkLake(spark).catalog.ensure({}, [older])
    rows.select(*older.column_names).writeTo(table.qualified).append()


def refused(spark: SparkSession, home: Settings, read: Callable[[], object]) -> LakeOlder:
    with pytest.raises(LakeOlder) as refusal, refuse_older_lakes(spark, home):
        read()
    return refusal.value


@pytest.mark.long
def test_a_lake_of_an_older_version_is_refused_by_name_until_a_run_widens_it(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, CHAINED)
    write_drops(home, READINGS)
    source: Source = load_source(home.sources / "meters.yml")
    run(lake, home, 0, 0)
    narrower = {
        updates(source): [BELOW_HORIZON.name], FRONTIERS: ["moved_at"], CHAINS: [column.name for column in METRICS]
    }  # fmt: skip
    for table, columns in narrower.items():
        as_an_older_version(lake, table, columns)
    lake.sql("DROP VIEW gold.compactions")
    # a version without these columns noted no fingerprints of the tables, either
    lake.sql("UPDATE trace.published SET tables = NULL")
    marker = home.home / "views" / "meters.definition"
    marker.write_text(marker.read_text().replace('"names"', '"names of an older version"'))

    refusal = refused(lake, home, lambda: why(SparkLake(lake), source, "silver.hourly", ["a", "2023-12-31T23:00:00Z"]))
    assert refusal.facts["lacking"] == {table.qualified: columns for table, columns in narrower.items()}
    assert "trace.meters_updates without below_horizon" in str(refusal)
    assert "`tidemark run meters --from … --to …`" in str(refusal)
    refused(lake, home, lambda: chain_metrics(SparkLake(lake), source))
    with refuse_older_lakes(lake, home):
        # what does not read the columns answers as ever
        assert {r.meter: r.load for r in states_at(SparkLake(lake), source).collect()} == {"a": 15}
    with pytest.raises(AnalysisException), refuse_older_lakes(lake, home):
        lake.sql("SELECT no_such_column FROM silver.hourly")

    run(lake, home, 0, 0)
    check_tables(SparkLake(lake), source)
    assert len(published(lake, "gold.compactions")) == 1, "the name is back"
    assert {r.meter: r.load for r in states_at(SparkLake(lake), source).collect()} == {"a": 15}
    run(lake, home, 1, 1)
    assert all(published(lake, name) for name in NAMES)
    assert chain_metrics(SparkLake(lake), source).chains == 2
