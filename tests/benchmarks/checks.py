"""What ten checks of a source file cost on a large drop: `python -m tests.benchmarks.checks [--rows N] [--days N]`.

Three sources read the same files: one without checks, one whose ten checks quarantine where records are read, one whose
ten checks Great Expectations judges on the rows that landed. Each day is a `tidemark run` of each source, in turn,
through the lake server of an installation of its own; the first day is not counted, since code is compiled then.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from spark_jobs.sources import load_source
from tests.benchmarks.commands import seconds
from tests.installations import CHECKOUT, Installation

AIM_PERCENT = 10
FLIGHTS = CHECKOUT / "dags" / "sources" / "flights.yml"
START = date(2013, 1, 1)
CHECKS = """
checks:
  delay: {{kind: between, column: dep_delay, min: -120, max: 2000, treatment: {0}}}
  distance: {{kind: between, column: distance, min: 1, max: 10000, treatment: {0}}}
  air: {{kind: between, column: air_time, min: 10, max: 1500, treatment: {0}}}
  hours: {{kind: between, column: hour, min: 0, max: 23, treatment: {0}}}
  origins: {{kind: in, column: origin, values: [EWR, JFK, LGA], treatment: {0}}}
  months: {{kind: in, column: month, values: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], treatment: {0}}}
  tails: {{kind: matches, column: tailnum, pattern: "N[0-9A-Z]+", treatment: {0}}}
  dests: {{kind: matches, column: dest, pattern: "[A-Z]{{3}}", treatment: {0}}}
  given: {{kind: not_null, column: carrier, treatment: {0}}}
  late: {{kind: lateness, max: 100 days, treatment: {0}}}
"""
SOURCES = {"plain": "", "sifted": CHECKS.format("quarantine"), "judged": CHECKS.format("fail")}
"""By name of the source: the checks in its file."""
ABOUT = {
    "plain": "no checks",
    "sifted": "ten checks that quarantine",
    "judged": "ten checks of Great Expectations",
}


def source_text(name: str) -> str:
    """The file of flights, under another name, with other names of windows."""
    text = FLIGHTS.read_text().replace("source: flights", f"source: {name}")
    for window in ("departure_delays", "rotations"):
        text = text.replace(f"  {window}:", f"  {name}_{window}:")
    return text + SOURCES[name]


def write_day(landing: Path, columns: list[str], day: int, n_rows: int) -> None:
    """A CSV file of flights with so many rows."""
    label = START + timedelta(days=day)
    minutes = np.random.default_rng(day).integers(0, 1440, n_rows)
    lines = [",".join(columns)]
    for i, minute in enumerate(minutes.tolist()):
        at = f"{label}T{minute // 60:02}:{minute % 60:02}:00Z"
        cells = ["2013", "1", "1", "900", "905", str(i % 90), "1100", "1105", "-3", "UA", str(i), f"N{i % 4000}AA"]
        cells += ["JFK", "HNL", "300", "2000", "9", "5", at, at, at, at]
        lines.append(",".join(cells))
    folder = landing / "flights" / f"{label}"
    folder.mkdir(parents=True)
    (folder / "flights.csv").write_text("\n".join(lines))


def run_days(installation: Installation, days: int) -> Mapping[str, list[float]]:
    """Seconds of each source's days after the first; the order of sources turns from day to day."""
    spent: dict[str, list[float]] = {name: [] for name in SOURCES}
    for day in range(days):
        label, names = f"{START + timedelta(days=day)}", [*SOURCES]
        for name in names[day % 3 :] + names[: day % 3]:
            spent[name].append(seconds(installation, ("run", name, "--from", label, "--to", label)))
    return {name: took[1:] for name, took in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--days", type=int, default=7)
    asked = parser.parse_args()
    columns = list(load_source(FLIGHTS).columns)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        installation = Installation(home)
        (home / "sources").mkdir(parents=True)
        for name in SOURCES:
            (home / "sources" / f"{name}.yml").write_text(source_text(name))
        installation.environment["TIDEMARK_SOURCES"] = str(home / "sources")
        for day in range(asked.days):
            write_day(installation.settings.landing_folder, columns, day, asked.rows)
        with installation.serving("--no-airflow"):
            spent = run_days(installation, asked.days)
    plain = statistics.median(spent["plain"])
    print(f"a day of {asked.rows} rows, median of {asked.days - 1}, {os.cpu_count()} cores\n")
    print(f"| checks | seconds | more than without (aim {AIM_PERCENT} %) |\n| --- | ---: | ---: |")
    for name, took in spent.items():
        more = statistics.median(100 * (s / p - 1) for s, p in zip(took, spent["plain"], strict=True))
        middle = statistics.median(took)
        print(f"| {ABOUT[name]} | {middle:.1f} | {100 * (middle / plain - 1):.1f} %, by pairs {more:.1f} % |")


if __name__ == "__main__":
    main()
