"""Sliding windows side by side, Parquet to Parquet: Tidemark, its floor, DuckDB, Polars, Spark's own frames.

    python tests/benchmarks/engine/sliding.py peers | profile | rows | hot | frames | hopping | plot
        [--rows 5000000] [--repeat 2]

    peers     5M rows, 2,000 keys, 50 rows a window, against the floor, DuckDB and Polars
    profile   where the time of the same goes: reading, shuffling, Arrow, windows, writing
    rows      twice the rows, and 5, 500 and 5,000 rows a window, against 50
    hot       90 % of the rows on one key, against uniform keys
    frames    500 rows a window, against Spark's RANGE frames, on as many rows as those end with
    hopping   the same windows' size with an advance of one tick, for scale
    plot      benchmarks-out/sliding.png, of all parts run so far

Windows have count, sum, min and max of a long. The floor is Spark shuffling the same rows by key, sorting them, and
writing as many rows as there are windows. How times are taken: see `measuring`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from spark_jobs.engine.spark.windows import count, hopping_windows, max_, min_, sliding_windows, sum_
from tests.benchmarks.engine.measuring import (
    MEAN_DISTANCE,
    OUT,
    Benchmark,
    Measured,
    Rows,
    Workload,
    apart,
    compared,
    in_spark,
    in_turns,
    kept,
    main,
    profiled,
)

AGGREGATES = {"n": count(), "total": sum_("v"), "low": min_("v"), "high": max_("v")}
FRAMES_ROWS, HOPPING_ROWS = 2_000_000, 2_000


def tidemark(spark: Any, load: Workload, out: str) -> None:
    """The product, as it comes."""
    _windows(load.size, spark.read.parquet(load.source)).write.parquet(out)


def _windows(size: int, rows: Any) -> Any:
    return sliding_windows(rows, key="k", time="t", size=size, aggregates=AGGREGATES, clip_at_zero=False)


def floor(spark: Any, load: Workload, out: str) -> None:
    """Shuffle, sort and write as many rows of the same width as there are windows (about two a row)."""
    rows = spark.read.parquet(load.source).repartition("k").sortWithinPartitions("k", "t")
    twice = rows.selectExpr(
        "k", "t AS window_start", "t AS window_end", "v AS n", "v AS total", "v AS low", "v AS high"
    )
    twice.selectExpr("*", "explode(array(0, 1)) AS copy").drop("copy").write.parquet(out)


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
    Path(out).mkdir(parents=True)
    query = _LEFT_RIGHT.format(source=f"read_parquet('{load.source}/*.parquet')", d=load.size)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = false; SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{out}/0.parquet' (FORMAT parquet)")


def spark_frames(spark: Any, load: Workload, out: str) -> None:
    """The same query on Spark's RANGE frames."""
    spark.read.parquet(load.source).createOrReplaceTempView("source_rows")
    spark.sql(_LEFT_RIGHT.format(source="source_rows", d=load.size)).write.parquet(out)


def polars(load: Workload, out: str) -> None:
    """`rolling` twice and an anti join, in memory."""
    Path(out).mkdir(parents=True)
    rows = pl.read_parquet(f"{load.source}/*.parquet").sort("k", "t")
    value = pl.col("v")
    aggregates = [
        *(pl.len().cast(pl.Int64).alias("n"), value.sum().alias("total")),
        *(value.min().alias("low"), value.max().alias("high")),
    ]
    bounds = [pl.col("k"), pl.col("window_start"), (pl.col("window_start") + load.size).alias("window_end")]
    values = [pl.col(name) for name in AGGREGATES]

    def rolled(offset: str | None, start: pl.Expr) -> pl.DataFrame:
        found = rows.rolling("t", period=f"{load.size + 1}i", offset=offset, closed="right", group_by="k")
        frame = found.agg(aggregates).unique(["k", "t"], keep="first")
        return frame.with_columns(start.alias("window_start")).select(*bounds, *values)

    lefts = rolled(None, pl.col("t") - load.size)
    rights = rolled("0i", pl.col("t") + 1).filter(pl.col("n") > 0)
    rights = rights.join(lefts, on=["k", "window_start"], how="anti")
    pl.concat([lefts, rights]).write_parquet(f"{out}/0.parquet")


def hopping(spark: Any, load: Workload, out: str) -> None:
    """Hopping windows with an advance of one tick: every content, many times over."""
    rows = spark.read.parquet(load.source)
    windows = hopping_windows(rows, key="k", time="t", size=load.size, advance=1, aggregates=AGGREGATES)
    windows.write.parquet(out)


