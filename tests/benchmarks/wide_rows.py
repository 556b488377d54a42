"""Memory of a run whose rows are wide: the most that the JVM, one of its Python workers and the command hold.

    python tests/benchmarks/wide_rows.py [--rows 700000] [--text 1024] [--files 1] [--format csv]

A drop of `--rows` rows with a text of `--text` bytes each goes through all stages, as a user runs it, behind a drop of
1,000 rows that warms up. Windows keep texts (the last of a session, the greatest of an hour) beside counts and sums.
What follows from the width of rows shows when `--text` and `--rows` change while their product stays.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.benchmarks.pipeline import FIRST, HOUR_US, STAGES, command_server, lake_server, run_day
from tests.installations import Installation

SOURCE = """
source: large
start: 2024-03-01
every: 1 day
landing: {{path: "large/{{date}}/*", format: {format}}}
columns: {{id: string, sensor: string, at: timestamp, load: int, text: string}}
timelines: [at]
event_time: [at]
entity: sensor
delta_id: [id]
windows:
  visits:
    kind: session
    gap: 30 min
    key: sensor
    time: at
    aggregates: {{n: count(), total: sum(load), last_text: last(text)}}
    late: reemit
  hours:
    kind: tumbling
    size: 1 h
    key: sensor
    time: at
    aggregates: {{n: count(), total: sum(load), greatest: max(text)}}
    late: reemit
state: {{mode: add, datatype: int64, components: {{rows: 1, load: load}}}}
dag: {{schedule: manual}}
"""


def write_day(landing: Path, day: date, rows: int, options: argparse.Namespace) -> int:
    """The files of one drop, the same for the same parameters; their bytes."""
    chance = np.random.default_rng(day.toordinal())
    folder = landing / "large" / day.isoformat()
    folder.mkdir(parents=True)
    lo = int(np.datetime64(day, "us").astype(np.int64))
    for part in range(options.files):
        n = rows // options.files
        letters = chance.integers(97, 123, n * options.text, np.uint8).tobytes()
        offsets = np.arange(n + 1, dtype=np.int32) * options.text
        columns = {
            "id": pa.array([f"{day:%m%d}-{part}-{i:07}" for i in range(n)]),
            "sensor": pa.array([f"sensor-{i:06}" for i in chance.integers(0, max(rows // 40, 1), n)]),
            "at": pa.array(lo + chance.integers(0, 24 * HOUR_US, n), pa.timestamp("us", "UTC")),
            "load": pa.array(chance.integers(0, 1000, n)),
            "text": pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters)),
        }
        if options.format == "parquet":
            pq.write_table(pa.table(columns), folder / f"{part}.parquet")
        else:
            columns["at"] = pa.compute.strftime(columns["at"], "%Y-%m-%dT%H:%M:%SZ")
            pa.csv.write_csv(pa.table(columns), folder / f"{part}.csv")
    return sum(file.stat().st_size for file in folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--text", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wide-rows-") as folder:
        home = Path(folder) / "home"
        (home / "sources").mkdir(parents=True)
        (home / "sources" / "large.yml").write_text(SOURCE.format(format=options.format))
        installation = Installation(home, sources=home / "sources")
        days = [FIRST, FIRST + timedelta(days=1)]
        sizes = [
            write_day(installation.settings.landing_folder, day, rows, options)
            for day, rows in zip(days, (1000, options.rows), strict=True)
        ]
        with installation.serving("--no-airflow"):
            jvm, forking = lake_server(installation), command_server(installation)
            *_, run = [run_day(installation, jvm, forking, day) for day in days]
            windows = installation.sql("SELECT sum(n) AS n FROM silver.visits")
    print(f"{options.rows:,} rows of {options.text} bytes of text, {options.files} {options.format} file(s),", end=" ")
    print(f"{sizes[-1] / 2**20:.0f} MiB; heap {installation.settings.heap}, {os.cpu_count()} cores, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}; {psutil.virtual_memory().total / 2**30:.0f} GiB; rows in sessions {windows}")
    print(f"| {' | '.join(STAGES)} | JVM MiB | worker MiB | command MiB |\n|{' ---: |' * 8}")
    cells = [f"{run.seconds[stage]:.1f}" for stage in STAGES]
    cells += [f"{run.mib.get(who, 0.0):.0f}" for who in ("JVM", "worker", "command")]
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
