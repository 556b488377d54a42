"""Sessions, hopping and adaptive windows side by side, Parquet to Parquet; how times are taken: see `measuring`.

python tests/benchmarks/engine/windows.py sessions | profile | hopping | hot | memory | adaptive | plot [--rows N]

sessions   10M rows, 10,000 keys, against DuckDB (gaps and islands) and Spark's `session_window`
profile    where the time of sessions goes: reading, shuffling, Arrow, windows, writing
hopping    windows of 60 advances, against Spark's `window()`, on fewer rows (Spark makes 60 of each)
hot        sessions with 90 % of the rows on one key, in many sessions and in one, against uniform keys
memory     the largest Python worker, from 1M rows to 50M
adaptive   deltas a second in the kernel, on one core
plot       benchmarks-out/windows-memory.png
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from spark_jobs.engine.spark.windows import count, hopping_windows, max_, min_, session_windows, sum_
from spark_jobs.engine.windows import Cuts, Trigger
from spark_jobs.engine.windows.kinds.cuts import adaptive_spans
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

GAP = 3 * MEAN_DISTANCE
"""Sessions of about 20 rows."""
PAUSES = 50
"""So that a pause is longer than the gap, and a key with any number of rows has several sessions."""
HOPPING_ROWS = 500_000
MEMORY_ROWS = (1_000_000, 5_000_000, 20_000_000, 50_000_000)
AGGREGATES = {"n": count(), "total": sum_("v"), "low": min_("v"), "high": max_("v")}
_COLUMNS = "count(*) n, sum(v) total, min(v) low, max(v) high"


def sessions(spark: Any, load: Workload, out: str) -> None:
    """The product, as it comes."""
    _sessions(spark.read.parquet(load.source)).write.parquet(out)


def _sessions(rows: Any) -> Any:
    return session_windows(rows, key="k", time="t", gap=GAP, aggregates=AGGREGATES)


def duck_sessions(load: Workload, out: str) -> None:
    """Gaps and islands."""
    Path(out).mkdir(parents=True)
    query = f"""
    WITH marked AS (SELECT *, coalesce(t - lag(t) OVER w > {GAP}, true) AS opens
                    FROM read_parquet('{load.source}/*.parquet') WINDOW w AS (PARTITION BY k ORDER BY t)),
    numbered AS (SELECT *, sum(opens::INT) OVER (PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING) s FROM marked)
    SELECT k, min(t) window_start, max(t) window_end, {_COLUMNS} FROM numbered GROUP BY k, s"""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = false; SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{out}/0.parquet' (FORMAT parquet)")


def spark_sessions(spark: Any, load: Workload, out: str) -> None:
    """Spark counts time in seconds, and ends a session a gap after its last row, which is taken back."""
    rows = spark.read.parquet(load.source).selectExpr("*", "timestamp_seconds(t) AS at")
    rows.createOrReplaceTempView("source_rows")
    spark.sql(
        f"SELECT k, unix_seconds(w.start) window_start, unix_seconds(w.end) - {GAP} window_end, n, total, low, high "
        f"FROM (SELECT k, session_window(at, '{GAP} seconds') w, {_COLUMNS} FROM source_rows GROUP BY 1, 2)"
    ).write.parquet(out)


def hopping(spark: Any, load: Workload, out: str) -> None:
    """The product, as it comes."""
    rows = spark.read.parquet(load.source)
    windows = hopping_windows(
        rows, key="k", time="t", size=60 * MEAN_DISTANCE, advance=MEAN_DISTANCE, aggregates=AGGREGATES
    )
    windows.write.parquet(out)


def spark_hopping(spark: Any, load: Workload, out: str) -> None:
    """Spark's `window()` with a slide."""
    rows = spark.read.parquet(load.source).selectExpr("*", "timestamp_seconds(t) AS at")
    rows.createOrReplaceTempView("source_rows")
    window = f"window(at, '{60 * MEAN_DISTANCE} seconds', '{MEAN_DISTANCE} seconds')"
    spark.sql(
        "SELECT k, unix_seconds(w.start) window_start, unix_seconds(w.end) window_end, n, total, low, high "
        f"FROM (SELECT k, {window} w, {_COLUMNS} FROM source_rows GROUP BY 1, 2)"
    ).write.parquet(out)


