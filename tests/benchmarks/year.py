"""A simulated year of daily runs with retention and weekly maintenance: seconds a run, files, and bytes a row.

`python tests/benchmarks/year.py [--days N] [--rows N]` makes an installation without Airflow in a temporary folder,
runs a small source day after day through the lake server, and prints a line for every 28 days. What is compared is the
median of the last seven runs, each without its maintenance; files are counted as they then are.

Simulated days take seconds, so what goes by a clock is done, or counted, otherwise: files that are out of use go with
the next maintenance, not a week later, and files of Delta's logs, which Delta keeps for 30 days, are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from datetime import date, datetime, time, timedelta
from pathlib import Path

import psutil

from tests.installations import Installation

AIM = 1.2
"""Of the last day, in times of day 30: seconds a run, and files."""
START = date(2024, 1, 1)
WEEK, SHOWN = 7, 28
AFTER = 2
"""Days after a maintenance on which figures are printed: each day until the next one adds files."""
METERS = """
source: meters
start: 2024-01-01
every: 1 day
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, load: int}
timelines: {taken: at}
event_time: taken
entity: meter
delta_id: id
windows:
  hourly:
    kind: tumbling
    size: 1 h
    key: meter
    time: taken
    aggregates: {n: count(), total: sum(load), high: max(load)}
    late: {policy: reemit, limit: 1 day}
state: {mode: add, datatype: int64, components: {readings: 1, load: load}}
retention: {since: 7 days, horizon: 14 days}
dag: {schedule: manual}
"""


MAINTAIN = """
from datetime import timedelta
from spark_jobs.cli.app import run
from spark_jobs.config import Settings
Settings.file_retention = property(lambda settings: timedelta())
raise SystemExit(run(["maintain"]))
"""


def write_day(landing: Path, day: int, rows: int) -> None:
    """A day's file: 50 meters, every twentieth row up to twelve hours late."""
    chance, folder = random.Random(day), landing / "meters" / f"{START + timedelta(days=day)}"
    folder.mkdir(parents=True)
    midnight, lines = datetime.combine(START + timedelta(days=day), time()), []
    for number in range(rows):
        late_s = chance.randrange(12 * 3600) if day and number % 20 == 0 else 0
        at = midnight + timedelta(seconds=number * 86400 // rows - late_s)
        row = {"id": f"{day}-{number}", "meter": f"m{number % 50}", "at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        lines.append(json.dumps(row | {"load": chance.randrange(100)}))
    (folder / "a.ndjson").write_text("\n".join(lines) + "\n")


def files_of(lake: Path) -> tuple[int, int, int, Counter[str]]:
    """How many files of data the lake has, and of logs; the bytes of data, and each table's files of data."""
    files = [path for path in lake.rglob("*") if path.is_file()]
    data = [path for path in files if "_delta_log" not in path.parts]
    of_table = Counter("/".join(path.relative_to(lake).parts[:2]) for path in data)
    return len(data), len(files) - len(data), sum(path.stat().st_size for path in data), of_table


def processor_seconds(home: Path) -> float:
    """Of all processes of the installation that live."""
    spent = 0.0
    for process in psutil.process_iter(["environ", "cpu_times"]):
        environment, times = process.info["environ"] or {}, process.info["cpu_times"]
        if environment.get("TIDEMARK_HOME") == str(home) and times is not None:
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=366)
    parser.add_argument("--rows", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        installation = Installation(home)
        (home / "sources").mkdir(parents=True)
        (home / "sources" / "meters.yml").write_text(METERS)
        installation.environment["TIDEMARK_SOURCES"] = str(home / "sources")
        with installation.serving("--no-airflow"):
            simulate(installation, asked.days, asked.rows)


def simulate(installation: Installation, days: int, rows: int) -> None:
    """Run the days, and print the curve and what became of day 30's figures."""
    settings, spent, curve = installation.settings, [], dict[int, tuple[float, int]]()
    print(f"{os.cpu_count()} cores; a source of {rows} rows a day, since 7 days, horizon 14 days, weekly maintenance")
    heads = f"{'files':>6} {'of logs':>8} {'MB':>7} {'bytes/row':>9}"
    print(f"{'day':>4} {'s a run':>8} {'cpu s':>6} {heads} {'load':>5}  most files in")
    before, last_cpu_day = 0.0, 0
    for day in range(days):
        write_day(settings.landing_folder, day, rows)
        label = f"{START + timedelta(days=day)}"
        told = installation.json("run", "meters", "--from", label, "--to", label)
        spent.append(sum(told["seconds"].values()))
        if day % WEEK == WEEK - 1:
            done = installation.run(sys.executable, "-c", MAINTAIN, timeout_s=1800)
            assert done.returncode == 0, done.stdout + done.stderr
        if (day + 1 > SHOWN and (day + 1) % SHOWN == AFTER) or day == days - 1:
            files, of_logs, size, of_table = files_of(Path(settings.lake))
            seconds, now = statistics.median(spent[-WEEK:]), processor_seconds(settings.home)
            cpu = (now - before) / (day + 1 - last_cpu_day)
            before, last_cpu_day = now, day + 1
            curve[day + 1] = (seconds, files)
            most = ", ".join(f"{name} {n}" for name, n in of_table.most_common(3))
            each = size / (rows * (day + 1))
            print(
                f"{day + 1:>4} {seconds:>8.1f} {cpu:>6.1f} {files:>6} {of_logs:>8} {size / 1e6:>7.1f} {each:>9.0f}"
                f" {os.getloadavg()[0]:>5.1f}  {most}",
                flush=True,
            )
    if len(curve) > 1:
        first, last = curve[min(curve)], curve[max(curve)]
        for name, was, now_ in zip(("seconds", "files"), first, last, strict=True):
            print(f"{name} of day {max(curve)} in times of day {min(curve)}: {now_ / was:.2f} (aim {AIM})")


if __name__ == "__main__":
    main()
