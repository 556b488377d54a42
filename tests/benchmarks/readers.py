"""What readers and runs cost one another: a reader's p95 at rest and during a run, a run with and without readers.

`python tests/benchmarks/readers.py [--readers 20] [--pause 1]` makes an installation of its own, runs a week of
flights, and then runs further days, with no reader and with readers in turn, so that what else the machine does falls
on both. A reader asks, reads all rows, and pauses, as a dashboard does; its questions are those of `QUESTIONS` in turn.
Aims: p95 during a run at most 3 times that at rest, a run under readers at most 1.3 times as long as one alone.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import psutil

from spark_jobs.server.logins import login
from spark_jobs.server.thrift_client import thrift_connection
from tests.installations import Installation

QUESTIONS = (
    "SELECT * FROM marts.airport_delays WHERE origin = 'JFK' ORDER BY window_start DESC LIMIT 100",
    "SELECT tailnum, flights, miles FROM marts.aircraft_state ORDER BY miles DESC LIMIT 20",
    "SELECT origin, max(departures), max(max_delay) FROM silver.departure_delays GROUP BY origin",
    "SELECT count(*), sum(r.flights) FROM silver.rotations r JOIN gold.flights g USING (tailnum) WHERE g.flights > 5",
)
REST_S = 30.0
"""Seconds that readers are watched at rest."""


class Readers:
    """Readers in a loop, each with a connection of its own; `asked` has when each answer came and how long it took."""

    def __init__(self, installation: Installation, count: int, pause_s: float) -> None:
        self._settings, self._pause_s = installation.settings, pause_s
        self._over = threading.Event()
        self.asked: list[tuple[float, float]] = []
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(count)]

    def _read(self, number: int) -> None:
        connection = thrift_connection(self._settings, login(self._settings, "reader"), timeout_s=600)
        try:
            for question in itertools.islice(itertools.cycle(QUESTIONS), number, None):
                begun = time.perf_counter()
                cursor = connection.cursor()
                cursor.execute(question)
                cursor.fetchall()
                cursor.close()
                self.asked.append((begun, time.perf_counter() - begun))
                if self._over.wait(self._pause_s):
                    return
        finally:
            connection.close()

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def p95(self, since: float, until: float) -> tuple[float, int]:
        """The 95th percentile in seconds of what was asked in a span, and how many answers that is."""
        took = [seconds for begun, seconds in self.asked if since <= begun < until]
        return (statistics.quantiles(took, n=20)[-1] if len(took) > 1 else float("nan")), len(took)


@contextmanager
def served(readers: int) -> Iterator[Installation]:
    """A week of flights."""
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder) / "home", reader_statements=4 * readers)
        with installation.serving("--no-airflow", timeout_s=900):
            installation.json("prepare", "--from", "2013-01-01", "--to", "2013-01-31")
            installation.json("run", "flights", "--from", "2013-01-01", "--to", "2013-01-07", wait_s=900)
            yield installation


def run(installation: Installation, day: date) -> tuple[float, float]:
    """When a run of a day began and ended."""
    begun = time.perf_counter()
    installation.json("run", "flights", "--from", day.isoformat(), "--to", day.isoformat(), wait_s=3600)
    return begun, time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between an answer and the next question")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with served(arguments.readers) as installation:
        days = iter(date(2013, 1, 8) + timedelta(days=n) for n in range(24))
        run(installation, next(days))
        # what no reader has asked before is compiled first: seconds that a server at work does not see
        with Readers(installation, arguments.readers, arguments.pause):
            time.sleep(REST_S)
        alone, under, rest, during = [], [], [], []
        for _ in range(arguments.rounds):
            begun, ended = run(installation, next(days))
            alone.append(ended - begun)
            with Readers(installation, arguments.readers, arguments.pause) as readers:
                time.sleep(5)
                quiet = time.perf_counter()
                time.sleep(REST_S)
                begun, ended = run(installation, next(days))
            rest.append(readers.p95(quiet, begun)[0])
            p95, answers = readers.p95(begun, ended)
            during.append(p95)
            under.append(ended - begun)
            print(
                f"run alone {alone[-1]:.2f} s, under readers {under[-1]:.2f} s; p95 {rest[-1]:.2f} s at rest,"
                f" {during[-1]:.2f} s during it ({answers} answers)",
                flush=True,
            )
    median = {
        name: statistics.median(seconds)
        for name, seconds in {"alone": alone, "under": under, "rest": rest, "during": during}.items()
    }
    print(f"\n{arguments.readers} readers with pauses of {arguments.pause:g} s, medians of {arguments.rounds} rounds\n")
    print("| what | seconds | ratio | aim |\n| --- | ---: | ---: | ---: |")
    print(f"| p95 of a reader at rest | {median['rest']:.2f} | | |")
    print(f"| p95 of a reader during a run | {median['during']:.2f} | {median['during'] / median['rest']:.2f} | 3 |")
    print(f"| run of a day alone | {median['alone']:.2f} | | |")
    print(f"| run of a day under readers | {median['under']:.2f} | {median['under'] / median['alone']:.2f} | 1.3 |")
    print(f"\n{psutil.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
