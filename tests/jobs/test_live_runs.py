"""`tidemark run` as a user runs it, on a lake server: interrupted, killed, and read while it publishes."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_jobs.server.thrift_client import thrift_query
from tests.effort import SEED
from tests.installations import ODD_NAME, TIDEMARK, Installation

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.timeout(1200)]

FIRST, LAST, BEYOND = "2013-01-01", "2013-01-05", "2013-01-06"
TIMES = (
    "SELECT (SELECT max(known_from) FROM gold.flights) AS state, (SELECT max(known_from) FROM silver.rotations) AS"
    " sessions, (SELECT max(known_from) FROM silver.departure_delays) AS delays"
)
"""Every day of flights changes all three, so one publication shows one time."""
ONE_TASK_WITHOUT_END = "SELECT max(hash(id)) FROM range(0, 9000000000000, 1, 1)"
"""Spark work that leaves cores to others."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("live") / ODD_NAME)
    with made.serving("--no-airflow"):
        made.json("prepare", "--from", FIRST, "--to", BEYOND)
        yield made


def test_first_runs_of_two_sources_at_once_make_one_lake(tmp_path: Path) -> None:
    fresh = Installation(tmp_path / "home")
    with fresh.serving("--no-airflow"):
        fresh.json("prepare", "--from", FIRST, "--to", FIRST)
        runs = [
            fresh.start(str(TIDEMARK), "run", source, "--from", FIRST, "--to", FIRST)
            for source in ("flights", "weather")
        ]
        for run in runs:
            output, _ = run.communicate(timeout=300)
            assert run.returncode == 0, output
        both = " UNION ALL ".join(f"SELECT source FROM bronze.{source}_deltas" for source in ("flights", "weather"))
        rows = fresh.sql(f"SELECT source, count(*) AS deltas FROM ({both}) GROUP BY source ORDER BY source")
        landed = fresh.sql("SELECT source, sum(rows) AS deltas FROM bronze.files GROUP BY source ORDER BY source")
    assert rows == landed
    assert [row["source"] for row in rows] == ["flights", "weather"]


def _command(day: str) -> list[str]:
    return [str(TIDEMARK), "run", "flights", "--from", day, "--to", day]


def _publications(installation: Installation) -> list[dict[str, Any]]:
    return installation.sql("SELECT token, published FROM trace.published WHERE source = 'flights'")


def _lease_token(installation: Installation) -> int:
    path = installation.settings.home / "leases" / "flights.lease"
    text = path.read_text() if path.exists() else ""
    return int(text.split('"token": ')[1].split(",")[0]) if text else 0


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def _wait_for_token(installation: Installation, token: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while _lease_token(installation) < token:
        assert process.poll() is None, _said(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_ends_a_run_and_its_spark_work_and_the_next_run_goes_on(installation: Installation) -> None:
    process = installation.start(*_command(FIRST))
    children = psutil.Process(process.pid)
    _wait_for_token(installation, 3, process)  # land, seal and now window
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output, output
    assert "interrupted: " in output, output
    assert not children.is_running()
    token = _lease_token(installation)
    assert _publications(installation) == []
    again = installation.json("run", "flights", "--from", FIRST, "--to", FIRST)
    landed = again["stages"][0]
    assert landed["files"] == landed["resumed_files"] == 1, "what had landed is not landed again, and is reported"
    assert [row["token"] for row in _publications(installation)] == [token + 5]


def test_runs_killed_at_any_moment_leave_what_an_undisturbed_one_leaves(installation: Installation) -> None:
    moments = random.Random(SEED)
    for _ in range(4):
        process = installation.start(*_command("2013-01-02"))
        before = _lease_token(installation)
        _wait_for_token(installation, before + 1, process)
        time.sleep(moments.uniform(0, 15))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for day in ("2013-01-01", "2013-01-02"):
        installation.json("run", "flights", "--from", day, "--to", day)
    in_files = sum(_aircraft_rows(installation, day) for day in ("2013-01-01", "2013-01-02"))
    found, *_ = installation.sql(
        "SELECT (SELECT sum(flights) FROM gold.flights) AS states,"
        " (SELECT count(*) FROM bronze.flights_deltas) AS deltas,"
        " (SELECT count(DISTINCT delta_id) FROM bronze.flights_deltas) AS distinct_deltas"
    )
    assert set(found.values()) == {in_files}


def _aircraft_rows(installation: Installation, day: str) -> int:
    """Rows of a day's files that name an aircraft."""
    files = (installation.settings.landing_folder / "flights" / day).iterdir()
    return sum(row["tailnum"] not in ("", "NA") for file in files for row in csv.DictReader(file.open()))


def test_names_joined_in_one_query_show_one_publication_while_runs_publish(installation: Installation) -> None:
    process = installation.start(str(TIDEMARK), "run", "flights", "--from", "2013-01-03", "--to", "2013-01-03")
    seen = set()
    for day in ("2013-01-04", LAST, None):
        while process.poll() is None:
            (times,) = thrift_query(installation.settings, TIMES)
            assert len(set(times)) == 1, times
            seen.add(times[0])
        assert process.returncode == 0, _said(process)
        if day is not None:
            process = installation.start(*_command(day))
    assert len(seen) >= 3, "the reader saw publications go by"


def test_commands_that_lose_their_lake_server_say_so_and_a_run_goes_on_with_the_next_one(
    installation: Installation,
) -> None:
    installation.json("run", "flights", "--from", FIRST, "--to", FIRST)
    before = _publications(installation)
    # an end in order, as by `tidemark down` or where the server is started anew, and any other end
    for number in (signal.SIGTERM, signal.SIGKILL):
        server = installation.json("status")["parts"]["lake"]["pid"]
        query = installation.start(str(TIDEMARK), "sql", ONE_TASK_WITHOUT_END)
        run = installation.start(*_command(BEYOND), "--pass-gap")
        _wait_for_token(installation, _lease_token(installation) + 2, run)
        os.kill(server, number)
        for process in (query, run):
            output, _ = process.communicate(timeout=240)
            assert process.returncode == 1, output
            assert "Traceback" not in output, output
            assert output.startswith("server_unreachable\n"), output
            assert "expected  the lake server" in output, output
        assert installation.run(str(TIDEMARK), "up", "--no-airflow").returncode == 0
        assert _publications(installation) == before
    again = installation.json("run", "flights", "--from", BEYOND, "--to", BEYOND, "--pass-gap")
    assert again["stages"][-1]["moved"]
