"""Fold sparse deltas in the kernel and in DuckDB, side by side: the last value per entity and dimension.

    python tests/benchmarks/engine/deltas.py [--rows 10000000] [--entities 100000] [--repeat 3]

Deltas assign 8 of 128 dimensions. Both sides start from the same columns in memory and end with columns in memory, on
one thread each by default. The answers are compared bit for bit. Ratios are of processor time, which other programs on
the same cores disturb less than wall time; both are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from spark_jobs.engine.deltas import Op, States
from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.fold import fold

DIMS, CHANGED = 128, 8

LAST_VALUES = """
SELECT entity, dimension, arg_max(value, position) AS value
FROM (
  SELECT entity, (event_time, row_id) AS position, unnest(indices) AS dimension, unnest(values) AS value FROM deltas
)
GROUP BY entity, dimension
"""

LAST_VALUES_BY_ROW_ID = """
SELECT entity, dimension, arg_max(value, row_id) AS value
FROM (SELECT entity, row_id, unnest(indices) AS dimension, unnest(values) AS value FROM deltas)
GROUP BY entity, dimension
"""
"""An easier question, which DuckDB answers faster: it may assume that row ids alone give the order."""


def sparse_deltas(rows: int, entities: int) -> DeltaBatch:
    """Deltas in order of arrival: times ascend, with one in twenty late by up to an hour."""
    random = np.random.default_rng(2013)
    late = np.where(random.random(rows) < 0.05, random.integers(0, 3_600_000_000, rows), 0)
    # an odd stride meets each of 128 dimensions at most once, so the indices of a row are distinct
    stride = random.integers(0, DIMS // 2, (rows, 1)) * 2 + 1
    indices = (random.integers(0, DIMS, (rows, 1)) + np.arange(CHANGED) * stride) % DIMS
    return DeltaBatch.from_columns(
        entity_count=entities,
        entity=random.integers(0, entities, rows),
        event_time=np.arange(rows, dtype=np.int64) * 1_000_000 - late,
        row_id=np.arange(rows),
        op=np.full(rows, Op.SPARSE, dtype=np.uint8),
        offsets=np.arange(rows + 1, dtype=np.int64) * CHANGED,
        indices=indices.ravel(),
        values=random.normal(size=rows * CHANGED),
        dtype=np.float64,
        dims=DIMS,
    )


def as_arrow(batch: DeltaBatch) -> pa.Table:
    """The same deltas as DuckDB reads them."""
    offsets = pa.array(batch.offsets, pa.int32())
    return pa.table(
        {
            "entity": batch.entity,
            "event_time": batch.event_time,
            "row_id": batch.row_id,
            "indices": pa.ListArray.from_arrays(offsets, pa.array(batch.indices)),
            "values": pa.ListArray.from_arrays(offsets, pa.array(batch.values)),
        }
    )


def compare(states: States, answer: pa.Table) -> None:
    """Fail unless both sides have the same value, bit for bit, for the same (entity, dimension)."""
    found = np.full(len(states) * DIMS, np.nan)
    found[answer["entity"].to_numpy() * DIMS + answer["dimension"].to_numpy()] = answer["value"].to_numpy()
    full = np.full(len(states) * DIMS, np.nan)
    full[np.repeat(states.dims > 0, DIMS)] = np.where(states.seen, states.values, np.nan)
    if found.tobytes() != full.tobytes():
        raise SystemExit("the kernel and DuckDB give different states")


@dataclass(frozen=True)
class Measured:
    """Least processor and wall time of several calls, and the last answer."""

    cpu_s: float
    wall_s: float
    answer: Any


def best(call: Callable[[], object], repeat: int) -> Measured:
    cpu, wall = [], []
    for _ in range(repeat):
        begun = time.process_time(), time.perf_counter()
        answer = call()
        cpu.append(time.process_time() - begun[0])
        wall.append(time.perf_counter() - begun[1])
    return Measured(min(cpu), min(wall), answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--entities", type=int, default=None, help="default: a hundredth of the rows")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="DuckDB's threads; the kernel always uses one")
    options = parser.parse_args()
    batch = sparse_deltas(options.rows, options.entities or max(options.rows // 100, 1))
    fold(batch.take(np.arange(2)))  # compile outside the clock
    kernel = best(lambda: fold(batch), options.repeat)
    print(f"{'':<16} {'cpu s':>8} {'wall s':>8}   {options.rows:,} deltas, {batch.entity_count:,} entities")
    print(
        f"{'kernel':<16} {kernel.cpu_s:8.3f} {kernel.wall_s:8.3f}   {options.rows / kernel.cpu_s / 1e6:.2f} M deltas/s"
    )
    connection = duckdb.connect(config={"threads": options.threads})
    connection.register("deltas", as_arrow(batch))

    def table_of(query: str) -> pa.Table:
        return connection.sql(query).to_arrow_table()

    for label, query in (("duckdb", LAST_VALUES), ("duckdb, row ids", LAST_VALUES_BY_ROW_ID)):
        duck = best(partial(table_of, query), options.repeat)
        if query is LAST_VALUES:
            compare(kernel.answer.states, duck.answer)
        print(
            f"{label:<16} {duck.cpu_s:8.3f} {duck.wall_s:8.3f}   the kernel takes {kernel.cpu_s / duck.cpu_s:.3f} of it"
        )


if __name__ == "__main__":
    main()
