"""Landing into chunks and reading ranges of them, each figure beside its peer (plain Delta rows) in the same run.

    python tests/benchmarks/bronze.py landing query drops disorder memory kernel [--rows N]

    landing   rate and bytes of 5M rows against Spark's own read and write of the same files
    query     bytes and time of 0.1 % of one entity's time among 10M rows (landing's rows, if both are asked for)
    drops     the same after 23, 91 and 365 daily drops of 100,000 rows, without Spark (see `indexed`)
    disorder  2M rows in order, and with 30 % of them late by up to an hour; the same over 23 daily drops, late by up
              to a day, with the processor's time that a cache of an entity's chunks would leave
    memory    peak memory of a Python worker while 1M and 20M rows land
    kernel    the same queries in memory

The workload: a day of devices that each report ten values (measurements, counters, states) in even steps; files hold
the rows as they arrive, all devices mixed, up to two seconds late. Input is made once per size under `--work` and kept.
One line per figure; a promise that is not kept is marked `MISSED` and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.jobs.stage import run_stage
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.session import open_session
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.benchmarks.engine.chunks import Figure, against_a_plain_table, many_chunks
from tests.benchmarks.indexed import queries_of_disorder, queries_over_drops

SOURCE = """
source: telemetry
start: 2024-01-01
landing: {path: "telemetry/{date}/*", format: csv}
columns:
  device: string
  at: timestamp
  temperature: float
  humidity: float
  pressure: float
  voltage: float
  speed: float
  odometer: int
  starts: int
  setpoint: float
  alarm: bool
  firmware: string
timelines: [at]
event_time: at
entity: device
"""
SCHEMA = (
    "device STRING, at TIMESTAMP, temperature DOUBLE, humidity DOUBLE, pressure DOUBLE, voltage DOUBLE, speed DOUBLE,"
    " odometer BIGINT, starts BIGINT, setpoint DOUBLE, alarm BOOLEAN, firmware STRING"
)
COMPONENTS = [column.split()[0] for column in SCHEMA.split(", ")][2:]
START = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DAY_S, HOUR_S = 86_400, 3_600
FILES = 8
SEED = 20240101
QUERIES = 9
MIB = 1 << 20
SMALL_DROP = 1_000_000


def main() -> int:
    """Measure what the command line asks for; 1 if a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=MEASURES)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tidemark-bronze")
    parser.add_argument("--prepare", action="store_true", help="only make the input")
    options = parser.parse_args()
    if options.prepare:
        prepare(options)
        return 0
    kept = []
    with bench(options) as bed:
        for what in options.what:
            for figure in MEASURES[what][0](bed, options):
                print(figure.line(), flush=True)
                kept.append(figure.kept)
    return 0 if all(kept) else 1


