"""Sessions, hopping and adaptive windows side by side in one run, Parquet to Parquet.

    python tests/benchmarks/windows.py [--rows 10000000] [--keys 10000] [--repeat 2]

Sessions against DuckDB (gaps and islands) and Spark's `session_window`; hopping windows of 60 advances against Spark's
`window()`; adaptive windows in the kernel alone, one core. Results are compared before a time is printed, see
`sliding.py` for how times are taken.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from sliding import Workload, measure, session

from spark_jobs.kernels.windows import Cuts, Trigger
from spark_jobs.kernels.windows.adaptive import adaptive_spans
from spark_jobs.windows import count, hopping_windows, max_, min_, session_windows, sum_

GAP = 6000
"""Three times the mean distance of a key's rows: sessions of about 20 rows."""
ADVANCE = 2000
AGGREGATES = {"n": count(), "total": sum_("v"), "low": min_("v"), "high": max_("v")}
_COLUMNS = "count(*) n, sum(v) total, min(v) low, max(v) high"

Ways = dict[str, Callable[[Workload, str], None]]


def session_ways(spark: SparkSession) -> Ways:
    """Sessions; Spark's own count time in seconds and end a gap after the last row, which is taken back."""

    def ours(load: Workload, out: str) -> None:
        rows = spark.read.parquet(load.source)
        windows = session_windows(rows, key="k", time="t", gap=GAP, aggregates=AGGREGATES)
        windows.write.mode("overwrite").parquet(out)

    def duck(load: Workload, out: str) -> None:
        Path(out).mkdir(parents=True, exist_ok=True)
        query = f"""
        WITH marked AS (SELECT *, coalesce(t - lag(t) OVER w > {GAP}, true) AS opens
                        FROM read_parquet('{load.source}/*.parquet') WINDOW w AS (PARTITION BY k ORDER BY t)),
        numbered AS (SELECT *, sum(opens::INT) OVER (PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING) s FROM marked)
        SELECT k, min(t) window_start, max(t) window_end, {_COLUMNS} FROM numbered GROUP BY k, s"""
        with duckdb.connect() as connection:
            connection.execute("SET threads = 2; SET preserve_insertion_order = false")
            connection.execute(f"COPY ({query}) TO '{out}/0.parquet' (FORMAT parquet)")

    def spark_own(load: Workload, out: str) -> None:
        rows = spark.read.parquet(load.source).withColumn("at", sf.timestamp_seconds("t"))
        found = rows.groupBy("k", sf.session_window("at", f"{GAP} seconds").alias("w")).agg(*_spark_aggregates())
        start, end = "unix_seconds(w.start) window_start", f"unix_seconds(w.end) - {GAP} window_end"
        found.selectExpr("k", start, end, "n", "total", "low", "high").write.mode("overwrite").parquet(out)

    return {"tidemark": ours, "duckdb": duck, "spark": spark_own}


def hopping_ways(spark: SparkSession) -> Ways:
    """Windows of 60 advances."""
    size = 60 * ADVANCE

    def ours(load: Workload, out: str) -> None:
        rows = spark.read.parquet(load.source)
        windows = hopping_windows(rows, key="k", time="t", size=size, advance=ADVANCE, aggregates=AGGREGATES)
        windows.write.mode("overwrite").parquet(out)

    def spark_own(load: Workload, out: str) -> None:
        rows = spark.read.parquet(load.source).withColumn("at", sf.timestamp_seconds("t"))
        window = sf.window("at", f"{size} seconds", f"{ADVANCE} seconds").alias("w")
        found = rows.groupBy("k", window).agg(*_spark_aggregates())
        bounds = ("unix_seconds(w.start) window_start", "unix_seconds(w.end) window_end")
        found.selectExpr("k", *bounds, "n", "total", "low", "high").write.mode("overwrite").parquet(out)

    return {"tidemark": ours, "spark": spark_own}


def _spark_aggregates() -> list:
    parts = (sf.count("*"), sf.sum("v"), sf.min("v"), sf.max("v"))
    return [part.alias(name) for part, name in zip(parts, ("n", "total", "low", "high"), strict=True)]


def report(title: str, ways: Ways, load: Workload, warm: Workload, repeat: int) -> None:
    """Print the table of one kind."""
    load.checks.clear()
    times = {name: measure(name, way, load, warm, repeat) for name, way in ways.items()}
    print(f"\n{title}: {load.rows:,} rows, {load.keys:,} keys; load {os.getloadavg()[0]:.1f}")
    print("| way | seconds | tidemark takes |\n| --- | ---: | ---: |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {times['tidemark'] / seconds:.2f}x |")


def adaptive_rate(rows: int) -> float:
    """Deltas a second of the adaptive kernel."""
    times = np.sort(np.random.default_rng(3).integers(0, rows * 50, rows))
    cuts = Cuts(100, 10, 5_000, 10**9, (Trigger("time"), Trigger("count", 100)), 2**27, 1_000_000)
    arguments = {"offsets": np.array([0, rows]), "sizes": np.ones(rows, np.int64), "cuts": cuts, "min_end": None}
    adaptive_spans(times=times[:10], **{**arguments, "offsets": np.array([0, 10]), "sizes": np.ones(10, np.int64)})
    began = time.perf_counter()
    adaptive_spans(times=times, **arguments)
    return rows / (time.perf_counter() - began)


def main() -> None:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--hopping-rows", type=int, default=500_000, help="Spark makes 60 rows of each")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    print(f"adaptive kernel: {adaptive_rate(10_000_000):,.0f} deltas a second on one core")
    spark = session(shuffle_partitions=4)
    with tempfile.TemporaryDirectory() as folder:
        load = Workload(Path(folder), arguments.rows, arguments.keys, GAP)
        small = Workload(Path(folder), arguments.hopping_rows, max(arguments.keys // 20, 1), ADVANCE, name="small")
        warm = Workload(Path(folder), max(arguments.rows // 100, 1000), arguments.keys, GAP, name="warm")
        for workload in (load, small, warm):
            workload.write()
        report("sessions", session_ways(spark), load, warm, arguments.repeat)
        report("hopping, size/advance 60", hopping_ways(spark), small, warm, arguments.repeat)
    spark.stop()


if __name__ == "__main__":
    main()
