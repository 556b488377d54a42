"""A year of flights and weather through Airflow, and then what a person does with it: the audit and the portal.

`python -m tests.benchmarks.year_in_airflow [--until DAY]` makes an installation of its own with Airflow. It measures,
in turn:

- days by `tidemark run` beside days by a run of the DAG: what Airflow adds;
- `tidemark backfill` of both sources at once, up to the last day;
- verdicts of checks: these drops are undisturbed, so whatever is not "passed" is a false alarm;
- the audit of each source;
- pages of the portal behind Airflow's login, each asked for several times;
- errors in the scheduler's log.

Apart from `tidemark run` there is no peer: the figures stand against the aims.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import httpx

from spark_jobs.config import PORTAL_PREFIX
from spark_jobs.portal.names import encode_part
from spark_jobs.server.airflow_api import AirflowApi
from tests.benchmarks.commands import seconds
from tests.installations import Installation

FIRST = date(2013, 1, 1)
SOURCES = ("flights", "weather")
PAIRED_DAYS = 3
TIMES = 5
"""How often a page is asked for."""


def line(name: str, measured: str, aim: str = "") -> None:
    """One row of the table."""
    print(f"| {name} | {measured} | {aim} |", flush=True)


def day(number: int) -> str:
    """The label of a drop, from 0."""
    return f"{FIRST + timedelta(days=number)}"


def through_airflow(api: AirflowApi, label: str) -> float:
    """Wall seconds from the trigger of a DAG run of flights to its end."""
    begun = time.perf_counter()
    runs = "dags/flights/dagRuns"
    name = api.post(runs, {"logical_date": None, "conf": {"from": label, "to": label}})["dag_run_id"]
    while (state := api.get(f"{runs}/{name}")["state"]) not in ("success", "failed"):
        time.sleep(0.2)
    assert state == "success", f"the run {name} of {label} {state}"
    return time.perf_counter() - begun


def overhead(installation: Installation) -> None:
    """Days of flights by the command and by a DAG's run, in turn."""
    alone, airflow = [], []
    with AirflowApi(installation.settings) as api:
        api.patch("dags/flights", {"is_paused": False})
        seconds(installation, ("run", "flights", "--from", day(0), "--to", day(0)))
        through_airflow(api, day(1))
        for number in range(2, 2 + 2 * PAIRED_DAYS, 2):
            label = day(number)
            alone.append(seconds(installation, ("run", "flights", "--from", label, "--to", label)))
            airflow.append(through_airflow(api, day(number + 1)))
    line("a day by `tidemark run`, median", f"{statistics.median(alone):.1f} s")
    line("a day by a run of the DAG, median", f"{statistics.median(airflow):.1f} s")
    line("overhead of Airflow", f"{statistics.median(airflow) - statistics.median(alone):.1f} s", "8 s")


def backfill(installation: Installation, first: str, until: str) -> None:
    """The year of both sources at once."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(SOURCES)) as pool:
        arguments = [("backfill", source, "--from", first, "--to", until) for source in SOURCES]
        took = dict(zip(SOURCES, pool.map(lambda each: seconds(installation, each), arguments), strict=True))
    both = time.perf_counter() - begun
    line(
        f"`tidemark backfill` of both from {first} to {until}",
        f"{both:.0f} s ({', '.join(f'{source} {s:.0f} s' for source, s in took.items())})",
        "900 s",
    )


def alarms(installation: Installation) -> None:
    """What checks said of these drops."""
    rows = installation.sql("SELECT verdict, count(*) AS n FROM quality.results GROUP BY verdict ORDER BY verdict")
    landed = installation.sql("SELECT count(DISTINCT source, seq_no) AS n FROM quality.metrics")[0]["n"]
    line(f"verdicts over {landed} drops", ", ".join(f"{row['verdict']} {row['n']}" for row in rows), "passed alone")
    others = "SELECT source, run_id, gate, kind, name, verdict, observed FROM quality.results WHERE verdict <> 'passed'"
    for row in installation.sql(f"{others} LIMIT 50"):
        print(f"  {row}")


def pages(installation: Installation) -> dict[str, str]:
    """A page of each kind, by what it is of."""
    run = installation.sql("SELECT run_id FROM quality.runs WHERE source = 'flights' ORDER BY token DESC LIMIT 1")
    return {
        "all sources": "index.html",
        "flights": "sources/flights.html",
        "weather": "sources/weather.html",
        "the newest run": f"runs/flights/{encode_part(run[0]['run_id'])}.html",
        "quarantine": "quarantine/flights.html",
        "all marts": "marts.html",
        "a mart": f"marts/{encode_part('airport_delays')}.html",
        "the glossary": "glossary.html",
    }


def portal(installation: Installation) -> None:
    """Pages as a browser gets them."""
    with AirflowApi(installation.settings) as api:
        api.get("dags/flights")
        texts = {what: page(api._client, what, name) for what, name in pages(installation).items()}
        # pages of a run and of a mart link to rows; the action of a form names no row
        link = next(filter(None, (re.search(r'why/[^"/]+/[^"/]+/[^"?]+\.html', text) for text in texts.values())))
        page(api._client, "why of a row", link[0])


def page(client: httpx.Client, what: str, name: str) -> str:
    """Ask for a page some times, and print a row; its text."""
    took = []
    for _ in range(TIMES + 1):
        begun = time.perf_counter()
        answer = client.get(f"{PORTAL_PREFIX}/{name}")
        took.append(1000 * (time.perf_counter() - begun))
        assert answer.status_code == httpx.codes.OK, f"{name}: {answer.status_code} {answer.text[-500:]}"
    first, *again = took
    measured = f"{statistics.median(again):.0f} ms, first {first:.0f} ms, {len(answer.content) / 1000:.0f} kB"
    line(f"portal, {what}", measured, "300 ms")
    return answer.text


def errors_of_the_scheduler(installation: Installation) -> None:
    """Lines of its log that are errors."""
    lines = (installation.settings.logs_dir / "airflow-scheduler.log").read_text(errors="replace").splitlines()
    errors = [each for each in lines if any(word in each for word in ("ERROR", "[error", "Traceback"))]
    line("errors in the scheduler's log", f"{len(errors)} of {len(lines)} lines", "0")
    for each in errors[:20]:
        print(f"  {each[:300]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", default="2013-12-31", help="the last day")
    until = parser.parse_args().until
    print("| what | measured | aim |\n| --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder) / "home")
        begun = time.perf_counter()
        with installation.serving():
            line("`tidemark up` with Airflow", f"{time.perf_counter() - begun:.0f} s")
            installation.json("prepare", "--from", day(0), "--to", until, wait_s=900)
            overhead(installation)
            backfill(installation, day(0), until)
            alarms(installation)
            for source in SOURCES:
                line(f"audit of {source}", f"{seconds(installation, ('audit', source)):.1f} s", "60 s")
            portal(installation)
            errors_of_the_scheduler(installation)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