def landing(bed: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """Rate and bytes of landing against Spark reading the same files and writing plain rows."""
    rows = size_of("landing", options)
    bed.warm()
    files = telemetry(options, rows)
    spent = {"plain": bed.write_plain(files), "chunks": bed.land(files)}
    rates = {name: rows / seconds / 1e3 for name, seconds in spent.items()}
    sizes = {name: bed.stored_bytes(table) for name, table in bed.tables.items()}
    yield Figure(f"plain, {rows:,} rows: read and written", rates["plain"], "krows/s")
    yield Figure("chunks: the whole stage `land`, gate included", rates["chunks"], "krows/s")
    yield Figure("rate of landing over plain", rates["chunks"] / rates["plain"], "x", at_least=0.33)
    yield Figure("plain rows on disk", sizes["plain"] / rows, "B/row")
    yield Figure("chunks on disk", sizes["chunks"] / rows, "B/row")
    yield Figure("bytes of chunks over plain", sizes["chunks"] / sizes["plain"], "x", at_most=0.6)


def query(bed: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """A range of 0.1 % of one entity's time against the filter of the plain table.

    Chunks are read in this process, the plain table by Spark. Bytes of chunks are those that this process reads, bytes
    of the plain table those that Hadoop's file systems hand out.
    """
    if "landing" not in options.what:
        files = telemetry(options, size_of("query", options))
        bed.write_plain(files)
        bed.land(files)
    yield Figure("a query of an empty table by Spark, median", bed.idle().seconds * 1e3, "ms")
    for names in (COMPONENTS[:1], COMPONENTS):
        asked = bed.questions(options.devices)
        plain = bed.measured(partial(bed.filtered, names=names), asked)
        dense = bed.measured(partial(bed.ranged, names=names), asked)
        what = f"{len(names)} of {len(COMPONENTS)} components"
        read = [spent.read / 1e3 for spent in (plain, dense)]
        yield Figure(f"plain filter, {what}: bytes read", read[0], "kB")
        yield Figure(f"chunk range, {what}: bytes read", read[1], "kB")
        yield Figure(f"bytes of the range over the filter, {what}", 100 * read[1] / read[0], "%", at_most=1)
        yield Figure(f"plain filter, {what}, median", plain.seconds * 1e3, "ms")
        yield Figure(f"chunk range, {what}, median", dense.seconds * 1e3, "ms")
        yield Figure(f"plain over chunks, end to end, {what}", plain.seconds / dense.seconds, "x", at_least=3)


def drops(bed: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """Queries over more and more drops."""
    yield from queries_over_drops(load_source(bed.settings.sources / "telemetry.yml"), options.work / "drops")


def disorder(bed: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """30 % of the rows late by up to an hour, against the same rows in order."""
    landed, asked, rows = {}, {}, size_of("disorder", options)
    bed.warm()
    for name, late_share in (("in order", 0.0), ("30 % late", 0.3)):
        bed.clear()
        landed[name] = bed.land(telemetry(options, rows, late_share))
        spent = bed.measured(lambda d, lo, hi: bed.ranged(d, lo, hi, COMPONENTS), bed.questions(options.devices))
        asked[name] = spent.seconds
        yield Figure(f"landing, {rows:,} rows, {name}", rows / landed[name] / 1e3, "krows/s")
        yield Figure(f"range, {name}, median", asked[name] * 1e3, "ms")
    yield Figure("landing, late over in order", landed["30 % late"] / landed["in order"], "x", at_most=1.3)
    yield Figure("range, late over in order", asked["30 % late"] / asked["in order"], "x", at_most=2)
    yield from queries_of_disorder(load_source(bed.settings.sources / "telemetry.yml"), options.work / "drops")


def memory(bed: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """Peak memory of the Python workers while a drop lands, small and large."""
    peaks = []
    for rows in (SMALL_DROP, size_of("memory", options)):
        bed.clear()
        files = telemetry(options, rows)
        with worker_peak() as peak:
            bed.land(files)
        peaks.append(peak.bytes / MIB)
        yield Figure(f"peak of one Python worker, {rows:,} rows", peaks[-1], "MiB")
    yield Figure("the larger over the smaller", peaks[1] / peaks[0], "x", at_most=1.3)


def kernel(_: Bed, options: argparse.Namespace) -> Iterator[Figure]:
    """Queries in memory: a million chunks, and a range against a filter of a plain Arrow table."""
    yield from many_chunks(1_000_000)
    yield from against_a_plain_table(10_000_000, options.devices)


def size_of(what: str, options: argparse.Namespace) -> int:
    """Rows of a measure: the option, else its own size."""
    return MEASURES[what][1] if options.rows is None else options.rows


def prepare(options: argparse.Namespace) -> None:
    """Make the input of the measures that are asked for."""
    for what in options.what:
        if MEASURES[what][1]:
            telemetry(options, size_of(what, options))
        if what == "disorder":
            telemetry(options, size_of(what, options), 0.3)
        if what == "memory":
            telemetry(options, SMALL_DROP)


def telemetry(options: argparse.Namespace, rows: int, late_share: float = 0.0) -> Path:
    """The folder of a day's files with this many rows, in order of arrival; made if it is not there."""
    folder = options.work / f"input-{rows}-{options.devices}-{late_share}"
    if folder.exists():
        return folder
    making = folder.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    for number in range(FILES):
        hours = (DAY_S * number / FILES, DAY_S * (number + 1) / FILES)
        pc.write_csv(_reports(rng, rows // FILES, options.devices, hours, late_share), making / f"{number}.csv")
    making.rename(folder)
    return folder


def _reports(
    rng: np.random.Generator, rows: int, devices: int, hours: tuple[float, float], late_share: float
) -> pa.Table:
    count = rows // devices
    device = np.repeat(np.arange(devices), count)
    step = (hours[1] - hours[0]) / count
    phase = rng.random(devices)[device] * step
    taken_s = np.round(hours[0] + phase + np.tile(np.arange(count), devices) * step, 3)
    order = np.argsort(taken_s + rng.random(len(taken_s)) * 2, kind="stable")
    device, taken_s, rows = device[order], taken_s[order], len(order)
    late_s = rng.integers(0, HOUR_S, rows) * (rng.random(rows) < late_share)
    at = np.maximum(taken_s - late_s, 0)
    at_ms = np.rint(at * 1e3).astype(np.int64)
    wave = np.sin(at / 5_000 + device) + 0.2 * np.sin(at / 300 + device)
    names = pa.array([f"device-{number:05d}" for number in range(devices)])
    firmware = pa.array(["4.1.0", "4.1.1", "4.2.0"])
    columns = {
        "device": names.take(pa.array(device)),
        "at": pa.array(micros(START) // 1_000 + at_ms, pa.timestamp("ms")).cast(pa.string()),
        "temperature": np.round(20 + device % 13 + 4 * wave + rng.normal(0, 0.1, rows), 1),
        "humidity": np.round(55 + device % 7 - 8 * wave + rng.normal(0, 0.5, rows)),
        "pressure": np.round(1013 + device % 5 + 2 * wave + rng.normal(0, 0.1, rows), 1),
        "voltage": np.round(12.6 + 0.1 * wave + rng.normal(0, 0.02, rows), 2),
        "speed": np.round(np.maximum(60 * wave, 0)),
        "odometer": (at * (1 + device % 3)).astype(np.int64) // 100 + device * 1_000,
        "starts": device % 50 + at.astype(np.int64) // 7_200,
        "setpoint": 18 + (device % 9) * 0.5,
        "alarm": rng.random(rows) < 0.005,
        "firmware": firmware.take(pa.array((device + at.astype(np.int64) // 40_000) % 3)),
    }
    return pa.table(columns)


@dataclass
class Spent:
    """Medians of one kind of query: seconds, and bytes of files that were read."""

    seconds: float
    read: float


@dataclass
class Peak:
    """The greatest resident memory seen of one Python worker."""

    bytes: int = 0


class Bed:
    """A lake of its own, the source, and its plain twin."""

    tables: ClassVar = {"plain": "plain.telemetry", "chunks": "bronze.telemetry_chunks"}

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark, self.settings = spark, settings
        self.clear()

    def clear(self) -> None:
        """Back to an empty lake."""
        for database in ("plain", "bronze", "trace", "silver", "gold", "quality", "marts"):
            self.spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
        self.spark.sql("CREATE DATABASE plain")
        shutil.rmtree(self.settings.home / "leases", ignore_errors=True)

    def warm(self) -> None:
        """A small landing and a small plain write, so that neither pays for the first use of anything."""
        options = argparse.Namespace(work=self.settings.home.parent, devices=50)
        files = telemetry(options, 20_000)
        self.write_plain(files)
        self.land(files)
        self.clear()

    def land(self, files: Path) -> float:
        """Land the files as the source's first drop; seconds."""
        place = self.settings.landing_folder / "telemetry" / f"{START:%Y-%m-%d}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for file in files.iterdir():
            (place / file.name).hardlink_to(file)
        begun = time.perf_counter()
        run: dict[str, Any] = {"run_id": "bench", "settings": self.settings, "spark": self.spark}
        run_stage("land", source="telemetry", lo=START, hi=START + DAY, **run)
        return time.perf_counter() - begun

    def write_plain(self, files: Path) -> float:
        """Spark reads the same files and writes them as plain Delta rows; seconds."""
        begun = time.perf_counter()
        rows = self.spark.read.schema(SCHEMA).option("header", True).csv(str(files))
        rows.write.format("delta").mode("overwrite").saveAsTable(self.tables["plain"])
        return time.perf_counter() - begun

    def stored_bytes(self, table: str) -> int:
        """Bytes of a table's live files."""
        return int(self.spark.sql(f"DESCRIBE DETAIL {table}").head(1)[0].sizeInBytes)

    def questions(self, devices: int) -> list[tuple[str, datetime, datetime]]:
        """Devices and ranges of 0.1 % of the day."""
        rng = np.random.default_rng(SEED)
        width = DAY / 1_000
        starts = [START + timedelta(seconds=int(second)) for second in rng.integers(HOUR_S, DAY_S - HOUR_S, QUERIES)]
        return [(f"device-{rng.integers(0, devices):05d}", start, start + width) for start in starts]

    def filtered(self, device: str, lo: datetime, hi: datetime, names: list[str]) -> pa.Table:
        """The rows of the plain table, by Spark's filter."""
        rows = self.spark.table(self.tables["plain"]).where((F.col("device") == device) & F.col("at").between(lo, hi))
        return rows.select("at", *names).orderBy("at").toArrow()

    def ranged(self, device: str, lo: datetime, hi: datetime, names: list[str]) -> pa.Table:
        """The same rows from the chunks."""
        landed = SourceChunks(StoredLake(self.settings.lake), load_source(self.settings.sources / "telemetry.yml"))
        return landed.range_query(device, "at", micros(lo), micros(hi), names)

    def measured(
        self, ask: Callable[[str, datetime, datetime], pa.Table], asked: list[tuple[str, datetime, datetime]]
    ) -> Spent:
        """Medians over the questions, after one that does not count."""
        ask(*asked[0])
        seconds = []
        for question in asked:
            begun = time.perf_counter()
            ask(*question)
            seconds.append(time.perf_counter() - begun)
        # Hadoop does not count what Parquet reads as vectors
        self.spark.conf.set("parquet.hadoop.vectored.io.enabled", "false")
        read = []
        for question in asked:
            before = self._read_bytes()
            ask(*question)
            read.append(self._read_bytes() - before)
        self.spark.conf.unset("parquet.hadoop.vectored.io.enabled")
        return Spent(statistics.median(seconds), statistics.median(read))

    def idle(self) -> Spent:
        """What a query of an empty table takes."""
        self.spark.sql("CREATE TABLE plain.nothing (a INT) USING delta")
        empty = [("", START, START)] * QUERIES
        return self.measured(lambda *_: self.spark.table("plain.nothing").where("a > 0").toArrow(), empty)

    def _read_bytes(self) -> int:
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        counts = jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
        of_spark = sum(int(count.getBytesRead()) for count in counts)
        return of_spark + psutil.Process().io_counters().read_chars


@contextmanager
def bench(options: argparse.Namespace) -> Iterator[Bed]:
    """A lake under the work folder, in a session of its own."""
    home = options.work / "home"
    shutil.rmtree(home, ignore_errors=True)
    (home / "sources").mkdir(parents=True)
    (home / "sources" / "telemetry.yml").write_text(SOURCE)
    settings = Settings(home=home, sources=home / "sources", spark="classic", master="local[2]")
    spark = open_session(settings, "bronze-benchmark")
    try:
        yield Bed(spark, settings)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def worker_peak() -> Iterator[Peak]:
    """Watch the Python workers below this process while the block runs."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    # not the JVM, whose arguments name pyspark-shell
                    if {"pyspark.daemon", "pyspark.worker"} & {*child.cmdline()}:
                        peak.bytes = max(peak.bytes, child.memory_info().rss)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


MEASURES = {
    "landing": (landing, 5_000_000),
    "query": (query, 10_000_000),
    "drops": (drops, 0),
    "disorder": (disorder, 2_000_000),
    "memory": (memory, 20_000_000),
    "kernel": (kernel, 0),
}
"""What can be asked for: how it is measured, and how many rows it takes."""


if __name__ == "__main__":
    sys.exit(main())
