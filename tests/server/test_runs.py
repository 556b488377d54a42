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
from spark_jobs.server.thrift_client import thrift_query
from tests.installations import ODD_NAME
from tests.jobs.harness import Reading, write_drops, write_source
from tests.jobs.test_pipeline import DAY, READINGS, due, session_oracle

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


def sessions(settings: Settings, relation: str) -> Counter[tuple[Any, ...]]:
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


def test_before_the_first_run_nothing_was_checked(served: Settings) -> None:
    code, document = answer(tidemark(served, "quality"))
    assert (code, document["verdicts"], document["results"]) == (0, [], [])


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


def test_a_changed_source_file_is_built_compared_promoted_and_dropped(served: Settings) -> None:
    code, made = answer(tidemark(served, "env", "create", "dev", "meters"))
    assert code == 0, made
    file = Path(made["folder"]) / "meters.yml"
    file.write_text(file.read_text().replace("gap: 90 min", "gap: 30 min"))
    code, built = answer(tidemark(served, "env", "build", "dev"))
    assert code == 0, built
    assert built["sources"][0]["changed"] == ["window.shifts"]
    tables = built["sources"][0]["tables"]
    assert {table: kind for table, kind in tables.items() if kind == "table"} == {"dev__silver.shifts": "table"}
    code, compared = answer(tidemark(served, "env", "diff", "dev"))
    assert code == 0, compared
    by_table = {table["table"]: table for table in compared["sources"][0]["tables"]}
    assert compared["sources"][0]["stands"]
    assert by_table["dev__silver.shifts"]["inserted"] > 0
    code, found = answer(tidemark(served, "sql", "SELECT count(*) AS n FROM dev__silver.shifts"))
    assert code == 0, found
    before, then = sessions(served, "silver.shifts"), sessions(served, "dev__silver.shifts")
    assert before != then
    code, ran = answer(tidemark(served, "env", "promote", "dev", "meters"))
    assert code == 0, ran
    assert sessions(served, "silver.shifts") == then
    assert (Path(served.sources) / "meters.yml").read_text() == file.read_text()
    code, listed = answer(tidemark(served, "env", "list"))
    assert [e["sources"] for e in listed["environments"]] == [{"meters": "same"}]
    code, dropped = answer(tidemark(served, "env", "drop", "dev"))
    assert (code, dropped) == (0, {"dropped": "dev"})
    assert ("dev__silver",) not in thrift_query(served, "SHOW DATABASES")


def test_an_entity_is_erased_and_stays_out(served: Settings) -> None:
    code, would = answer(tidemark(served, "erase", "meters", "--entity", "b", "--dry-run"))
    assert (code, would["erasure"]) == (0, "")
    assert would["rows"] == sum(r.meter == "b" for r in due(READINGS, 3))
    code, done = answer(tidemark(served, "erase", "meters", "--entity", "b", "--because", "asked"))
    # a text of one letter is everywhere: that it was not looked for is said, and somebody has to look
    assert (code, done["left"]) == (1, [f"texts below {served.home} were not searched: 'b' is too short to tell"]), done
    assert done["rows"] == would["rows"]
    days = ("--from", "2024-01-01", "--to", "2024-01-03")
    code, ran = answer(tidemark(served, "run", "meters", *days))
    assert code == 0, ran
    assert {row[0] for row in thrift_query(served, "SELECT DISTINCT meter FROM silver.shifts")} == {"a"}
    assert {row[0] for row in thrift_query(served, "SELECT meter FROM gold.meters")} == {"a"}
    code, refused = answer(tidemark(served, "erase", "meters", "--entity", "c", "--because", "asked"))
    assert (code, refused["error"]["code"]) == (2, "entity_unknown")


def test_quality_ends_with_1_while_the_newest_run_failed_a_check(served: Settings) -> None:
    def verdicts(*more: str) -> tuple[int, dict[str, str]]:
        code, document = answer(tidemark(served, "quality", "meters", "--runs", "1", *more))
        return code, {result["name"]: result["verdict"] for result in document["results"]}

    assert verdicts() == (0, {})
    file = served.home / "sources" / "meters.yml"
    file.write_text(
        f"{file.read_text()}\nchecks: {{low: {{kind: between, column: load, max: 100, treatment: warn}}}}\n"
    )
    write_drops(served, [Reading(3, 3 * DAY + 5, "c", 1), Reading(3, 3 * DAY + 6, "a", 101)])
    day = ("run", "meters", "--from", "2024-01-04", "--to", "2024-01-04")
    assert answer(tidemark(served, *day))[0] == 0
    assert verdicts() == (0, {"low": "warned"})
    file.write_text(file.read_text().replace("warn", "fail"))
    write_drops(served, [Reading(3, 3 * DAY + 5, "c", 1), Reading(3, 3 * DAY + 6, "a", 102)])
    code, document = answer(tidemark(served, *day))
    assert (code, document["error"]["code"]) == (1, "gate_failed")
    assert verdicts() == (1, {"low": "failed"})
    code, document = answer(tidemark(served, *day, "--override", "low", "--because", "a new sensor"))
    assert code == 0, document
    assert verdicts() == (0, {"low": "overridden"})
    code, document = answer(tidemark(served, "quality", "--run", "no such run"))
    assert (code, document["error"]["code"]) == (2, "parameter")
