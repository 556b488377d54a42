"""How fast chunks are cut and queried in memory, each figure beside what it is compared with, in one run.

    python tests/benchmarks/engine/chunks.py [--chunks 1000000] [--rows 10000000] [--entities 1000]

Prints one line per figure. A promise that is not kept is marked `MISSED` and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import Chunk, ChunkStore, ComponentColumn, StoreConfig, chunk_columns
from tests.engine.chunk_tables import LANDING, chunks_from_table

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
QUERIES = 500
SEED = 20130101


@dataclass(frozen=True)
class Figure:
    """A measured value and the promise it is held to; `at_most` or `at_least`, in the same unit."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the promise, if there is one, is kept."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def line(self) -> str:
        """The line that is printed."""
        promise = f"<= {self.at_most:g}" if self.at_most is not None else ""
        promise = f">= {self.at_least:g}" if self.at_least is not None else promise
        return f"{self.name:<68}{self.value:>14,.2f} {self.unit:<8}{promise:<10}{'' if self.kept else 'MISSED'}"


def main() -> int:
    """Measure everything; 1 if a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=1_000)
    options = parser.parse_args()
    figures = [
        *many_chunks(options.chunks),
        *unsorted_limits(),
        *against_a_plain_table(options.rows, options.entities),
    ]
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


def many_chunks(count: int) -> list[Figure]:
    """Queries of one entity with `count` short chunks and a chunk over everything; 4 rows a chunk."""
    store = ChunkStore(StoreConfig.off())
    ids = np.arange(count * 4)
    times, values = ids * 10, ids / 2
    began = time.perf_counter()
    for number in range(count):
        rows = slice(number * 4, number * 4 + 4)
        store.insert(_chunk(f"c{number}", ids[rows], times[rows], values[rows]))
    per_insert_us = (time.perf_counter() - began) / count * 1e6
    ends = np.array([0, int(times[-1])])
    store.insert(_chunk("over_everything", np.array([len(ids), len(ids) + 1]), ends, np.zeros(2)))
    points = np.random.default_rng(SEED).integers(0, int(times[-1]), QUERIES).tolist()
    latest = _median_us([partial(store.latest, "e", "t", at, "v") for at in points])
    ranges = _median_us([partial(store.range, "e", "t", lo, lo + 100, "v") for lo in points])
    return [
        Figure(f"insert, {count:,} chunks", per_insert_us, "us"),
        Figure(f"latest-at over {count:,} chunks and one over all, median", latest, "us", at_most=50),
        Figure(f"range of 10 rows over {count:,} chunks and one over all, median", ranges, "us", at_most=50),
    ]


def unsorted_limits() -> list[Figure]:
    """What a range query of 10 rows costs in one chunk, sorted and unsorted: the reason of the unsorted limits."""
    figures = []
    rng = np.random.default_rng(SEED)
    for rows in (256, 1024, 4096, 8192):
        ids = np.arange(rows)
        for name, times in (("sorted", ids * 10), ("unsorted", rng.permutation(rows) * 10)):
            store = ChunkStore(StoreConfig.off())
            store.insert(_chunk("c", ids, times, ids / 2))
            points = rng.integers(0, rows * 10, QUERIES).tolist()
            ranges = _median_us([partial(store.range, "e", "t", lo, lo + 100, "v") for lo in points])
            figures.append(Figure(f"range of 10 rows in one {name} chunk of {rows:,} rows, median", ranges, "us"))
    return figures


def against_a_plain_table(rows: int, entities: int) -> list[Figure]:
    """A range of 0.1 % of one entity's time: chunks in memory against a filter of the same rows as a plain table."""
    ordered = _rows_table(rows, entities, late_share=0.0)
    late = _rows_table(rows, entities, late_share=0.3)
    ordered_chunks, ordered_rate = _chunked(ordered)
    late_chunks, late_rate = _chunked(late)
    span = rows // entities * SECOND_US
    points = np.random.default_rng(SEED).integers(0, span, QUERIES).tolist()
    names = [f"e{number:04d}" for number in np.random.default_rng(SEED).integers(0, entities, QUERIES)]
    in_order, out_of_order = (
        _median_us(
            [
                partial(store.range, name, "t", lo, lo + span // 1000, "v")
                for name, lo in zip(names, points, strict=True)
            ]
        )
        for store in (_store(ordered_chunks), _store(late_chunks))
    )
    plain = _median_us([partial(_filtered, ordered, n, lo, lo + span // 1000) for n, lo in _few(names, points)])
    return [
        Figure("cutting into chunks, in order", ordered_rate / 1e6, "M rows/s"),
        Figure("cutting into chunks, 30 % late: time over in order", ordered_rate / late_rate, "x", at_most=1.3),
        Figure("chunks, in order", ordered_chunks.num_rows, "chunks"),
        Figure("chunks, 30 % late", late_chunks.num_rows, "chunks"),
        Figure("plain table, filter of 0.1 % of one entity's time, median", plain, "us"),
        Figure("chunks, the same range, in order, median", in_order, "us"),
        Figure("chunks, the same range, 30 % late by up to 1 h, median", out_of_order, "us"),
        Figure("plain over chunks", plain / in_order, "x", at_least=20),
        Figure("30 % late over in order", out_of_order / in_order, "x", at_most=2),
    ]


def _chunk(name: str, ids: np.ndarray, times: np.ndarray, values: np.ndarray) -> Chunk:
    components = {"v": ComponentColumn.of("double", values)}
    return Chunk.from_columns(name, "e", row_ids=ids, times={"t": times}, components=components)


def _rows_table(rows: int, entities: int, late_share: float) -> pa.Table:
    """One row a second and entity, by entity and arrival; a late row's time is up to an hour before its arrival."""
    rng = np.random.default_rng(SEED)
    per_entity = rows // entities
    codes = np.repeat(np.arange(entities, dtype=np.int32), per_entity)
    arrival = np.tile(np.arange(per_entity) * SECOND_US, entities)
    delay = rng.integers(0, HOUR_US, len(arrival)) * (rng.random(len(arrival)) < late_share)
    names = pa.array([f"e{number:04d}" for number in range(entities)])
    return pa.table(
        {
            "entity": names.take(pa.array(codes)),
            "id": np.arange(len(arrival)),
            "t": np.maximum(arrival - delay, 0),
            "v": rng.random(len(arrival)),
        }
    )


def _chunked(table: pa.Table) -> tuple[pa.Table, float]:
    """The table's chunks, and rows per second; the first, small call compiles."""
    cut: dict[str, Any] = {"entity": "entity", "row_id": "id", "timelines": ["t"], "components": ["v"]}
    chunk_columns(table.slice(0, 100), **cut, config=LANDING)
    began = time.perf_counter()
    chunks = chunk_columns(table, **cut, config=LANDING)
    return chunks, table.num_rows / (time.perf_counter() - began)


def _store(chunks: pa.Table) -> ChunkStore:
    store = ChunkStore(StoreConfig.off())
    for chunk in chunks_from_table(chunks, timelines=["t"], components=["v"]):
        store.insert(chunk)
    return store


def _filtered(table: pa.Table, entity: str, lo: int, hi: int) -> pa.Table:
    in_range = pc.and_(pc.greater_equal(table["t"], lo), pc.less_equal(table["t"], hi))
    return table.filter(pc.and_(pc.equal(table["entity"], entity), in_range))


def _few(names: list[str], points: list[int]) -> list[tuple[str, int]]:
    return list(zip(names, points, strict=True))[:9]


def _median_us(queries: list[Callable[[], object]]) -> float:
    spent = []
    for query in queries:
        began = time.perf_counter()
        query()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1e6


if __name__ == "__main__":
    sys.exit(main())
