"""Corrections on real tables: a late batch into a published year, and reads of the past beside reads of now.

    python tests/benchmarks/corrections.py late as-of [--days 365] [--rows 4000] [--windows 20000] [--repeats 3]

`late`: a year of a small source is published by one run, then a day by an ordinary run, then a drop whose few rows (one
in a thousand of a day's) lie all over the year. Its run is held against the ordinary day's, and against recomputing the
year (what a changed definition does: everything is read and compared, nothing is read from files). `as-of`: a window
table of which every row has 50 revisions, read now and at three times, before folding and after.

Exit code 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

# run by path, the directory of this file comes first; the package lies two above
sys.path[0:1] = [str(Path(__file__).resolve().parents[2])]

from spark_jobs.config import Settings  # noqa: E402
from spark_jobs.definitions.catalog import define_names, ensure_source  # noqa: E402
from spark_jobs.definitions.definition import definitions, histories  # noqa: E402
from spark_jobs.jobs.request import Request  # noqa: E402
from spark_jobs.jobs.stage import run_stage  # noqa: E402
from spark_jobs.model import STAGES  # noqa: E402
from spark_jobs.session import open_session  # noqa: E402
from spark_jobs.sources import Source, load_source  # noqa: E402
from spark_jobs.storage.coordination import publication  # noqa: E402
from spark_jobs.storage.coordination.fold import fold  # noqa: E402
from spark_jobs.storage.coordination.publication import Publication  # noqa: E402
from spark_jobs.storage.delta.fences import Fence  # noqa: E402
from spark_jobs.storage.descriptions.times import micros  # noqa: E402
from spark_jobs.storage.lakes.spark_lake import SparkLake  # noqa: E402

START = datetime(2023, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DAY_US = 86_400_000_000
KEYS = 50
REVISIONS = 50

SOURCE = """
source: metered
start: 2023-01-01
every: 1 day
landing: {path: "metered/{date}/*", format: parquet}
columns: {id: int, meter: string, at: timestamp, load: int}
timelines: {taken: at}
event_time: taken
entity: meter
windows:
  hours:
    kind: tumbling
    size: 1 hour
    key: meter
    time: taken
    aggregates: {n: count(), total: sum(load), high: max(load)}
    late: LATE
state: {mode: add, datatype: int64, components: {readings: 1, load: load}}
"""


class Figure(NamedTuple):
    """One measured figure; `bound` None is for information."""

    name: str
    measured: str
    bound: str | None = None
    is_met: bool = True


class Bench:
    """A lake of its own with the source, and ways to run it."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark, self.settings, self.runs = spark, settings, 0
        self.declare("reemit")

    def declare(self, late: str) -> None:
        self.settings.sources.mkdir(parents=True, exist_ok=True)
        (self.settings.sources / "metered.yml").write_text(SOURCE.replace("LATE", late))

    @property
    def source(self) -> Source:
        return load_source(self.settings.sources / "metered.yml")

    def write(self, drop: int, minutes: np.ndarray, seed: int) -> None:
        """A drop's file: one row per minute given, counted from the start."""
        random = np.random.default_rng(seed)
        folder = self.settings.landing_folder / "metered" / f"{START + drop * DAY:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        times = micros(START) + minutes.astype(np.int64) * 60_000_000
        names = np.array([f"meter-{i:02d}" for i in range(KEYS)])
        table = {
            "id": pa.array(random.integers(0, 2**40, len(minutes))),
            "meter": pa.array(names[random.integers(0, KEYS, len(minutes))]),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "load": pa.array(random.integers(0, 1000, len(minutes))),
        }
        pq.write_table(pa.table(table), folder / "a.parquet")

    def run(self, first: int, last: int, *, accept: bool = False) -> dict[str, float]:
        """Seconds of each stage of one run."""
        self.runs += 1
        lo, hi = START + first * DAY, START + (last + 1) * DAY
        common: dict[str, Any] = {"source": "metered", "lo": lo, "hi": hi, "run_id": f"bench-{self.runs}"}
        common |= {
            "settings": self.settings,
            "spark": self.spark,
            "request": Request(accept_definition=accept, pass_gap=True),
        }
        return {name: run_stage(name, **common)["seconds"] for name in STAGES}

    def files(self) -> dict[str, int]:
        """Size of every data file of the published history tables."""
        root = Path(self.settings.lake)
        found = [
            f for d in ("silver.db", "gold.db") for f in (root / d).rglob("*.parquet") if "_delta_log" not in f.parts
        ]
        return {str(f): f.stat().st_size for f in found}


