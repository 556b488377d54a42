"""Memory of a worker that restates the sessions of one hot key, by the number of its rows; without Spark.

    python tests/benchmarks/restater.py [ROWS …]

Every number of rows is taken by a process of its own, in batches of 10,000 in no order, with the source's default of
100 MiB; told are its greatest resident memory before the first row and at the end, and what the worker says of itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.spark.windows import METRICS
from spark_jobs.restatement.restater import Restater, WorkerReport, fill_columns, row_schema
from spark_jobs.sources import parse_source

START_US = 1_704_067_200_000_000
BATCH = 10_000
SOURCE = {
    "source": "meters",
    "start": "2024-01-01",
    "landing": {"path": "meters/{date}/*", "format": "ndjson"},
    "columns": {"meter": "string", "at": "timestamp", "v": "float"},
    "timelines": ["at"],
    "event_time": "at",
    "entity": "meter",
    "windows": {
        "found": {
            "kind": "session",
            "gap": "1 s",
            "key": "meter",
            "aggregates": {"n": "count()", "mean": "avg(v)", "high": "max(v)"},
        }
    },
}


def tables(definition: Definition, rows: int) -> Iterator[tuple[pa.Table, None]]:
    """Rows of one key, a hundred a session."""
    schema = row_schema(definition)
    same = {"lo": START_US, "diff": 1, "touched": True, "k_meter": "a"}
    for begin in range(0, rows, BATCH):
        number = np.arange(begin, begin + BATCH) * 7919 % rows
        time_us = START_US + number // 100 * 10_000_000 + number % 100 * 1000
        columns = {"time": time_us, "row_id": number, "v_v": number * 0.5}
        columns |= {name: np.full(BATCH, value) for name, value in same.items()}
        yield fill_columns(pa.table({name: pa.array(values) for name, values in columns.items()}), schema), None


def restated(rows: int) -> str:
    """One line of the result."""
    definition = Definition(parse_source(yaml.safe_dump(SOURCE), file="meters.yml"), "found")
    worker = Restater(definition, known_from_us=1, everything=False)
    list(worker(iter([next(tables(definition, rows))]), WorkerReport()))
    before = _greatest_mib()
    began, outcome = time.process_time(), WorkerReport()
    windows = sum(table.num_rows for table in worker(tables(definition, rows), outcome))
    seconds = time.process_time() - began
    used = {name: getattr(outcome.memory, name) for name in METRICS}
    return (
        f"{rows:>11,} rows {windows:>9,} sessions {seconds:6.1f} s {before:5.0f} to {_greatest_mib():5.0f} MiB  {used}"
    )


def _greatest_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Take the numbers of rows in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="*", default=[1_000_000, 2_000_000, 4_000_000, 8_000_000])
    for rows in parser.parse_args().rows:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(restated, (rows,)))


if __name__ == "__main__":
    main()
