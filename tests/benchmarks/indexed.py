"""Queries of one entity over more and more daily drops, with the index of chunks and without it.

The lake is one of files: landing, ledger and index are those of a run, without Spark. 0.1 % of all days is asked of one
device. Without the index all files are looked up in Delta's log and in their footers, as in a lake that an earlier
version wrote.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from spark_jobs.landing import ledger
from spark_jobs.landing.chunking import chunks_here
from spark_jobs.landing.indexing import index_chunks
from spark_jobs.landing.pending import row_schema
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.sources import Source
from spark_jobs.sources.drops import first_row_id, row_id
from spark_jobs.storage.delta.dense_files import dense_layout, page_rows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.benchmarks.engine.chunks import Figure

DAYS = (23, 91, 365)
DEVICES, ROWS_A_DAY = 200, 100_000
QUERIES = 15
SEED = 20240101
DAY_US = timedelta(days=1) // timedelta(microseconds=1)


@dataclass
class Cost:
    """Medians of a query: milliseconds of the wall and of the processor, and bytes of files that were read."""

    wall_ms: float
    processor_ms: float
    read: float


def queries_over_drops(source: Source, folder: Path) -> Iterator[Figure]:
    """Land day after day, and ask after some of them."""
    shutil.rmtree(folder, ignore_errors=True)
    lake, spent_s = FileLake(folder), []
    lake.catalog.ensure({}, [chunks(source), FILES])
    for day in range(DAYS[-1]):
        _land(lake, source, day)
        begun = time.process_time()
        index_chunks(lake, source)
        spent_s.append(time.process_time() - begun)
        if day + 1 in DAYS:
            yield from _figures(lake, source, day + 1)
            yield Figure(f"{day + 1} drops: bringing the index up to date, processor", _median_ms(spent_s[-16:]), "ms")
    shutil.rmtree(folder)


def queries_of_disorder(source: Source, folder: Path) -> Iterator[Figure]:
    """Rows in order, and with 30 % of them late by up to a day: a query, and the part of it that a cache would save."""
    for name, late_share in (("in order", 0.0), ("30 % late", 0.3)):
        shutil.rmtree(folder, ignore_errors=True)
        lake = FileLake(folder)
        lake.catalog.ensure({}, [chunks(source), FILES])
        for day in range(DAYS[0]):
            _land(lake, source, day, late_share)
            index_chunks(lake, source)
        for components in (["temperature"], None):
            cost = _measure(lake, source, DAYS[0], components)
            what = f"{name}, {'all components' if components is None else 'one component'}"
            yield Figure(f"{what}: wall", cost.wall_ms, "ms")
            yield Figure(f"{what}: processor", cost.processor_ms, "ms")
            yield Figure(
                f"{what}: processor, all parts in memory", _median_ms(_kernel_s(lake, source, components)), "ms"
            )
            yield Figure(f"{what}: bytes read", cost.read / 1e3, "kB")
    shutil.rmtree(folder)


def _kernel_s(lake: FileLake, source: Source, components: list[str] | None) -> list[float]:
    """Seconds of the processor for questions that were asked before, if their chunks are still in memory."""
    chance, spent = np.random.default_rng(SEED), []
    landed_rows = SourceChunks(StoredLake(lake.folder.root), source)
    for _ in range(QUERIES):
        device, lo_us = f"device-{chance.integers(0, DEVICES):05d}", int(chance.integers(0, DAYS[0] * DAY_US))
        lo_us += source.drops.start(0)
        question = device, "at", lo_us, lo_us + DAYS[0] * DAY_US // 1_000
        parts = landed_rows._parts(*question)
        there = np.arange(len(parts.least))
        names = [*source.columns] if components is None else components
        reader = landed_rows._reader("at", names)
        parts_in_memory = _Kept(parts.least, parts.greatest, parts.read(there, reader._columns("at", names)))
        in_memory = replace(reader, parts_of=lambda *_, of_question=parts_in_memory: of_question)
        begun = time.process_time()
        in_memory.range_query(*question, names)
        spent.append(time.process_time() - begun)
    return spent


@dataclass
class _Kept:
    """Parts that were read before."""

    least: np.ndarray
    greatest: np.ndarray
    rows: pa.Table

    def read(self, numbers: np.ndarray, columns: list[str]) -> pa.Table:
        """All of them."""
        return self.rows


def _figures(lake: FileLake, source: Source, days: int) -> Iterator[Figure]:
    index = Path(lake.folder.handle(chunks(source)).uri) / "_index"
    size = sum(path.stat().st_size for path in index.iterdir())
    yield Figure(f"{days} drops: bytes of the index", size / 1e3, "kB")
    for name in ("with the index", "without it"):
        if name == "without it":
            index.rename(index.with_name("_aside"))
        for components in (["temperature"], None):
            cost = _measure(lake, source, days, components)
            what = f"{days} drops, {name}, {'all components' if components is None else 'one component'}"
            yield Figure(f"{what}: wall", cost.wall_ms, "ms")
            yield Figure(f"{what}: processor", cost.processor_ms, "ms")
            yield Figure(f"{what}: bytes read", cost.read / 1e3, "kB")
    index.with_name("_aside").rename(index)


def _measure(lake: FileLake, source: Source, days: int, components: list[str] | None) -> Cost:
    chance, process = np.random.default_rng(SEED), psutil.Process()
    wall, processor, read = [], [], []
    for number in range(QUERIES + 1):
        device, lo_us = f"device-{chance.integers(0, DEVICES):05d}", int(chance.integers(0, days * DAY_US))
        lo_us += source.drops.start(0)
        before = process.io_counters().read_chars
        begun = time.perf_counter(), time.process_time()
        landed_rows = SourceChunks(StoredLake(lake.folder.root), source)
        rows = landed_rows.range_query(device, "at", lo_us, lo_us + days * DAY_US // 1_000, components)
        ended = time.perf_counter(), time.process_time()
        assert rows.num_rows or lo_us > source.drops.start(days) - DAY_US
        if number:  # the first one also imports
            wall.append(ended[0] - begun[0])
            processor.append(ended[1] - begun[1])
            read.append(process.io_counters().read_chars - before)
    return Cost(_median_ms(wall), _median_ms(processor), statistics.median(read))


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e3


def _land(lake: FileLake, source: Source, day: int, late_share: float = 0) -> None:
    """A day of reports of all devices in even steps, as one landing. A share of them is late by up to a day."""
    chance, count = np.random.default_rng(SEED + day), ROWS_A_DAY // DEVICES
    device = np.repeat(np.arange(DEVICES), count)
    arrival = source.drops.start(day) + np.tile(np.arange(count) * (DAY_US // count), DEVICES) + device * 1_000
    late = chance.integers(0, DAY_US, len(device)) * (chance.random(len(device)) < late_share)
    at = pa.array(arrival - late).cast(pa.timestamp("us", "UTC"))
    first, n = first_row_id(day, "a.csv"), len(device)
    measured = [name for name, spec in source.columns.items() if spec.kind == "float"]
    columns = {name: np.round(20 + device % 13 + chance.normal(0, 1, n), 1) for name in measured}
    given = {
        "row_id": row_id(first, 1) + np.arange(n),
        "seq_no": np.full(n, day),
        "entity": pa.array([f"device-{number:05d}" for number in range(DEVICES)]).take(pa.array(device)),
        "event_time": at,
        "t_at": at,
        "c_at": at,
        **{f"c_{name}": values for name, values in columns.items()},
    }
    arrays = [given.get(f.name, pa.nulls(n, f.type)) for f in row_schema(source)]
    rows = pa.table(arrays, schema=row_schema(source)).append_column("diff", pa.array(np.ones(n, np.int64)))
    to = lake.destination(chunks(source), dense_layout(page_rows(n, DEVICES)))
    lake.append_files(chunks(source), to.write([chunks_here(rows, source, day + 1)]))
    counts = {**ledger.empty_drop_row(source, day), "rows": n}
    ledger.write(lake, [counts], Fence(source.name, day + 1), "bench")