def late_batch(bench: Bench, days: int, rows: int) -> list[Figure]:
    """A few rows of every part of the year, in one drop."""
    for day in range(days + 1):
        bench.write(day, day * 1440 + np.sort(np.random.default_rng(day).integers(0, 1440, rows)), day)
    few = max(rows // 1000, 1)
    bench.write(days + 1, np.linspace(600, days * 1440 - 600, few).astype(np.int64), 10**6)
    bench.write(days + 2, np.array([(days + 2) * 1440]), 10**6 + 1)
    year = bench.run(0, days - 1)
    ordinary = bench.run(days, days)
    before = bench.files()
    late = bench.run(days + 1, days + 1)
    added = {f: size for f, size in bench.files().items() if f not in before}
    touched = changed(bench)
    bench.declare("{policy: reemit, limit: 9999 days}")
    again = bench.run(days + 2, days + 2, accept=True)
    total = {name: sum(seconds.values()) for name, seconds in (("late", late), ("day", ordinary), ("again", again))}
    least = sum(before.values()) / max(rows_in(bench), 1) * touched
    of_year, of_day = total["late"] / sum(year.values()), total["late"] / total["day"]
    partitions = len({Path(f).parent for f in added})
    return [
        Figure("published rows before", f"{rows_in(bench)}"),
        Figure("the year in one run", shown(year)),
        Figure("the year recomputed (definition changed)", shown(again)),
        Figure("an ordinary day", shown(ordinary)),
        Figure(f"a late batch of {few} rows", f"{shown(late)}; {touched} history rows"),
        Figure("late batch / the year in one run", f"{of_year:.3f}", "0.05", of_year <= 0.05),
        Figure("late batch / the year recomputed", f"{total['late'] / total['again']:.3f}"),
        Figure("late batch / an ordinary day", f"{of_day:.2f}", "2", of_day <= 2),
        Figure(
            "files written by the late batch (none is rewritten)",
            f"{len(added)} of {sum(added.values())} bytes in {partitions} partitions; changed rows: {least:.0f} bytes",
            "3x of the bytes that changed, or one file per touched partition",
            sum(added.values()) <= 3 * least or len(added) <= partitions,
        ),
    ]


def changed(bench: Bench) -> int:
    """Rows that the last run wrote to the history tables."""
    tables = [history.table.qualified for history in histories(bench.source)]
    newest = sf.max("known_from")
    of_last = sf.coalesce("known_to", "known_from")
    per_table = [bench.spark.table(t).select(of_last.alias("known_from")) for t in tables]
    rows = per_table[0].unionByName(per_table[1])
    counted = rows.groupBy("known_from").count().orderBy(sf.desc("known_from")).first()
    assert newest is not None and counted is not None
    return int(counted["count"])


def rows_in(bench: Bench) -> int:
    return sum(bench.spark.table(history.table.qualified).count() for history in histories(bench.source))


def as_of(bench: Bench, windows: int, repeats: int) -> list[Figure]:
    """A window table all of whose rows were restated 49 times, written as runs would have written it."""
    lake, source = SparkLake(bench.spark), bench.source
    ensure_source(lake, source)
    define_names(lake, source)
    table = definitions(source)[0].table()
    published = Publication(0, source.drops.start_us, source.drops.start_us)
    figures: list[Figure] = []
    unfolded, token = 10**6, 10**6
    for revision in range(REVISIONS):
        token += 1
        fence = Fence(source.name, token)
        lake.append(table, revised(lake, windows, revision, token), fence)
        at_us = source.drops.start_us + (revision + 1) * DAY_US
        published = Publication(
            at_us, at_us, at_us, unfolded, tuple(range(unfolded + 1, token + 1)), "{}", "bench", token
        )
    publication.commit(lake, source, Fence(source.name, token + 1), published)
    figures += reads(bench, "not folded", repeats)
    began = time.perf_counter()
    rows = fold(lake, histories(source)[0], published, Fence(source.name, token + 2))
    figures.append(Figure(f"folding {rows} closed rows", f"{time.perf_counter() - began:.1f} s"))
    return figures + reads(bench, "folded", repeats)


def revised(lake: SparkLake, windows: int, revision: int, token: int) -> Any:
    """The rows of one restatement of every window: new values, and the closings of the old ones."""
    start, known = micros(START), micros(START) + (revision + 1) * DAY_US - 1
    base = lake.spark.range(windows).select(
        sf.format_string("meter-%02d", sf.col("id") % KEYS).alias("meter"),
        sf.timestamp_micros(sf.lit(start) + (sf.col("id") / KEYS).cast("bigint") * 3_600_000_000).alias("window_start"),
        sf.timestamp_micros(sf.lit(start) + ((sf.col("id") / KEYS).cast("bigint") + 1) * 3_600_000_000).alias(
            "window_end"
        ),
    )

    def rows(number: int, era: str, known_from: int, known_to: int | None) -> Any:
        values = {"n": number + 1, "total": number * 7, "high": number}
        return base.select(
            "*",
            *[sf.lit(v).cast("bigint").alias(c) for c, v in values.items()],
            sf.timestamp_micros(sf.lit(known_from)).alias("known_from"),
            sf.timestamp_micros(sf.lit(known_to).cast("bigint")).alias("known_to"),
            sf.lit(number).cast("int").alias("revision"),
            sf.lit(era).alias("era"),
            sf.lit(token).cast("bigint").alias("token"),
        )

    live = rows(revision, "live", known, None)
    return live if revision == 0 else live.unionByName(rows(revision - 1, "closing", known - DAY_US, known))


def reads(bench: Bench, state: str, repeats: int) -> list[Figure]:
    """Sums over the table now and at three times, best of the repeats; what is read is checked."""

    def at(revision: int) -> str:
        return f"silver.hours_as_of(timestamp_micros({micros(START) + (revision + 1) * DAY_US - 1}))"

    now = best(repeats, lambda: total(bench.spark, "silver.hours", REVISIONS - 1))
    figures = [Figure(f"{state}: read now", f"{now:.2f} s")]
    for revision in (5, 25, REVISIONS - 2):
        seconds = best(repeats, lambda r=revision: total(bench.spark, at(r), r))  # type: ignore[misc]
        ratio = seconds / now
        figures.append(Figure(f"{state}: as of revision {revision} / now", f"{ratio:.2f}", "2", ratio <= 2))
    return figures


def total(spark: SparkSession, relation: str, revision: int) -> None:
    row = spark.sql(
        f"SELECT count(*) AS n, min(high) AS low, max(high) AS high, sum(total) AS t FROM {relation}"
    ).first()
    assert row is not None and row["low"] == row["high"] == revision, f"{relation}: {row}, expected {revision}"


def best(repeats: int, work: Callable[[], None]) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def shown(seconds: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    return f"{sum(seconds.values()):.1f} s ({parts})"


@contextmanager
def opened() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = Settings(
            home=home, spark="classic", master="local[2]", heap="3g", sources=home / "sources", landing=home / "landing"
        )
        spark = open_session(settings, "corrections")
        try:
            yield Bench(spark, settings)
        finally:
            spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Corrections on real tables.")
    parser.add_argument("what", nargs="+", choices=["late", "as-of"])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--rows", type=int, default=4000, help="rows of a day")
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    figures: list[Figure] = []
    with opened() as bench:
        if "late" in options.what:
            figures += late_batch(bench, options.days, options.rows)
            for database in ("bronze", "trace", "silver", "gold", "quality"):
                bench.spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
        if "as-of" in options.what:
            figures += as_of(bench, options.windows, options.repeats)
    for figure in figures:
        bound = "" if figure.bound is None else f"   (at most {figure.bound}: {'met' if figure.is_met else 'MISSED'})"
        print(f"{figure.name}: {figure.measured}{bound}")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
