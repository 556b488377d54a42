"""Which published segments a run reads, on Spark, beside the slow twin of the worker's test."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from spark_jobs.kernels.deltas.cutting import CompactionPolicy
from spark_jobs.kernels.deltas.frontiers import Frontiers
from spark_jobs.restatement.chain_stretches import SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_worker import oldest_age
from spark_jobs.restatement.chains import needed_segments, touched_entities
from tests.restatement.test_chain_worker import needed_rows

pytestmark = pytest.mark.spark

PLACES = ("entity", "start_time", "end_time", "settled_end", "ages_from", "era")
SCHEMA = T.StructType([T.StructField(c, T.StringType() if c in ("entity", "era") else T.LongType()) for c in PLACES])


def stored() -> list[dict[str, Any]]:
    """Chains of six entities in three segments each, the newest of two of them old enough, and what closed some."""
    rows = []
    for entity in ("a", "b'`", "c", "d", "e\u00e9", ""):
        for start, end, settled in ((None, 10, None), (10, 20, 12), (20, None, 40)):
            ages = 20 if end is None and entity in ("c", "d") else 39 if end is None and entity == "a" else None
            row = {"entity": entity, "start_time": start, "end_time": end, "settled_end": settled, "ages_from": ages}
            rows += [{**row, "era": era, "part": SEGMENT_PART} for era in ("live", "closing") if era == "live" or start]
    return rows


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("frontiers", [Frontiers(), Frontiers(since=12, horizon=15)])
@pytest.mark.parametrize("age", [None, 20])
def test_a_run_reads_what_its_rows_reach_what_is_of_age_and_what_retention_passed(
    spark: SparkSession, whole: bool, frontiers: Frontiers, age: int | None
) -> None:
    policy, held = CompactionPolicy(age_threshold=age), stored()
    rows = [{"entity": "b'`", "event_time": 15}, {"entity": "b'`", "event_time": 25}, {"entity": "", "event_time": 21}]
    touched = touched_entities(
        spark.createDataFrame([tuple(r.values()) for r in rows], "entity STRING, event_time BIGINT")
    )
    assert touched is not None
    table = spark.createDataFrame([tuple(row[c] for c in PLACES) for row in held], SCHEMA)
    oldest = oldest_age(policy, 50)
    found = needed_segments(table, touched, frontiers, whole=whole, oldest=oldest)
    expected = needed_rows(rows, held, frontiers, policy, 50, whole)
    in_order = [repr(tuple(row[c] for c in PLACES)) for row in expected]
    assert sorted(repr(tuple(row)) for row in found.select(*PLACES).collect()) == sorted(in_order)
    states = [{"entity": entity, "part": STATE_PART} for entity in ("a", "", "zz", "b'`")]
    of_touched = touched.of(spark.createDataFrame([(s["entity"],) for s in states], "entity STRING"))
    needed = needed_rows(rows, [{**s, "end_time": None} for s in states], frontiers, policy, 50, whole)
    assert sorted(row.entity for row in of_touched.collect()) == sorted(row["entity"] for row in needed)


def test_no_row_touches_nothing(spark: SparkSession) -> None:
    assert touched_entities(spark.createDataFrame([], "entity STRING, event_time BIGINT")) is None
