"""Every table, view and column that a SQL user meets says what it is, in as many characters as the metastore takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions.schema import LONGEST_COMMENT
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.upkeep.pins import make_pin
from tests.empty_lake import DATABASES
from tests.jobs.harness import SOURCE, Reading, run, write_drops, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

ALL_KINDS = (
    SOURCE.replace(
        "state:",
        """  batches:
    {kind: adaptive, key: meter, max: 2 h, triggers: [time, count(2)], aggregates: {total: sum(load)}, keep: 90 days}
state:""",
    ).replace("components:", "components:", 1)
    + "compaction: {strategy: tiered}\n"
)
VECTORS = """
source: vectors
start: 2024-01-01
landing: {path: "vectors/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, op: string, cells: string, numbers: string}
timelines: [at]
event_time: at
entity: meter
delta_id: id
state: {mode: operations, length: 4, operations: {op: op, indices: cells, values: numbers}}
"""


def test_every_table_view_and_column_has_a_comment(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(
        spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}), ALL_KINDS
    )
    write_drops(home, [Reading(0, 10, "a", 5)])
    run(lake, home, 0, 0)
    write_source(home, VECTORS, "vectors")
    run(lake, home, 0, 0, source="vectors")
    make_pin(SparkLake(lake), [find_source(home.sources, "meters")], "kept")
    wrong, seen = [], 0
    # marts are dbt's: tests/server/test_marts.py
    for database in set(DATABASES) - {"marts", "marts_staging"}:
        for table in [row.tableName for row in lake.sql(f"SHOW TABLES IN {database}").collect()]:
            told = lake.catalog.getTable(f"{database}.{table}").description
            if not told:
                wrong.append(f"{database}.{table}")
            for column in lake.catalog.listColumns(f"{database}.{table}"):
                seen += 1
                if not column.description or len(column.description) > LONGEST_COMMENT:
                    wrong.append(f"{database}.{table}.{column.name}")
    assert seen > 300
    assert wrong == []
