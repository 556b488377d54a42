"""The cost to a run of future-dated rows that wait in the trace: seconds of days with and without them, side by side.

`python -m tests.benchmarks.waiting [--waiting 10000000] [--rows 20000] [--days 5]` makes two lakes of files, without a
server. The first drop of one has `--waiting` rows whose event times lie up to twenty years ahead. Then both run the
same days, in turns. Seconds of a processor are printed beside the wall's: on a busy machine they can be compared.
The days' published rows must be equal.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from spark_jobs.config import Settings
from spark_jobs.jobs.request import Request
from spark_jobs.model import STAGES
from spark_jobs.storage.descriptions.times import micros
from tests.jobs.harness import DAY, SOURCE, START, run_one, write_source
from tests.support.file_session import FileSession

YEARS = 20
DESCRIBED = SOURCE.replace("format: ndjson", "format: csv")
METERS = 1000
PUBLISHED = (
    "SELECT meter, window_start, n, total, high FROM silver.hourly ORDER BY meter, window_start",
    "SELECT meter, window_start, window_end, n, total FROM silver.shifts ORDER BY meter, window_start",
    "SELECT meter, readings, load FROM gold.meters ORDER BY meter",
)


def write_rows(settings: Settings, drop: int, name: str, ids: NDArray[np.int64], offsets_s: NDArray[np.int64]) -> None:
    """A file of a drop with a row for each id; `offsets_s` are the event times in seconds since START."""
    times = pa.array(micros(START) + offsets_s * 1_000_000).cast(pa.timestamp("us", "UTC"))
    seen = pa.array(np.full(len(ids), micros(START + drop * DAY))).cast(pa.timestamp("us", "UTC"))
    columns = {"id": ids, "meter": ids % METERS, "at": times, "seen": seen, "load": ids % 100, "heat": ids % 7}
    path = settings.landing_folder / f"meters/{START + drop * DAY:%Y-%m-%d}/{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    pa_csv.write_csv(pa.table(columns), path)


def write_day(settings: Settings, drop: int, rows: int) -> None:
    """The ordinary rows of a drop: all of its day, but a twentieth of the day before."""
    chance = np.random.default_rng(drop)
    seconds = chance.integers(0, 86_400, rows) + drop * 86_400
    seconds[::20] -= min(drop, 1) * 43_200
    write_rows(settings, drop, "day", np.arange(rows) + drop * rows, seconds)


def write_ahead(settings: Settings, waiting: int, rows: int, days: int) -> None:
    """The rows of the first drop that no run of the benchmark makes due."""
    first = (days + 2) * 86_400
    seconds = np.random.default_rng(0).integers(first, YEARS * 365 * 86_400, waiting)
    write_rows(settings, 0, "ahead", np.arange(waiting) + rows * (days + 1), seconds)


def run_drop(settings: Settings, session: FileSession, drop: int) -> Iterator[tuple[str, float, float]]:
    """Run a drop: each stage, its seconds, and its seconds of a processor."""
    lo = START + drop * DAY
    for stage in STAGES:
        wall, processor = time.perf_counter(), time.process_time()
        hi, run_id = lo + timedelta(days=1), f"run-{drop}"
        run_one(session, stage, source="meters", lo=lo, hi=hi, run_id=run_id, settings=settings, request=Request())
        yield stage, time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lakes: dict[str, tuple[Settings, FileSession]] = {}
        for name in ("without", "waiting"):
            home = Path(folder) / name
            settings = write_source(Settings(home=home, landing=home / "landing"), DESCRIBED)
            for drop in range(asked.days + 1):
                write_day(settings, drop, asked.rows)
            lakes[name] = settings, FileSession(Path(settings.lake))
        write_ahead(lakes["waiting"][0], asked.waiting, asked.rows, asked.days)
        seconds: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for drop in range(asked.days + 1):
            for name, (settings, session) in lakes.items():
                for stage, wall, processor in run_drop(settings, session, drop):
                    seconds[name, stage].append((wall, processor))
        print(f"{asked.waiting:,} rows wait; medians of {asked.days} days of {asked.rows:,} rows; s (s of a processor)")
        print(f"{'':10}{'without':>18}{'waiting':>18}{'first drop':>18}")
        for stage in STAGES:
            days = {name: [*zip(*seconds[name, stage][1:], strict=True)] for name in lakes}
            medians = [tuple(map(statistics.median, days[name])) for name in lakes]
            cells = [*medians, seconds["waiting", stage][0]]
            print(f"{stage:10}" + "".join(f"{f'{wall:.2f} ({processor:.2f})':>18}" for wall, processor in cells))
        for query in PUBLISHED:
            one, other = (session.answer(query).to_arrow_table() for _, session in lakes.values())
            assert one.num_rows
            assert one.equals(other), f"expected the same rows in both lakes, found others: {query}"
        for _, session in lakes.values():
            session.close()


if __name__ == "__main__":
    main()
