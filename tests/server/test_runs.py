"""Plans, runs and their questions as people give them: processes of their own on one lake server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.server import control
from spark_jobs.server.health import thrift_query
from tests.installations import ODD_NAME
from tests.jobs.harness import write_drops, write_source
from tests.jobs.test_pipeline import READINGS, due, session_oracle

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, installation: Callable[[Path], Settings]) -> Iterator[Settings]:
    home = tmp_path_factory.mktemp("runs") / ODD_NAME
    settings = installation(home).model_copy(update={"landing": home / "landing", "heap": "2g"})
    settings = write_source(settings)
    write_drops(settings, READINGS)
    assert control.up(settings, airflow=False).ok
    yield settings
    control.down(settings)


def tidemark(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    program = "from spark_jobs.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments, "--json"],
        env={**os.environ, **settings.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> tuple[int, Any]:
    out, err = process.communicate(timeout=280)
    assert out, err
    return process.returncode, json.loads(out)


def sessions(settings: Settings, relation: str) -> Counter:
    """As `session_oracle` counts them, through JDBC."""
    start, end = (
        f"(unix_micros({column}) - unix_micros(TIMESTAMP'2024-01-01')) / 60000000.0"
        for column in ("window_start", "window_end")
    )
    return Counter(
        (meter, float(first), float(last), n, total)
        for meter, first, last, n, total in thrift_query(
            settings, f"SELECT meter, {start}, {end}, n, total FROM {relation}"
        )
    )


def test_a_plan_is_applied_and_the_past_is_read_by_jdbc_and_the_command_line(served: Settings, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    days = ("--from", "2024-01-01", "--to", "2024-01-01")
    code, planned = answer(tidemark(served, "plan", "meters", *days, "--save", str(saved)))
    assert code == 0, planned
    assert {t["table"]: t["inserted"] for t in planned["tables"]}["silver.shifts"] == 3
    code, ran = answer(tidemark(served, "run", "meters", "--plan", str(saved)))
    assert code == 0, ran
    assert sessions(served, "silver.shifts") == session_oracle(due(READINGS, 1))
    code, refused = answer(tidemark(served, "run", "meters", "--plan", str(saved)))
    assert (code, refused["error"]["code"]) == (1, "stale_plan")
    code, told = answer(tidemark(served, "why", "meters", "shifts", "b", "2024-01-01T03:20:00Z"))
    assert code == 0, told
    assert [(delta["file"], delta["line"]) for delta in told["deltas"]] == [("meters/2024-01-01/a.ndjson", 4)]


def test_two_runs_at_once_take_turns_and_leave_what_one_after_the_other_leaves(served: Settings) -> None:
    days = ("--from", "2024-01-02", "--to", "2024-01-03")
    both = [tidemark(served, "run", "meters", *days) for _ in range(2)]
    ended = [answer(process) for process in both]
    assert [code for code, _ in ended] == [0, 0], ended
    assert sessions(served, "silver.shifts") == session_oracle(due(READINGS, 3))
    loads = thrift_query(served, "SELECT meter, readings, load FROM gold.meters")
    rows = due(READINGS, 3)
    assert set(loads) == {
        (m, sum(r.meter == m for r in rows), sum(r.load for r in rows if r.meter == m)) for m in ("a", "b")
    }
    assert sessions(served, "silver.shifts_as_of(TIMESTAMP'2024-01-01 23:59:59.999999')") == session_oracle(
        due(READINGS, 1)
    )
