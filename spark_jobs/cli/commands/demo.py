"""`demo`: the whole way on the sample."""

from __future__ import annotations

import sys
import time
from typing import Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import drops_between, known_source, server_session
from spark_jobs.cli.commands.backfill import backfill_range
from spark_jobs.cli.commands.open import open_in_airflow
from spark_jobs.cli.commands.run import run_source
from spark_jobs.cli.output import note, show, table
from spark_jobs.config import Settings, load_settings

FLIGHT_RUNS = (("2013-01-01", "2013-01-01"), ("2013-01-02", "2013-01-02"), ("2013-01-03", "2013-01-07"))
"""The first and last days of the runs of flights. The second day restates windows of the first."""
WEATHER_RUNS = tuple((f"2013-01-{day:02}", f"2013-01-{day + 6:02}") for day in (1, 8, 15, 22))
"""The first and last days of the runs of weather. In the fourth, since passes the first two, whose batches merge."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo() -> None:
    """Run weeks of the sample data, from files to results.

    The flights run through Airflow, the weather without it. In a terminal it ends with the portal in a browser.
    """
    settings = load_settings()
    start_s = time.monotonic()
    spent: dict[str, float] = {}

    def time_step(what: str, since: float) -> float:
        now = time.monotonic()
        spent[what] = round(now - since, 1)
        return now

    from spark_jobs.server import control

    note("starting the lake server and Airflow")
    control.up(settings, airflow=True, progress=note)
    mark = time_step("start", start_s)
    _prepare(settings)
    mark = time_step("sample data", mark)
    for first, last in FLIGHT_RUNS:
        note(f"backfilling flights from {first} to {last} as one run through Airflow")
        backfill_range(settings, known_source(settings, "flights"), first, last)
    mark = time_step("three runs of flights through Airflow", mark)
    for first, last in WEATHER_RUNS:
        note(f"running weather from {first} to {last} as one run, without Airflow")
        lo, hi = drops_between(known_source(settings, "weather"), first, last)
        run_source(settings, "weather", lo, hi, prefix="demo")
    mark = time_step("four runs of weather", mark)
    show(_results(settings))
    time_step("results", mark)
    durations = ", ".join(f"{what} {seconds} s" for what, seconds in spent.items())
    show(Text(f"\n{time.monotonic() - start_s:.1f} s in all: {durations}"))
    if sys.stdout.isatty():
        open_in_airflow(settings, browser=True)


def _prepare(settings: Settings) -> None:
    from datetime import date

    from spark_jobs.sample import prepare_sample

    for source, runs in (("flights", FLIGHT_RUNS), ("weather", WEATHER_RUNS)):
        first_day, last_day = date.fromisoformat(runs[0][0]), date.fromisoformat(runs[-1][-1])
        prepare_sample(settings.landing, first=first_day, last=last_day, sources=(source,))


QUERIES = {
    "Rows landed, quarantined and late per day (flights)": """
        SELECT date(f.drop_lo) AS day, sum(f.rows) AS landed, sum(f.rejects) AS quarantined,
               coalesce(max(l.late), 0) AS late
        FROM bronze.files f
        LEFT JOIN (SELECT drop_lo, count(DISTINCT row_id) AS late FROM silver.late
                   WHERE source = 'flights' GROUP BY drop_lo) l ON l.drop_lo = f.drop_lo
        WHERE f.source = 'flights' GROUP BY f.drop_lo ORDER BY day""",
    "The ten worst delay windows": """
        SELECT origin, window_start, window_end, departures, round(mean_delay, 1) AS mean_delay, max_delay, revision
        FROM silver.departure_delays WHERE departures >= 5 ORDER BY mean_delay DESC, window_start LIMIT 10""",
    "State of three aircraft": """
        SELECT tailnum, flights, air_minutes, miles, delay_minutes, timestamp AS newest_event
        FROM gold.flights ORDER BY flights DESC, tailnum LIMIT 3""",
    "The weather now": "SELECT * FROM marts.weather_now ORDER BY origin",
    "The space of the trace of weather after each run": """
        SELECT date(drop_lo) AS day, trace_batches, trace_updates, trace_bytes, round(trace_consolidated, 2) AS merged
        FROM quality.metrics WHERE source = 'weather' AND trace_batches IS NOT NULL ORDER BY day""",
    "The gates' verdicts": """
        SELECT source, gate, count(DISTINCT run_id) AS runs, count_if(verdict = 'passed') AS passed,
               count_if(verdict <> 'passed') AS others
        FROM quality.results GROUP BY source, gate ORDER BY source, gate""",
}


def _results(settings: Settings) -> Group:
    from spark_jobs.gates import data_docs_index

    parts: list[Any] = []
    with server_session(settings, "tidemark-demo") as spark:
        for title, query in QUERIES.items():
            result = spark.sql(query).toArrow()
            rows = list(zip(*(column.to_pylist() for column in result.columns), strict=True))
            parts += [Text(), table(result.column_names, rows, title=title)]
    password = settings.airflow_home / "passwords.json"
    addresses = [
        ("Portal", settings.page_url("index"), "`tidemark open` opens it and logs in"),
        ("Airflow", settings.airflow_page, f"admin, password in {password}"),
        ("SQL (JDBC)", settings.jdbc_url, f"beeline, DBeaver: user reader, password in {settings.logins_file}"),
        ("Data quality", data_docs_index(settings).as_uri(), "Great Expectations Data Docs"),
    ]
    return Group(*parts, Text(), table(["what", "address", "how"], addresses))