class SlidingBenchmark(Benchmark):
    """The parts, over workloads in one folder."""

    def __init__(self, folder: Path, rows: int, repeat: int) -> None:
        super().__init__(folder, rows, repeat)
        self.base = partial(Workload, folder, keys=2_000)
        self.size = 50 * MEAN_DISTANCE

    def ours(self, load: Workload) -> Measured:
        return in_spark(partial(tidemark, self.spark), load.written())

    def peers(self) -> Rows:
        load = self.base(rows=self.rows, size=self.size).written()
        ways: dict[str, Callable[[], Measured]] = {
            "tidemark": partial(in_spark, partial(tidemark, self.spark), load),
            "floor": partial(in_spark, partial(floor, self.spark), load),
            "duckdb": partial(apart, duck, load),
            "polars": partial(apart, polars, load),
        }
        measured = in_turns(ways, self.repeat)
        return compared(f"{self.rows:,} rows, 2,000 keys, 50 rows a window", measured)

    def profile(self) -> Rows:
        load = self.base(rows=self.rows, size=self.size).written()
        return profiled(f"{self.rows:,} rows", self.spark, partial(_windows, self.size), load, self.repeat)

    def more_rows(self) -> Rows:
        loads = {"50 rows a window": self.base(rows=self.rows, size=self.size)}
        loads |= {f"{n:,} rows a window": self.base(rows=self.rows, size=n * MEAN_DISTANCE) for n in (5, 500, 5_000)}
        loads["twice the rows"] = self.base(rows=2 * self.rows, size=self.size)
        return self._alone("growth", loads)

    def hot(self) -> Rows:
        uniform = self.base(rows=self.rows, size=self.size)
        return self._alone(
            "a hot key", {"uniform": uniform, "90 % on one key": self.base(rows=self.rows, size=self.size, hot=0.9)}
        )

    def frames(self) -> Rows:
        load = Workload(self.folder, FRAMES_ROWS, 800, 500 * MEAN_DISTANCE).written()
        measured = {"tidemark": in_spark(partial(tidemark, self.spark), load, self.repeat)}
        measured["spark frames"] = in_spark(partial(spark_frames, self.spark), load, 1)
        return compared(f"{FRAMES_ROWS:,} rows, 800 keys, 500 rows a window", measured)

    def hopping(self) -> Rows:
        load = Workload(self.folder, HOPPING_ROWS, 20, 5 * MEAN_DISTANCE).written()
        measured = {"sliding": self.ours(load), "hopping by one tick": in_spark(partial(hopping, self.spark), load, 1)}
        rows = [
            {"title": "hopping", "way": way, "seconds": m.seconds, "windows": m.sums[0]} for way, m in measured.items()
        ]
        for row in rows:
            print(f"{row['way']}: {row['seconds']:.2f} s, {row['windows']:,} windows of {HOPPING_ROWS:,} rows")
        return rows

    def _alone(self, title: str, loads: dict[str, Workload]) -> Rows:
        """The product over several workloads, compared with the first."""
        rows: Rows = []
        measured = in_turns({name: partial(self.ours, load) for name, load in loads.items()}, self.repeat)
        print(f"\n{title}\n\n| workload | seconds | of the first | MiB |\n| --- | ---: | ---: | ---: |")
        for name, found in measured.items():
            ratio = found.seconds / rows[0]["seconds"] if rows else 1.0
            print(f"| {name} | {found.seconds:.2f} | {ratio:.2f}x | {found.peak_mib:.0f} |", flush=True)
            rows.append({"title": title, "way": name, "seconds": found.seconds, "ratio": ratio, "mib": found.peak_mib})
        return rows


def plot() -> None:
    """All parts as bars, one panel each."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    parts = kept("sliding")
    figure, axes = pyplot.subplots(len(parts), 1, figsize=(9, 2.4 * len(parts)), squeeze=False)
    for axis, (part, rows) in zip(axes[:, 0], parts.items(), strict=True):
        axis.barh([row["way"] for row in rows], [row["seconds"] for row in rows], color="#3b6ea5")
        axis.bar_label(axis.containers[0], [f"{row['seconds']:.1f} s" for row in rows], padding=3)
        axis.set_title(f"{part}: {rows[0]['title']}", loc="left", fontsize=10)
        axis.margins(x=0.15)
        axis.invert_yaxis()
    figure.tight_layout()
    figure.savefig(OUT / "sliding.png", dpi=110)
    print(OUT / "sliding.png")


PARTS: dict[str, Callable[[SlidingBenchmark], Rows]] = {
    "peers": SlidingBenchmark.peers,
    "profile": SlidingBenchmark.profile,
    "rows": SlidingBenchmark.more_rows,
    "hot": SlidingBenchmark.hot,
    "frames": SlidingBenchmark.frames,
    "hopping": SlidingBenchmark.hopping,
}


if __name__ == "__main__":
    main("sliding", __doc__, SlidingBenchmark, PARTS, plot, rows=5_000_000)
