"""What a user waits for: wall seconds of the commands that look at a lake, and of a day and a year by `tidemark run`.

`python tests/benchmarks/commands.py [--year]` makes an installation of its own in a temporary folder, runs a week of
flights, then asks. Each command is started as a user starts it, three times, and the median is printed; what writes is
done once. Nothing else makes these answers, so there is no peer: the figures stand against the aims.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.installations import TIDEMARK, Installation

DAY = ("--from", "2013-01-08", "--to", "2013-01-08")
WEEK = ("--from", "2013-01-01", "--to", "2013-01-07")
LOOKS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "plan of a day": (("plan", "flights", *DAY), 5.0),
    "why": (("why", "flights", "rotations", "N380HA", "2013-01-01T13:57:00Z"), 2.0),
    "state of one entity": (("state", "flights", "--entity", "N380HA", "--at", "2013-01-02"), 0.5),
    "query of one entity": (
        (
            "query",
            "flights",
            "--entity",
            "N380HA",
            "--timeline",
            "departed",
            "--from",
            "2013-01-01",
            "--to",
            "2013-01-02",
        ),
        0.5,
    ),
    "windows as known": (("windows", "flights", "rotations", "--as-of", "2013-01-05"), None),
    "sql": (("sql", "SELECT count(*) FROM silver.rotations"), None),
    "quality": (("quality", "flights"), None),
    "doctor": (("doctor",), 10.0),
}
"""By what a reader knows them: the command, and the aim in seconds."""
CHANGES: dict[str, tuple[tuple[str, ...], float | None]] = {
    "run of a day": (("run", "flights", *DAY), 8.0),
    "retract of a drop": (("retract", "flights", "--drop", "2013-01-05"), 10.0),
    "audit": (("audit", "flights"), None),
}


def seconds(installation: Installation, arguments: tuple[str, ...]) -> float:
    """Wall time of one command, which must succeed."""
    begun = time.perf_counter()
    done = installation.run(str(TIDEMARK), *arguments, timeout_s=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - begun


def line(name: str, took: float, aim: float | None) -> None:
    """One row of the table."""
    print(f"| {name} | {took:.2f} | {'' if aim is None else f'{aim:g}'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--year", action="store_true", help="the rest of the year in one run, too")
    year = parser.parse_args().year
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder) / "home")
        with installation.serving("--no-airflow"):
            installation.json("prepare", "--from", "2013-01-01", "--to", "2013-12-31" if year else "2013-01-08")
            print("| command | seconds | aim |\n| --- | ---: | ---: |")
            line("run of the first week, on a new lake", seconds(installation, ("run", "flights", *WEEK)), None)
            for name, (arguments, aim) in LOOKS.items():
                line(name, statistics.median(seconds(installation, arguments) for _ in range(3)), aim)
            for name, (arguments, aim) in CHANGES.items():
                line(name, seconds(installation, arguments), aim)
            if year:
                remainder = ("run", "flights", "--from", "2013-01-09", "--to", "2013-12-31")
                line("run of 357 days", seconds(installation, remainder), 30.0)
                line("audit of the year", seconds(installation, ("audit", "flights")), 60.0)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
