"""What a day of flights, or of weather, costs: seconds through the lake server, Delta commits, and Spark jobs counted
in a classic JVM.

`python tests/benchmarks/day.py [--source weather] [--days N]` makes two installations of its own in a temporary folder,
runs N days one after another in each, and prints the last: the first ones compile Spark's and Python's code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.installations import CHECKOUT, Installation

AIMS = {"seconds": 8, "commits": 8, "jobs": 15}

COUNT_JOBS = """
import json, sys
from datetime import UTC, datetime, timedelta
from spark_jobs.config import load_settings
from spark_jobs.jobs.stage import run_stage
from spark_jobs.model import STAGES
from spark_jobs.session import open_session
settings = load_settings()
spark = open_session(settings, "jobs of a day")
scheduler = spark.sparkContext._jsc.sc().dagScheduler()
for day in range(1, int(sys.argv[1]) + 1):
    lo, jobs = datetime(2013, 1, day, tzinfo=UTC), {}
    run = {"source": sys.argv[2], "lo": lo, "hi": lo + timedelta(days=1), "run_id": f"day-{day}"}
    for stage in STAGES:
        before = scheduler.numTotalJobs()
        run_stage(stage, **run, settings=settings, spark=spark)
        jobs[stage] = scheduler.numTotalJobs() - before
print(json.dumps(jobs))
spark.stop()
"""


def through_the_server(home: Path, source: str, days: int) -> dict[str, object]:
    """The last day's run as `tidemark run --json` tells it."""
    installation = Installation(home)
    with installation.serving("--no-airflow"):
        installation.json("prepare", "--from", "2013-01-01", "--to", f"2013-01-{days:02}")
        for day in range(1, days + 1):
            told = installation.json("run", source, "--from", f"2013-01-{day:02}", "--to", f"2013-01-{day:02}")
    return told


def jobs_by_stage(home: Path, source: str, days: int) -> dict[str, int]:
    """Spark jobs of each stage of the last day; marts are built through the lake server alone, so not here."""
    installation = Installation(home)
    installation.json("prepare", "--from", "2013-01-01", "--to", f"2013-01-{days:02}")
    environment = {**installation.environment, "TIDEMARK_SPARK": "classic", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_JOBS, str(days), source],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--source", choices=["flights", "weather"], default="flights")
    asked = parser.parse_args()
    source, days = asked.source, asked.days
    with tempfile.TemporaryDirectory() as folder:
        told = through_the_server(Path(folder) / "server", source, days)
        jobs = jobs_by_stage(Path(folder) / "classic", source, days)
    seconds: dict[str, float] = told["seconds"]  # type: ignore[assignment]
    measured = {"seconds": round(sum(seconds.values()), 1), "commits": told["commits"], "jobs": sum(jobs.values())}
    print(f"day {days} of {source}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    for name, value in measured.items():
        print(f"{name:8} {value:>6}   aim {AIMS[name]}")
    print("seconds:", ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
    gates = sum(stage.get("gate_seconds", 0.0) for stage in told["stages"])  # type: ignore[attr-defined]
    print(f"gates:   {gates:.1f} s, {gates / sum(seconds.values()):.0%} of the day (aim 15%)")
    print("jobs:   ", ", ".join(f"{name} {count}" for name, count in jobs.items()))


if __name__ == "__main__":
    main()
