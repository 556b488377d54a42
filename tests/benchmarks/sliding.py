"""Sliding windows side by side in one run, Parquet to Parquet: Tidemark, its floor, DuckDB, Polars, Spark's own frames.

    python tests/benchmarks/sliding.py [--rows 5000000] [--keys 2000] [--rows-a-window 50] [--only NAME …] [--sweep]

Each way writes the same windows (key, start, end; count, sum, min, max of a long); the number of windows and the sums
of all columns are compared before a time is printed. Every way runs once on 1 % of the rows, then `--repeat` times, of
which the best counts. The floor is Spark shuffling the same rows by key, sorting them, and writing as many rows as
there are windows. `--sweep` adds twice the rows, 5 to 5,000 rows a window, and 90 % of the rows on one key.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.windows import count, max_, min_, sliding_windows, sum_

SPARK_FRAMES_LIMIT = 500_000
"""Rows beyond which Spark's RANGE frames do not end in reasonable time."""


@dataclass
class Workload:
    """Rows of many keys in one Parquet folder."""

    folder: Path
    rows: int
    keys: int
    size: int
    hot: float = 0.0
    name: str = "uniform"
    checks: dict[str, tuple] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return str(self.folder / f"{self.name}-{self.rows}")

    def write(self) -> None:
        """Four files of rows in random order; times of a key are `2000` ticks apart on average."""
        chance = np.random.default_rng(7)
        key = chance.integers(0, self.keys, self.rows)
        if self.hot:
            key[chance.random(self.rows) < self.hot] = 0
        at = chance.integers(0, self.rows * 2000 // self.keys, self.rows)
        table = pa.table({"k": key, "t": at, "v": chance.integers(-1000, 1000, self.rows)})
        Path(self.source).mkdir(parents=True)
        for part in range(4):
            begin, end = self.rows * part // 4, self.rows * (part + 1) // 4
            pq.write_table(table.slice(begin, end - begin), f"{self.source}/{part}.parquet")


def session(shuffle_partitions: int) -> SparkSession:
    """Spark on two cores."""
    builder = SparkSession.builder.master("local[2]").appName("sliding-benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def tidemark(spark: SparkSession, load: Workload, out: str, slices: int | None = None) -> None:
    """The product."""
    windows = sliding_windows(
        spark.read.parquet(load.source),
        key="k",
        time="t",
        size=load.size,
        aggregates={"n": count(), "total": sum_("v"), "low": min_("v"), "high": max_("v")},
        clip_at_zero=False,
        slices=slices,
    )
    windows.write.mode("overwrite").parquet(out)


def floor(spark: SparkSession, load: Workload, out: str) -> None:
    """Shuffle, sort and write as many rows of the same width as there are windows (about two a row)."""
    rows = spark.read.parquet(load.source).repartition("k").sortWithinPartitions("k", "t")
    twice = rows.selectExpr(
        "k", "t AS window_start", "t AS window_end", "v AS n", "v AS total", "v AS low", "v AS high"
    )
    twice.selectExpr("*", "explode(array(0, 1)) AS copy").drop("copy").write.mode("overwrite").parquet(out)


_LEFT_RIGHT = """
WITH rows AS (SELECT k, t, count(*) n, sum(v) total, min(v) low, max(v) high FROM {source} GROUP BY k, t),
lefts AS (
    SELECT k, t - {d} AS window_start, t AS window_end,
        sum(n) OVER w n, sum(total) OVER w total, min(low) OVER w low, max(high) OVER w high
    FROM rows WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {d} PRECEDING AND CURRENT ROW)),
rights AS (
    SELECT k, t + 1 AS window_start, t + 1 + {d} AS window_end,
        sum(n) OVER w n, sum(total) OVER w total, min(low) OVER w low, max(high) OVER w high
    FROM rows WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN 1 FOLLOWING AND {d} + 1 FOLLOWING))
SELECT * FROM lefts
UNION ALL
SELECT rights.* FROM rights ANTI JOIN lefts ON rights.k = lefts.k AND rights.window_start = lefts.window_start
WHERE rights.n IS NOT NULL
"""


def duck(load: Workload, out: str) -> None:
    """Two RANGE frames and an anti join."""
    Path(out).mkdir(parents=True, exist_ok=True)
    query = _LEFT_RIGHT.format(source=f"read_parquet('{load.source}/*.parquet')", d=load.size)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = false")
        connection.execute(f"COPY ({query}) TO '{out}/0.parquet' (FORMAT parquet)")


def spark_frames(spark: SparkSession, load: Workload, out: str) -> None:
    """The same query on Spark's RANGE frames."""
    spark.read.parquet(load.source).createOrReplaceTempView("source_rows")
    spark.sql(_LEFT_RIGHT.format(source="source_rows", d=load.size)).write.mode("overwrite").parquet(out)


def polars(load: Workload, out: str) -> None:
    """`rolling` twice and an anti join, in memory."""
    Path(out).mkdir(parents=True, exist_ok=True)
    rows = pl.read_parquet(f"{load.source}/*.parquet").sort("k", "t")
    aggregates = [
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("v").sum().alias("total"),
        pl.col("v").min().alias("low"),
        pl.col("v").max().alias("high"),
    ]
    bounds = [pl.col("k"), pl.col("window_start"), (pl.col("window_start") + load.size).alias("window_end")]
    values = [pl.col(name) for name in ("n", "total", "low", "high")]

    def rolled(offset: str | None, start: pl.Expr, closed: str) -> pl.DataFrame:
        found = rows.rolling("t", period=f"{load.size + 1}i", offset=offset, closed=closed, group_by="k")
        frame = found.agg(aggregates).unique(["k", "t"], keep="first")
        return frame.with_columns(start.alias("window_start")).select(*bounds, *values)

    lefts = rolled(None, pl.col("t") - load.size, "right")
    rights = rolled("0i", pl.col("t") + 1, "right").filter(pl.col("n") > 0)
    rights = rights.join(lefts, on=["k", "window_start"], how="anti")
    pl.concat([lefts, rights]).write_parquet(f"{out}/0.parquet")


def fingerprint(out: str) -> tuple:
    """Number of windows and the sums of all columns."""
    with duckdb.connect() as connection:
        query = f"""SELECT count(*), sum(k), sum(window_start), sum(window_end), sum(n), sum(total), sum(low), sum(high)
        FROM read_parquet('{out}/*.parquet')"""
        return connection.execute(query).fetchone()


def measure(name: str, way: Callable[[Workload, str], None], load: Workload, warm: Workload, repeat: int) -> float:
    """Best time of a way, after a warm-up; its result is compared with that of the first way measured."""
    out = str(load.folder / "out")
    way(warm, out)
    best = float("inf")
    for _ in range(repeat):
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        way(load, out)
        best = min(best, time.perf_counter() - began)
    if name != "floor":
        load.checks[name] = fingerprint(out)
        wanted = next(iter(load.checks.values()))
        assert load.checks[name] == wanted, f"{name} found {load.checks[name]}, {next(iter(load.checks))} {wanted}"
    shutil.rmtree(out, ignore_errors=True)
    return best


def compare(spark: SparkSession, load: Workload, warm: Workload, arguments: argparse.Namespace) -> None:
    """Print the table of all ways over one workload."""
    ways: dict[str, Callable[[Workload, str], None]] = {
        "tidemark": lambda held, out: tidemark(spark, held, out),
        "floor": lambda held, out: floor(spark, held, out),
        "duckdb": duck,
        "polars": polars,
    }
    if load.rows <= SPARK_FRAMES_LIMIT:
        ways["spark frames"] = lambda held, out: spark_frames(spark, held, out)
    chosen = {name: way for name, way in ways.items() if not arguments.only or name in arguments.only}
    times = {name: measure(name, way, load, warm, arguments.repeat) for name, way in chosen.items()}
    ours = times.get("tidemark", float("nan"))
    print(f"\n{load.rows:,} rows, {load.keys:,} keys, {load.name}, size {load.size}; load {os.getloadavg()[0]:.1f}")
    print("| way | seconds | tidemark takes |\n| --- | ---: | ---: |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {ours / seconds:.2f}x |")


def main() -> None:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--rows-a-window", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--sweep", action="store_true")
    arguments = parser.parse_args()
    spark = session(shuffle_partitions=4)
    with tempfile.TemporaryDirectory() as folder:
        size = arguments.rows_a_window * 2000
        base = Workload(Path(folder), arguments.rows, arguments.keys, size)
        warm = Workload(Path(folder), max(arguments.rows // 100, 1000), arguments.keys, size, name="warm")
        base.write()
        warm.write()
        compare(spark, base, warm, arguments)
        if arguments.sweep:
            sweep(spark, base, warm, arguments)
    spark.stop()


def sweep(spark: SparkSession, base: Workload, warm: Workload, arguments: argparse.Namespace) -> None:
    """How the product's time grows with rows, with rows a window, and with a hot key."""
    print("\n| workload | seconds | of the first |\n| --- | ---: | ---: |")
    plain = None
    double = Workload(base.folder, 2 * base.rows, base.keys, base.size)
    hot = Workload(base.folder, base.rows, base.keys, base.size, hot=0.9, name="hot")
    double.write()
    hot.write()
    loads = [("base", base, None), ("twice the rows", double, None)]
    for rows_a_window in (5, 500, 5_000):
        other = Workload(base.folder, base.rows, base.keys, rows_a_window * 2000)
        loads.append((f"{rows_a_window} rows a window", other, None))
    span = base.rows * 2000 // base.keys
    loads.append(("90 % on one key, sliced", hot, max(span // 16, base.size * 4)))
    for name, load, slices in loads:
        load.checks.clear()
        seconds = measure(
            name, lambda held, out, cut=slices: tidemark(spark, held, out, cut), load, warm, arguments.repeat
        )
        plain = plain or seconds
        print(f"| {name} | {seconds:.2f} | {seconds / plain:.2f}x |")


if __name__ == "__main__":
    main()
