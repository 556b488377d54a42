"""Audit, backup and restore of a year of flights and weather: wall seconds of `tidemark audit`, `backup`, of a second
set, `verify`, `restore`, and the `up` after it.

`python tests/benchmarks/restoring.py` makes an installation of its own, runs the year, adds a set and another one, and
restores into an empty home, whose tables are then compared with the first home's by their rows. The aims are an audit
and a restore of 60 s. Nothing else restores these sets, so there is no peer; the floor is `cp -r` of the lake's folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.benchmarks.commands import seconds
from tests.installations import Installation

COUNTS = (
    "SELECT (SELECT count(*) FROM bronze.flights_deltas), (SELECT count(*) FROM silver.departure_delays),"
    " (SELECT count(*) FROM silver.rotations), (SELECT sum(flights) FROM gold.flights),"
    " (SELECT sum(departures) FROM marts.airport_delays), (SELECT count(*) FROM marts.aircraft_rotations)"
)


def copied(folder: Path, to: Path) -> float:
    """Wall time of a plain copy."""
    begun = time.perf_counter()
    shutil.copytree(folder, to)
    return time.perf_counter() - begun


def line(name: str, took: float, aim: str = "") -> None:
    """One row of the table."""
    print(f"| {name} | {took:.2f} | {aim} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", default="2013-12-31", help="the last day")
    until = parser.parse_args().until
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "backup"
        first, second = (Installation(Path(folder) / name) for name in ("home", "restored"))
        second.environment["TIDEMARK_SOURCES"] = str(Path(folder) / "restored-sources")
        with first.serving("--no-airflow"):
            first.json("prepare", "--from", "2013-01-01", "--to", until, wait_s=900)
            print("| what | seconds | aim |\n| --- | ---: | ---: |")
            for source in ("flights", "weather"):
                run = ("run", source, "--from", "2013-01-01", "--to", until)
                line(f"run {source} up to {until}", seconds(first, run))
                line(f"audit {source}: all must hold", seconds(first, ("audit", source)), "60")
            line("backup, the first set", seconds(first, ("backup", str(place))))
            line("backup, a second set", seconds(first, ("backup", str(place))))
            line("verify", seconds(first, ("verify", str(place))))
            wanted = first.sql(COUNTS)
        line("restore", seconds(second, ("restore", str(place))), "60")
        line("floor: a plain copy of the lake", copied(Path(first.settings.lake), Path(folder) / "copy"))
        size = sum(file.stat().st_size for file in Path(first.settings.lake).rglob("*") if file.is_file())
        begun = time.monotonic()
        with second.serving("--no-airflow"):
            line("up: the server, catalog and views", time.monotonic() - begun)
            assert second.sql(COUNTS) == wanted
    print(f"\n{size / 2**20:.0f} MiB of lake, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