class WindowsBenchmark(Benchmark):
    """The parts, over workloads in one folder."""

    def sessions(self) -> Rows:
        load = Workload(self.folder, self.rows, 10_000, GAP).written()
        ways: dict[str, Callable[[], Measured]] = {
            "tidemark": partial(in_spark, partial(sessions, self.spark), load),
            "duckdb": partial(apart, duck_sessions, load),
            "spark session_window": partial(in_spark, partial(spark_sessions, self.spark), load),
        }
        measured = in_turns(ways, self.repeat)
        return compared(f"sessions: {self.rows:,} rows, 10,000 keys", measured)

    def profile(self) -> Rows:
        load = Workload(self.folder, self.rows, 10_000, GAP).written()
        return profiled(f"sessions of {self.rows:,} rows", self.spark, _sessions, load, self.repeat)

    def hopping(self) -> Rows:
        load = Workload(self.folder, HOPPING_ROWS, 500, 0).written()
        measured = {"tidemark": in_spark(partial(hopping, self.spark), load, self.repeat)}
        measured["spark window()"] = in_spark(partial(spark_hopping, self.spark), load, 1)
        return compared(f"hopping windows of 60 advances: {HOPPING_ROWS:,} rows, 500 keys", measured)

    def hot(self) -> Rows:
        """Against uniform keys. A key is cut at breaks: a session that never ends is one task's work."""
        made = partial(Workload, self.folder, self.rows, 10_000, GAP)
        loads = {
            "uniform": made(pauses=PAUSES),
            "90 % on one key": made(hot=0.9, pauses=PAUSES),
            "90 % on one key, in one session": made(hot=0.9),
        }
        found = in_turns(
            {name: partial(in_spark, partial(sessions, self.spark), load.written()) for name, load in loads.items()},
            self.repeat,
        )
        print("\n| sessions | seconds | of uniform | MiB |\n| --- | ---: | ---: | ---: |")
        for name, each in found.items():
            of_uniform = each.seconds / found["uniform"].seconds
            print(f"| {name} | {each.seconds:.2f} | {of_uniform:.2f}x | {each.peak_mib:.0f} |")
        return [{"way": name, "seconds": each.seconds, "mib": each.peak_mib} for name, each in found.items()]

    def memory(self) -> Rows:
        rows = []
        print("\n| rows | largest worker, MiB | seconds |\n| ---: | ---: | ---: |")
        for n in MEMORY_ROWS:
            load = Workload(self.folder, n, 10_000, GAP).written()
            found = in_spark(partial(sessions, self.spark), load, 1)
            print(f"| {n:,} | {found.peak_mib:.0f} | {found.seconds:.1f} |", flush=True)
            rows.append({"rows": n, "mib": found.peak_mib, "seconds": found.seconds})
        return rows

    def adaptive(self) -> Rows:
        rate = adaptive_rate(10_000_000)
        print(f"\nadaptive kernel: {rate:,.0f} deltas a second on one core")
        return [{"way": "adaptive kernel", "rate": rate}]


def adaptive_rate(rows: int) -> float:
    """Deltas a second of the adaptive kernel, triggers time and count."""
    times = np.sort(np.random.default_rng(3).integers(0, rows * 50, rows))
    cuts = Cuts(100, 10, 5_000, 10**9, (Trigger("time"), Trigger("count", 100)), 2**27, 1_000_000)
    best = float("inf")
    for n in (10, rows, rows):
        sizes = np.ones(n, np.int64)
        began = time.process_time()
        every = np.ones(n, np.bool_)
        adaptive_spans(offsets=np.array([0, n]), times=times[:n], sizes=sizes, cuts=cuts, counted=every)
        best = min(best, time.process_time() - began) if n == rows else best
    return rows / best


def plot() -> None:
    """Memory of the largest worker over the number of rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = kept("windows")["memory"]
    figure, axis = pyplot.subplots(figsize=(7, 3.5))
    axis.plot([row["rows"] / 1e6 for row in rows], [row["mib"] for row in rows], marker="o", color="#3b6ea5")
    axis.set(xlabel="million rows", ylabel="MiB, largest Python worker", ylim=(0, None))
    axis.set_title("sessions, memory_max_bytes 100 MiB", loc="left", fontsize=10)
    figure.tight_layout()
    figure.savefig(OUT / "windows-memory.png", dpi=110)
    print(OUT / "windows-memory.png")


PARTS: dict[str, Callable[[WindowsBenchmark], Rows]] = {
    "sessions": WindowsBenchmark.sessions,
    "profile": WindowsBenchmark.profile,
    "hopping": WindowsBenchmark.hopping,
    "hot": WindowsBenchmark.hot,
    "memory": WindowsBenchmark.memory,
    "adaptive": WindowsBenchmark.adaptive,
}


if __name__ == "__main__":
    main("windows", __doc__, WindowsBenchmark, PARTS, plot, rows=10_000_000)
