"""A large day through the whole pipeline, beside DuckDB making the same tables from the same files.

    python tests/benchmarks/pipeline.py [--rows 2000000] [--days 2] [--heap 3g] [--keep FOLDER] [--no-plot]

A day is `--rows` rows in four Parquet files (id, sensor, site, at, value, load): 25 sensors to 1,000 rows and one site
to 1,000, 5 % of the rows up to 6 h late, that is, of the day before the drop's. The source has sliding windows of 10
minutes per site (count, avg, max), sessions with a gap of 30 minutes per sensor (count, sum), tumbling windows of an
hour per site (count, sum, the quantile 0.95) and additive state per sensor. The product runs as a user runs it: an
installation of its own in a temporary folder, `tidemark up`, one `tidemark run` a day; a day of 1,000 rows goes first,
so that what is measured has its code compiled.

DuckDB makes, of each day's files alone, the tables of that day: windows, sessions, states, as Parquet. At the end the
tables of all days are compared: rows, counts and sums. Processor time is that of the JVM, its Python workers and the
command together; memory the most of the JVM, of one Python worker, and of the command. A table is printed, a plot
written to `benchmarks-out/pipeline.png`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.server.state import read_state
from tests.benchmarks.engine.measuring import OUT, Rows, keep, kept
from tests.installations import Installation

FIRST = date(2024, 3, 1)
STAGES = ("land", "seal", "window", "compact", "publish")
AIM = 3.0
"""Seconds of the second day over DuckDB's."""
HOUR_US = 3_600_000_000
LATE_SHARE, LATE_US = 0.05, 6 * HOUR_US
FILES = 4
THREADS = 2

SOURCE = """
source: large
description: Measurements of many sensors.
start: 2024-03-01
every: 1 day
landing:
  path: large/{date}/*
  format: parquet
columns:
  id: string
  sensor: string
  site: string
  at: timestamp
  value: float
  load: int
timelines: [at]
event_time: [at]
entity: sensor
delta_id: [id]
windows:
  near:
    kind: sliding
    size: 10 min
    key: site
    time: at
    aggregates: {n: count(), mean: avg(value), high: max(value)}
    late: reemit
  visits:
    kind: session
    gap: 30 min
    key: sensor
    time: at
    aggregates: {n: count(), total: sum(load)}
    late: reemit
  hours:
    kind: tumbling
    size: 1 h
    key: site
    time: at
    aggregates: {n: count(), total: sum(load), most: "approx_quantile(value, 0.95)"}
    late: reemit
state:
  mode: add
  datatype: int64
  components: {rows: 1, load: load}
dag:
  schedule: manual
"""

_SLIDING = """
WITH instants AS (SELECT site, "at", count(*) n, sum(value) total, max(value) high FROM {rows} GROUP BY site, "at"),
lefts AS (
    SELECT site, "at" - INTERVAL 10 MINUTE AS window_start, "at" AS window_end,
        sum(n) OVER w n, sum(total) OVER w total, max(high) OVER w high
    FROM instants WINDOW w AS (PARTITION BY site ORDER BY "at"
        RANGE BETWEEN INTERVAL 10 MINUTE PRECEDING AND CURRENT ROW)),
rights AS (
    SELECT site, "at" + INTERVAL 1 MICROSECOND AS window_start,
        "at" + INTERVAL 1 MICROSECOND + INTERVAL 10 MINUTE AS window_end,
        sum(n) OVER w n, sum(total) OVER w total, max(high) OVER w high
    FROM instants WINDOW w AS (PARTITION BY site ORDER BY "at"
        RANGE BETWEEN INTERVAL 1 MICROSECOND FOLLOWING AND INTERVAL 600000001 MICROSECOND FOLLOWING)),
both_ways AS (
    SELECT * FROM lefts UNION ALL
    SELECT rights.* FROM rights ANTI JOIN lefts ON rights.site = lefts.site AND rights.window_start = lefts.window_start
    WHERE rights.n IS NOT NULL)
SELECT site, window_start, window_end, n::BIGINT n, total / n AS mean, high FROM both_ways
"""

