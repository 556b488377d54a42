"""Seconds and memory that a page of the portal takes, for a year of drops and 300 sources.

`python -m tests.benchmarks.portal [--drops 100] [--sources 300] [--home DIR]` runs a small source drop by drop on a
lake of files, without a server. The other sources have its rows in the tables that sources share, again and again until
a year is full; they have no tables of windows. A page is made first with an empty memory, then ten times (the median
counts), then once after a run of one source, which is one new file in each table. Pages are made in a
process of their own; "most MB" is the most memory that it had in use up to the first time of the page. With `--home` a
lake that an earlier call made is used again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from spark_jobs.config import Settings
from spark_jobs.jobs.request import Request
from spark_jobs.model import STAGES
from spark_jobs.portal.pages import Portal
from tests.jobs.harness import DAY, SOURCE, START, Reading, run_one, write_lines, write_source
from tests.support.file_session import FileSession

SHARED = (
    *("bronze/files", "bronze/quarantine_history", "bronze/duplicates_history", "trace/frontiers", "trace/published"),
    *("quality/results", "quality/runs", "quality/metrics", "silver/late_history"),
)
"""The tables that sources share and of which pages read the rows of a source."""
NIGHT = 24 * 60


def described(name: str) -> str:
    """The source file of a source; sources share no name of a window."""
    text = SOURCE.replace("source: meters", f"source: {name}")
    if name != "meters":
        text = text.replace("hourly:", f"{name}_hourly:").replace("shifts:", f"{name}_shifts:")
    number = int(name.rpartition("_")[2]) if "_" in name else 0
    return f"{text}dag: {{schedule: manual, owner: team-{number % 7}, tags: [area-{number % 5}]}}\n"


def land(settings: Settings, session: FileSession, drop: int) -> None:
    """Run one drop: 40 rows, a tenth of them late, and now and then records that cannot be read."""
    chance = random.Random(drop)
    readings = []
    for number in range(40):
        minute = drop * NIGHT + number * NIGHT // 40
        late = chance.randrange(12 * 60) if drop and number % 10 == 0 else 0
        readings.append(Reading(drop, max(minute - late, 0), f"m{number % 10}", chance.randrange(100)))
    lines = [reading.line() for reading in readings] + (['{"id": 1'] if drop % 30 == 5 else [])
    write_lines(settings, drop, lines)
    lo = START + drop * DAY
    for stage in STAGES:
        run_id = f"run-{drop:04d}"
        run_one(
            session, stage, source="meters", lo=lo, hi=lo + DAY, run_id=run_id, settings=settings, request=Request()
        )


def copy_sources(settings: Settings, sources: int, drops: int) -> None:
    """Give the shared tables a year of the first source's rows under other names, a file for each source and table."""
    turns = -(-365 // drops)
    for path in SHARED:
        place = f"{settings.lake}/{path.replace('/', '.db/')}"
        table = DeltaTable(place)
        table.optimize.compact()
        rows = table.to_pyarrow_table(filters=pc.field("source") == "meters")
        first = turns - 1 if path.endswith("published") else 0
        year = pa.concat_tables([_later(rows, turn, drops) for turn in range(first, turns)]).combine_chunks()
        at = year.schema.get_field_index("source")
        for number in range(1, sources, 25):
            names = [f"meters_{n}" for n in range(number, min(number + 25, sources))]
            copies = [year.set_column(at, "source", pa.array([name] * len(year), pa.string())) for name in names]
            write_deltalake(place, pa.concat_tables(copies).cast(rows.schema), mode="append")
        print(f"{path}: {len(year):,} rows a source", flush=True)
    for number in range(1, sources):
        write_source(settings, described(f"meters_{number}"), f"meters_{number}")


def _later(rows: pa.Table, turn: int, drops: int) -> pa.Table:
    """The rows as runs of later drops would have left them, `turn` times the number of drops later."""
    shift = pa.scalar(turn * drops * DAY, pa.duration("us"))
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if pa.types.is_timestamp(field.type):
            column = pc.add(column, shift)
        elif field.name == "seq_no":
            column = pc.add(column, turn * drops)
        elif field.name in ("token", "landing"):
            column = pc.add(column, turn * 1_000_000)
        elif field.name == "row_id":
            column = pc.add(column, turn << 50)
        elif field.name == "settled":
            column = pc.add(column, 1 << 40)
        elif field.name == "run_id":
            column = pc.binary_join_element_wise(column, f"{turn}", "-")
        rows = rows.set_column(place, field, column.cast(field.type))
    return rows


def seconds(portal: Portal, page: str) -> tuple[float, float]:
    """Seconds of a page, and seconds of a processor: on a busy machine the latter can be compared."""
    begun, of_processor = time.perf_counter(), time.process_time()
    portal.page(page)
    return time.perf_counter() - begun, time.process_time() - of_processor


def make(home: Path, drops: int, sources: int) -> Settings:
    """An installation with a lake of files."""
    settings = write_source(Settings(home=home, landing=home / "landing"), described("meters"))
    session, begun = FileSession(Path(settings.lake)), time.monotonic()
    for drop in range(drops):
        land(settings, session, drop)
        if drop % 50 == 49:
            print(f"{drop + 1} drops after {time.monotonic() - begun:.0f} s", flush=True)
    copy_sources(settings, sources, drops)
    session.close()
    return settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drops", type=int, default=100)
    parser.add_argument("--sources", type=int, default=300)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = asked.home or Path(folder)
        is_there = (home / "sources").is_dir()
        settings = Settings(home=home, landing=home / "landing", sources=home / "sources")
        settings = settings if is_there else make(home, asked.drops, asked.sources)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            process.submit(measure, settings).result()


def measure(settings: Settings) -> None:
    """Print the table, and the seconds of the first page after a run of one source."""
    pages = [f"{page}.html" for page in ("index", "sources/meters", "runs/meters/run-0005", "quarantine/meters")]
    pages += ["sources/meters_1.html", "late/meters.html", "why/meters/meters/m1.html"]
    portal = Portal(settings, is_live=True)
    print("| page | bytes | first, s | of a processor | most MB | again, s | of a processor |")
    print("| --- |" + " ---: |" * 6)
    for page in pages:
        first, memory = seconds(portal, page), most_megabytes()
        again = [statistics.median(each) for each in zip(*(seconds(portal, page) for _ in range(10)), strict=True)]
        size, times = len(portal.page(page).encode()), [f"{each:.3f}" for each in (*first, *again)]
        print(f"| {page} | {size:,} | {times[0]} | {times[1]} | {memory:,} | {times[2]} | {times[3]} |", flush=True)
    session = FileSession(Path(settings.lake))
    land(settings, session, max(portal.facts(portal.sources()["meters"]).drops) + 1)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    whole, of_processor = seconds(portal, "index.html")
    print(f"index.html after a run of one source: {whole:.2f} s, {of_processor:.2f} s of a processor", flush=True)


def most_megabytes() -> int:
    """The most memory that this process has had in use so far, by Linux: that of a parent process does not count."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) // 1024


if __name__ == "__main__":
    main()
