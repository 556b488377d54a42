"""What window benchmarks share: workloads in Parquet, a Spark session on two cores, times and memory, tables.

Each way reads the same Parquet files and writes its windows as Parquet; it runs once on 1 % of the rows before it is
timed, and results are compared before a time is printed. Times leave out the start of the JVM and of peers' processes.
Peers run in a process of their own, so that their memory can be told apart; Spark's Python workers are watched from
here. Results are kept in `benchmarks-out/<name>.json` until a plot is made of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.arrow_batches import MAX_BYTES, UNBOUNDED

Rows = list[dict[str, Any]]
"""A table of results, as it is kept for a plot."""
OUT = Path(__file__).parents[3] / "benchmarks-out"
MEAN_DISTANCE = 2000
"""Ticks between two rows of a key, on average."""
_CHECKED = ("k", "window_start", "window_end", "n", "total", "low", "high")


@dataclass(frozen=True)
class Workload:
    """Rows (k, t, v) of many keys in random order, in four Parquet files; the same for the same parameters."""

    folder: Path
    rows: int
    keys: int
    size: int
    hot: float = 0.0
    """Share of the rows that one key has."""
    pauses: int = 0
    """How often nothing happens for a while: a fifth of each of so many parts of the span has no row."""

    @property
    def source(self) -> str:
        """The folder with the rows."""
        return str(self.folder / f"rows-{self.rows}-{self.keys}-{self.hot}-{self.pauses}")

    @property
    def span(self) -> int:
        """Ticks from the first row to the last."""
        return self.rows * MEAN_DISTANCE // self.keys

    def written(self) -> Workload:
        """Itself, once its files are there."""
        if not Path(self.source).exists():
            chance = np.random.default_rng(7)
            Path(self.source).mkdir(parents=True)
            for part in range(4):
                n = self.rows * (part + 1) // 4 - self.rows * part // 4
                key = chance.integers(0, self.keys, n)
                key[chance.random(n) < self.hot] = 0
                time = chance.integers(0, self.span, n)
                if self.pauses:
                    into = time % (self.span // self.pauses)
                    time = time - into + into * 4 // 5
                columns = {"k": key, "t": time, "v": chance.integers(-1000, 1000, n)}
                pq.write_table(pa.table(columns), f"{self.source}/{part}.parquet")
        return self

    def small(self) -> Workload:
        """One hundredth of the rows, to warm up with."""
        rows, keys = max(self.rows // 100, 1000), max(self.keys // 100, 1)
        return replace(self, rows=rows, keys=keys).written()


Way = Callable[[Workload, str], None]


@dataclass
class Measured:
    """Best time of a way, the most memory of one process that worked on it, and the sums of what it wrote."""

    seconds: float
    peak_mib: float
    sums: list[int]


def session() -> Any:
    """Spark on two cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("windows-benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.session.timeZone": "UTC",
        # as the README of windows advises where rows are small
        MAX_BYTES: UNBOUNDED,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def sums(out: str) -> list[int]:
    """Number of windows and the sums of all columns; nothing where nothing was written."""
    if not Path(out).exists():
        return []
    with duckdb.connect() as connection:
        columns = ", ".join(f"sum({name})::HUGEINT" for name in _CHECKED)
        found = connection.execute(f"SELECT count(*), {columns} FROM read_parquet('{out}/*.parquet')").fetchone()
    return [int(value or 0) for value in found or ()]


def timed(way: Way, load: Workload, repeat: int) -> tuple[float, list[int]]:
    """The best of some runs after a warm-up, and the sums of what was written."""
    out = str(load.folder / f"out-{os.getpid()}")
    best, found = float("inf"), []
    for run in range(repeat + 1):
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        way(load if run else load.small(), out)
        best = min(best, time.perf_counter() - began) if run else best
    found = sums(out)
    shutil.rmtree(out, ignore_errors=True)
    return best, found


def in_spark(way: Way, load: Workload, repeat: int = 1) -> Measured:
    """Measure a way that runs in Spark; memory is that of the largest Python worker."""
    with _watched_workers() as peak:
        seconds, found = timed(way, load, repeat)
    return _told(way, Measured(seconds, peak[0], found))


def in_turns(ways: Mapping[str, Callable[[], Measured]], rounds: int) -> dict[str, Measured]:
    """The best of some rounds of all ways, each in its turn: what else a machine does falls on all of them."""
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            found = way()
            known = best.get(name, found)
            assert found.sums == known.sums, name
            best[name] = Measured(min(found.seconds, known.seconds), max(found.peak_mib, known.peak_mib), found.sums)
    return best


def apart(way: Way, load: Workload, repeat: int = 1) -> Measured:
    """Measure a way in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure_apart, args=(theirs, way, load, repeat))
    process.start()
    theirs.close()
    measured: Measured = ours.recv()
    process.join()
    return _told(way, measured)


def _told(way: Way, measured: Measured) -> Measured:
    """Say how long a way took: a run that is stopped has said what it found."""
    name = getattr(way, "func", way).__name__
    print(f"  {name} {measured.seconds:.2f} s, {measured.peak_mib:.0f} MiB, {measured.sums[0]:,} windows", flush=True)
    return measured


def _measure_apart(answer: Any, way: Way, load: Workload, repeat: int) -> None:
    seconds, found = timed(way, load, repeat)
    answer.send(Measured(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, found))


@contextmanager
def _watched_workers() -> Iterator[list[float]]:
    """The greatest resident memory, in MiB, of one of Spark's Python workers while the block runs."""
    peak, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "pyspark.daemon" in process.cmdline():
                        peak[0] = max(peak[0], process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def compared(title: str, measured: dict[str, Measured], *, against: str = "tidemark") -> Rows:
    """Print the table of several ways over one workload, whose results must be the same; the rows of the table."""
    wanted = next(iter(measured.values())).sums
    rows = []
    print(f"\n{title}; load {os.getloadavg()[0]:.1f}\n")
    print(f"| way | seconds | {against} takes | MiB |\n| --- | ---: | ---: | ---: |")
    for name, found in measured.items():
        same = name.startswith("floor") or found.sums == wanted
        assert same, f"{name} found {found.sums}, not {wanted}"
        ratio = measured[against].seconds / found.seconds
        print(f"| {name} | {found.seconds:.2f} | {ratio:.2f}x | {found.peak_mib:.0f} |", flush=True)
        rows.append({"title": title, "way": name, "seconds": found.seconds, "ratio": ratio, "mib": found.peak_mib})
    return rows


def profiled(title: str, spark: Any, windows: Callable[[Any], Any], load: Workload, repeat: int) -> Rows:
    """Where the time goes: each step is Spark running the plan up to there, its result thrown away but for the last.

    Args:
        windows: from the DataFrame of a workload's rows to that of its windows.
    """

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In here, as workers can't import this module."""
        for _ in batches:
            pass
        yield from ()

    plans: dict[str, Callable[[Any], Any]] = {
        "read": lambda rows: rows,
        "and shuffle by key": lambda rows: rows.repartition(16, "k"),
        "and hand to Python": lambda rows: rows.repartition(16, "k").mapInArrow(nothing, "k long"),
        "and make windows, hand them back": windows,
    }
    steps = {name: partial(_thrown_away, spark, plan) for name, plan in plans.items()}
    steps["and write them"] = partial(_written, spark, windows)
    rows: Rows = []
    print(f"\nwhere the time goes: {title}\n\n| step | seconds | more than before |\n| --- | ---: | ---: |")
    for name, step in steps.items():
        seconds = timed(step, load, repeat)[0]
        more = seconds - (rows[-1]["seconds"] if rows else 0.0)
        print(f"| {name} | {seconds:.2f} | {more:.2f} |", flush=True)
        rows.append({"title": title, "way": name, "seconds": seconds, "more": more})
    return rows


def _thrown_away(spark: Any, plan: Callable[[Any], Any], load: Workload, out: str) -> None:
    plan(spark.read.parquet(load.source)).write.format("noop").mode("overwrite").save()


def _written(spark: Any, plan: Callable[[Any], Any], load: Workload, out: str) -> None:
    plan(spark.read.parquet(load.source)).write.parquet(out)


def keep(name: str, part: str, rows: Rows) -> None:
    """Keep the rows of one part of a benchmark for the plot."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    held = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(held | {part: rows}, indent=1))


def kept(name: str) -> dict[str, Rows]:
    """What was kept of a benchmark, by part."""
    path = OUT / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


class Benchmark:
    """What the parts of one benchmark share: Spark, a folder for workloads, how many rows, how often."""

    def __init__(self, folder: Path, rows: int, repeat: int) -> None:
        self.spark, self.folder, self.rows, self.repeat = session(), folder, rows, repeat


def main(
    name: str,
    about: str | None,
    benchmark: type[Benchmark],
    parts: Mapping[str, Callable[[Any], Rows]],
    plot: Callable[[], None],
    *,
    rows: int,
) -> None:
    """Run the parts that the command line asks for, keep what they find, and plot what is kept."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*parts, "plot"])
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    asked = [part for part in arguments.parts if part != "plot"]
    if asked:
        with tempfile.TemporaryDirectory() as folder:
            running = benchmark(Path(folder), arguments.rows, arguments.repeat)
            for part in asked:
                keep(name, part, parts[part](running))
            running.spark.stop()
    if "plot" in arguments.parts:
        plot()