_SESSIONS = """
WITH marked AS (
    SELECT sensor, "at", load, coalesce("at" - lag("at") OVER w > INTERVAL 30 MINUTE, true) AS begins
    FROM {rows} WINDOW w AS (PARTITION BY sensor ORDER BY "at")),
numbered AS (SELECT *, sum(begins::INT) OVER (PARTITION BY sensor ORDER BY "at") AS session FROM marked)
SELECT sensor, min("at") window_start, max("at") window_end, count(*) n, sum(load)::BIGINT total
FROM numbered GROUP BY sensor, session
"""

_TUMBLING = """
SELECT site, time_bucket(INTERVAL 1 HOUR, "at") AS window_start, window_start + INTERVAL 1 HOUR AS window_end,
    count(*) n, sum(load)::BIGINT total, approx_quantile(value, 0.95) most
FROM {rows} GROUP BY site, window_start
"""

_STATES = 'SELECT sensor, count(*) AS n, sum(load)::BIGINT AS load, max("at") AS "at" FROM {rows} GROUP BY sensor'

TABLES = {"near": _SLIDING, "visits": _SESSIONS, "hours": _TUMBLING, "states": _STATES}

_SUMS = {
    "near": "count(*), sum(n)::BIGINT, sum(epoch_us(window_start))::VARCHAR, round(sum(mean), 1), round(sum(high), 1)",
    "visits": "count(*), sum(n)::BIGINT, sum(epoch_us(window_start))::VARCHAR, sum(epoch_us(window_end))::VARCHAR,"
    " sum(total)::BIGINT",
    "hours": "count(*), sum(n)::BIGINT, sum(epoch_us(window_start))::VARCHAR, sum(total)::BIGINT",
    "states": "count(*), sum(n)::BIGINT, sum(load)::BIGINT",
}
"""What is compared of a table; sums of floats to a digit that the order of adding does not reach."""

_OURS = {
    "near": "SELECT count(*), sum(n), CAST(sum(CAST(unix_micros(window_start) AS DECIMAL(38, 0))) AS STRING),"
    " round(sum(mean), 1), round(sum(high), 1) FROM silver.near",
    "visits": "SELECT count(*), sum(n), CAST(sum(CAST(unix_micros(window_start) AS DECIMAL(38, 0))) AS STRING),"
    " CAST(sum(CAST(unix_micros(window_end) AS DECIMAL(38, 0))) AS STRING), sum(total) FROM silver.visits",
    "hours": "SELECT count(*), sum(n), CAST(sum(CAST(unix_micros(window_start) AS DECIMAL(38, 0))) AS STRING),"
    " sum(total) FROM silver.hours",
    "states": "SELECT count(*), sum(ints[0]), sum(ints[1]) FROM gold.state WHERE source = 'large'",
}


@dataclass
class Run:
    """What one day took: seconds by stage, processor seconds by who spent them, the most MiB of a process."""

    seconds: dict[str, float]
    gates: dict[str, float]
    processor: dict[str, float] = field(default_factory=dict)
    mib: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())


