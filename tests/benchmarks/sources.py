"""Ten sources of 1,000 rows each: how many times faster their runs are at once than one after the other.

`python tests/benchmarks/sources.py [--sources N] [--rows N]` makes an installation without Airflow in a temporary
folder. A first day of each source is run before anything is timed, so that code is compiled and tables are there; the
second day is run one after the other, the third at once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from tests.benchmarks.year import METERS, START, processor_seconds, write_day
from tests.installations import Installation

AIM = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000)
    asked = parser.parse_args()
    names = [f"meters_{number}" for number in range(asked.sources)]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        installation = Installation(home)
        (home / "sources").mkdir(parents=True)
        for name in names:
            text = METERS.replace("source: meters", f"source: {name}").replace("hourly:", f"{name}_hourly:")
            (home / "sources" / f"{name}.yml").write_text(text)
        installation.environment["TIDEMARK_SOURCES"] = str(home / "sources")
        for day in range(3):
            write_day(installation.settings.landing_folder, day, asked.rows)
        with installation.serving("--no-airflow"):
            compare(installation, names)


def compare(installation: Installation, names: list[str]) -> None:
    """Print both times, and what they are of each other."""

    def run(name: str, day: int) -> None:
        label = f"{START + timedelta(days=day)}"
        installation.json("run", name, "--from", label, "--to", label, wait_s=900)

    for name in names:
        run(name, 0)
    spent = []
    for day, at_once in ((1, 1), (2, len(names))):
        begun, cpu = time.monotonic(), processor_seconds(installation.settings.home)
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda name, day=day: run(name, day), names))
        spent.append((time.monotonic() - begun, processor_seconds(installation.settings.home) - cpu))
    for (seconds, cpu), how in zip(spent, ("one after the other", "at once"), strict=True):
        print(f"{len(names)} sources {how}: {seconds:.1f} s, {cpu:.1f} processor seconds of the servers")
    # what runs one after the other keeps busy already can't be had once more
    bound = (os.cpu_count() or 1) * spent[0][0] / spent[0][1]
    print(
        f"{spent[0][0] / spent[1][0]:.2f} times as fast (aim {AIM}; at most {bound:.2f} for this work on these cores);"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
