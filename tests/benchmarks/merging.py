"""What merging makes of daily drops of flights: chunks, bytes, files, and the time of queries before and after.

`python tests/benchmarks/merging.py [--days N]` lands N days one by one, seals and publishes them together, and asks the
same questions before and after the merge of everything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path[0:1] = [str(Path(__file__).resolve().parents[2])]

from spark_jobs.storage.delta.file_summaries import logged_files  # noqa: E402
from tests.installations import CHECKOUT, Installation  # noqa: E402

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
QUERIES = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.days)
        return
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder))
        last = FIRST + timedelta(days=options.days - 1)
        installation.json("prepare", "--from", "2013-01-01", "--to", f"{last:%Y-%m-%d}")
        environment = {**installation.environment, "TIDEMARK_SPARK": "classic", "PYTHONPATH": str(CHECKOUT)}
        command = [sys.executable, __file__, "--inside", "--days", str(options.days)]
        subprocess.run(command, env=environment, check=True)


def measure(days: int) -> None:
    from spark_jobs.config import load_settings
    from spark_jobs.jobs.request import Request
    from spark_jobs.jobs.stage import run_stage
    from spark_jobs.jobs.visits import merge
    from spark_jobs.model import STAGES
    from spark_jobs.session import open_session
    from spark_jobs.sources import find_source

    settings = load_settings()
    source = find_source(settings.sources, "flights")
    spark = open_session(settings, "merging")

    def run(stage: str, first: int, last: int) -> None:
        lo, hi = FIRST + timedelta(days=first), FIRST + timedelta(days=last)
        given: dict[str, Any] = {"source": "flights", "lo": lo, "hi": hi, "run_id": f"days-{first}-{last}"}
        run_stage(stage, **given, settings=settings, spark=spark, request=Request(pass_gap=True))

    def land_days() -> None:
        for day in range(days):
            run("land", day, day + 1)

    seconds = timed(land_days)
    print(f"{days} landings: {seconds:.0f} s, {seconds / days:.2f} s each", flush=True)
    for stage in STAGES:
        run(stage, 0, days)
    report(spark, source, "before")
    done: list[Any] = []
    print(f"merge: {timed(lambda: done.append(merge(settings, source, spark, vacuum=False))):.1f} s, {done[0]}")
    report(spark, source, "after")
    spark.stop()


def report(spark: Any, source: Any, when: str) -> None:
    from spark_jobs.reads.source_chunks import SourceChunks
    from spark_jobs.storage.descriptions.tables import chunks
    from spark_jobs.storage.descriptions.times import micros
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    files = logged_files(SparkLake(spark).folder.handle(chunks(source)), "landing")
    n_chunks, size = sum(file.rows for file in files), sum(file.size for file in files)
    rows = spark.sql("SELECT sum(rows) FROM bronze.flights_chunks").first()[0]
    landed_rows = SourceChunks(SparkLake(spark), source)
    entities = [row.entity for row in spark.sql("SELECT DISTINCT entity FROM bronze.flights_chunks LIMIT 15").collect()]
    lo, hi = (micros(FIRST + timedelta(days=day)) for day in (3, 33))
    ranges = [timed(partial(landed_rows.range_query, e, "departed", lo, hi, ["dep_delay"])) for e in entities[:QUERIES]]
    latest = [timed(partial(landed_rows.latest_at, e, "departed", hi, ["dep_delay"])) for e in entities[:QUERIES]]
    told = {
        "rows": rows, "chunks": n_chunks, "rows a chunk": round(rows / n_chunks, 2), "files": len(files),
        "bytes": size, "bytes a row": round(size / rows, 1), "range ms": round(1e3 * statistics.median(ranges)),
        "latest-at ms": round(1e3 * statistics.median(latest)), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(f"{when}: {json.dumps(told)}", flush=True)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