def write_day(landing: Path, day: date, rows: int, seed: int) -> None:
    """The files of one drop, the same for the same parameters."""
    chance = np.random.default_rng(seed)
    sensors, sites = max(rows // 40, 1), max(rows // 1000, 1)
    folder = landing / "large" / day.isoformat()
    folder.mkdir(parents=True)
    lo = int(np.datetime64(day, "us").astype(np.int64))
    for part in range(FILES):
        n = rows * (part + 1) // FILES - rows * part // FILES
        at = lo + chance.integers(0, 24 * HOUR_US, n)
        late = chance.random(n) < LATE_SHARE
        at[late] = lo - chance.integers(1, LATE_US, int(late.sum()))
        sensor = chance.integers(0, sensors, n)
        columns = {
            "id": pa.array([f"{day:%m%d}-{part}-{i:07}" for i in range(n)]),
            "sensor": pa.array(np.char.add("sensor-", np.char.zfill(sensor.astype(str), 6)).tolist()),
            "site": pa.array(np.char.add("site-", np.char.zfill((sensor % sites).astype(str), 5)).tolist()),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "value": pa.array(np.round(chance.normal(20, 5, n), 2)),
            "load": pa.array(chance.integers(0, 1000, n)),
        }
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet")


def duck(rows: str, out: Path) -> float:
    """Make the tables of some files with DuckDB; returns seconds."""
    out.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {THREADS}; SET preserve_insertion_order = false")
        connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        begun = time.perf_counter()
        connection.execute(f"CREATE TEMP VIEW landed AS SELECT * FROM read_parquet('{rows}')")
        for name, query in TABLES.items():
            connection.execute(f"COPY ({query.format(rows='landed')}) TO '{out}/{name}.parquet' (FORMAT parquet)")
        return time.perf_counter() - begun


def duck_sums(out: Path) -> dict[str, list[Any]]:
    """What is compared of the tables that `duck` made."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return {
            name: list(connection.execute(f"SELECT {sums} FROM '{out}/{name}.parquet'").fetchone() or ())
            for name, sums in _SUMS.items()
        }


@contextmanager
def watched(jvm: psutil.Process, forking: psutil.Process, run: Run) -> Iterator[None]:
    """Fill in the run's memory and processor time: of the JVM, of its Python workers and of the commands, which are
    forks of `forking`."""
    over, spent = threading.Event(), dict[int, float]()

    def times(process: psutil.Process) -> float:
        found = process.cpu_times()
        return float(found.user + found.system)

    def watch() -> None:
        while not over.wait(0.1):
            try:
                run.mib["JVM"] = max(run.mib.get("JVM", 0.0), jvm.memory_info().rss / 2**20)
                workers, commands = jvm.children(recursive=True), forking.children()
            except psutil.Error:
                continue
            for process in commands:
                with suppress(psutil.Error):
                    own = process.memory_full_info().uss / 2**20
                    run.mib["command"] = max(run.mib.get("command", 0.0), own)
            for process in workers:
                try:
                    spent[process.pid] = times(process)
                    own = process.memory_full_info().uss / 2**20
                except psutil.Error:
                    continue
                run.mib["worker"] = max(run.mib.get("worker", 0.0), own)

    def of_children(process: psutil.Process) -> float:
        ended = process.cpu_times()
        return float(ended.children_user + ended.children_system)

    before = {process.pid: times(process) for process in jvm.children(recursive=True)}
    of_jvm, of_commands = times(jvm), of_children(forking)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        run.processor["JVM"] = times(jvm) - of_jvm
        run.processor["workers"] = sum(seconds - before.get(pid, 0.0) for pid, seconds in spent.items())
        run.processor["command"] = of_children(forking) - of_commands


def run_day(installation: Installation, jvm: psutil.Process, forking: psutil.Process, day: date) -> Run:
    """One `tidemark run`."""
    run = Run({}, {})
    with watched(jvm, forking, run):
        told = installation.json("run", "large", "--from", day.isoformat(), "--to", day.isoformat(), wait_s=7200)
    run.seconds = {stage["stage"]: stage["seconds"] for stage in told["stages"]}
    run.gates = {stage["stage"]: stage.get("gate_seconds", 0.0) for stage in told["stages"]}
    return run


def lake_server(installation: Installation) -> psutil.Process:
    """The JVM of the installation's lake server."""
    state = read_state(installation.settings)
    assert state is not None, "`tidemark up` has written its state"
    tree = psutil.Process(state.pid).children(recursive=True)
    return max((p for p in tree if "java" in p.name()), key=lambda p: p.memory_info().rss)


def command_server(installation: Installation) -> psutil.Process:
    """The process that forks the installation's commands."""
    state = read_state(installation.settings)
    part = state.part("commands") if state else None
    assert part is not None, "`tidemark up` keeps a command server"
    assert part.pid is not None
    return psutil.Process(part.pid)


def measure(folder: Path, rows: int, days: int, heap: str) -> tuple[list[Run], list[float]]:
    """The days' runs, and DuckDB's seconds for each; the first drop is a small one that warms up.

    Raises:
        AssertionError: the tables are not those that DuckDB makes.
    """
    installation = Installation(folder / "home")
    (folder / "sources").mkdir()
    (folder / "sources" / "large.yml").write_text(SOURCE)
    settings = installation.settings.model_copy(update={"heap": heap, "sources": folder / "sources"})
    installation.settings = settings
    installation.environment |= settings.environment()
    landing = settings.landing_folder
    drops = [FIRST + timedelta(days=n) for n in range(days + 1)]
    for n, day in enumerate(drops):
        write_day(landing, day, rows if n else 1000, seed=n)
    theirs = [duck(f"{landing}/large/{day}/*.parquet", folder / f"duck-{day}") for day in drops][1:]
    ours: list[Run] = []
    with installation.serving("--no-airflow"):
        jvm, forking = lake_server(installation), command_server(installation)
        print(f"JVM {jvm.pid} in {folder}", flush=True)
        for day in drops:
            ours.append(run_day(installation, jvm, forking, day))
            print(f"  {day}: {ours[-1].total:.1f} s {ours[-1].seconds}", flush=True)
        found = {name: list(installation.sql(query)[0].values()) for name, query in _OURS.items()}
    duck(f"{landing}/large/*/*.parquet", folder / "duck-all")
    wanted = duck_sums(folder / "duck-all")
    for name, sums in wanted.items():
        assert [str(value) for value in found[name]] == [str(value) for value in sums], (name, found[name], sums)
    return ours[1:], theirs


def report(rows: int, ours: list[Run], theirs: list[float]) -> Rows:
    """Print the table; its rows."""
    print(f"\n{rows:,} rows a day, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end\n")
    heads = [*STAGES, "all", "gates", "DuckDB", "ratio", "processor", "JVM MiB", "worker MiB", "command MiB"]
    print(f"| day | {' | '.join(heads)} |\n| --- {'| ---: ' * len(heads)}|")
    table: Rows = []
    for number, (run, peer) in enumerate(zip(ours, theirs, strict=True), 1):
        gates = sum(run.gates.values())
        cells = [f"{run.seconds[stage]:.1f}" for stage in STAGES]
        cells += [f"{run.total:.1f}", f"{gates:.1f} ({gates / run.total:.0%})", f"{peer:.2f}"]
        cells += [f"{run.total / peer:.1f}x", f"{sum(run.processor.values()):.0f}"]
        cells += [f"{run.mib.get(who, 0.0):.0f}" for who in ("JVM", "worker", "command")]
        print(f"| {number} | {' | '.join(cells)} |")
        table.append(
            {"rows": rows, "day": number, "seconds": run.seconds, "gates": run.gates, "duckdb": peer}
            | {"processor": run.processor, "mib": run.mib}
        )
    last = ours[-1].total / theirs[-1]
    print(f"\nday {len(ours)} over DuckDB {last:.1f}x (aim {AIM:.0f}x)")
    print("processor seconds:", [{who: round(s, 1) for who, s in run.processor.items()} for run in ours])
    return table


def plot() -> None:
    """Seconds by stage of each day that was measured, beside DuckDB's."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    table = sorted((row for rows in kept("pipeline").values() for row in rows), key=lambda r: (r["rows"], r["day"]))
    figure, axis = pyplot.subplots(figsize=(8, 1.5 + 0.5 * len(table)))
    names = [f"{row['rows'] / 1e6:g}M rows, day {row['day']}" for row in table]
    left = np.zeros(len(table))
    for stage, shade in zip(STAGES, ("#173a5e", "#2f6690", "#5b93bd", "#94bfdd", "#cfe3f1"), strict=True):
        seconds = np.array([row["seconds"][stage] for row in table])
        axis.barh(names, seconds, left=left, color=shade, label=stage, height=0.5)
        left += seconds
    peers = [row["duckdb"] for row in table]
    axis.plot(peers, names, "|", color="#c8442f", markersize=18, markeredgewidth=2, label="DuckDB")
    for name, end, peer in zip(names, left, peers, strict=True):
        axis.annotate(f" {end / peer:.1f}x", (end, name), va="center")
    axis.set(xlabel="seconds", xlim=(0, 1.1 * left.max()))
    axis.spines[["top", "right"]].set_visible(False)
    axis.invert_yaxis()
    axis.legend(frameon=False, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 1.2), fontsize=8)
    figure.tight_layout()
    figure.savefig(OUT / "pipeline.png", dpi=110)
    print(OUT / "pipeline.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--heap", default="3g")
    parser.add_argument("--keep", type=Path, help="where everything stays; by default it goes")
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="pipeline-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ours, theirs = measure(folder, options.rows, options.days, options.heap)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    keep("pipeline", str(options.rows), report(options.rows, ours, theirs))
    if not options.no_plot:
        plot()


if __name__ == "__main__":
    main()
