"""Restating late rows against recomputing everything, in one run: the same windows, the same Spark, Delta to Delta.

    python tests/benchmarks/silver.py [--days 120] [--rows-a-day 20000] [--meters 50] [--late 0.001] [--repeat 3]

Two definitions, sliding windows of an hour and sessions, over a history of even rows. A share of its rows comes once
more as one late batch: within one old day (what a backfilled file is), and spread over all days (the worst case).
Times are the best of `--repeat`, of everything between the trace and the appended corrections; the corrections of both
ways are compared first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import ensure_source
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.restatement.reach import touched_ranges
from spark_jobs.restatement.touched import Scope
from spark_jobs.restatement.windows import corrections
from spark_jobs.session import open_session
from spark_jobs.sources import Source, parse_source
from spark_jobs.storage.descriptions.tables import PUBLISHED, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.restatement.history import ANY_LATENESS, History


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description="Restating late rows against recomputing everything.")
    parser.add_argument("--days", type=int, default=120)
    parser.add_argument("--rows-a-day", type=int, default=20_000)
    parser.add_argument("--meters", type=int, default=50)
    parser.add_argument("--late", type=float, default=0.001)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    source = parse_source(ANY_LATENESS, file="meters.yml")
    history = History(source, options.days, options.rows_a_day, options.meters)
    late = int(options.days * options.rows_a_day * options.late)
    with _session() as spark:
        ensure_source(SparkLake(spark), source)
        print(f"{options.days} days of {options.rows_a_day:,} rows, {options.meters} meters, {late:,} late rows")
        print(f"{'late rows':<22}{'windows':<10}{'restated s':>11}{'recomputed s':>14}{'ratio':>8}{'corrections':>13}")
        first_id = options.days // 3 * options.rows_a_day
        for name, chosen in (
            ("within one old day", (F.col("id") >= first_id) & (F.col("id") < first_id + late)),
            ("spread over all days", F.pmod("id", F.lit(options.days * options.rows_a_day // late)) == 0),
        ):
            _compare(spark, history, name, chosen, options.repeat)


def _compare(spark: SparkSession, history: History, name: str, late: Column, repeat: int) -> None:
    scope = history.write(spark, late)
    for definition in definitions(history.source):
        _publish(spark, history, definition)
        restated, rows = min(_timed(spark, scope, definition) for _ in range(repeat))
        everything = replace(scope, everything=True)
        recomputed, all_rows = min(_timed(spark, everything, definition) for _ in range(repeat))
        assert rows == all_rows, "both ways give the same corrections"
        ratio = restated / recomputed
        print(f"{name:<22}{definition.name:<10}{restated:>11.2f}{recomputed:>14.2f}{ratio:>8.3f}{rows:>13,}")
    for table in _written(history.source):
        spark.sql(f"DELETE FROM {table}")


def _publish(spark: SparkSession, history: History, definition: Definition) -> None:
    """The windows of all rows but the late ones, as one backfill of all days would have published them."""
    scope = history.scope()
    before = replace(
        scope.frontiers, arrangement=replace(scope.frontiers.arrangement, trace=scope.frontiers.arrangement.trace[:1])
    )
    first = replace(scope, frontiers=before, everything=True)
    lake = SparkLake(spark)
    made = corrections(lake, first, [definition], touched_ranges(lake, first, [definition]), token=1)
    lake.append_files(definition.table(), made[definition.name].files)
    spark.sql(f"UPDATE {definition.table().qualified} SET known_from = timestamp_micros(0)")


def _timed(spark: SparkSession, scope: Scope, definition: Definition) -> tuple[float, int]:
    began = time.perf_counter()
    lake = SparkLake(spark)
    made = corrections(lake, scope, [definition], touched_ranges(lake, scope, [definition]), token=2)
    # written, and never committed
    return time.perf_counter() - began, sum(file.rows for file in made[definition.name].files)


def _written(source: Source) -> list[str]:
    return [updates(source).qualified, PUBLISHED.qualified, *[d.table().qualified for d in definitions(source)]]


@contextmanager
def _session() -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(Settings(home=Path(folder), spark="classic", master="local[2]", shuffle_partitions=4))
        try:
            yield spark
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
