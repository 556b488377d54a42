"""Chains, pins, quarantine and retraction as people ask for them: commands on a lake server, through Spark Connect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.model import NOTED_READS
from spark_jobs.server import control
from spark_jobs.storage.coordination.read_counts import Reads, reads_of
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.installations import ODD_NAME, until
from tests.jobs.harness import MINUTE, START, _iso, write_lines, write_source
from tests.jobs.test_chains import UPSERT
from tests.server.test_runs import answer, tidemark

pytestmark = [pytest.mark.server, pytest.mark.long]

DAY_MINUTES = 24 * 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, installation: Callable[[Path], Settings]) -> Iterator[Settings]:
    home = tmp_path_factory.mktemp("commands") / ODD_NAME
    settings = installation(home).model_copy(update={"landing": home / "landing", "heap": "2g"})
    settings = write_source(settings, UPSERT)
    assert control.up(settings, airflow=False).ok
    yield settings
    control.down(settings)


def lines(day: int, loads: list[int]) -> list[str]:
    """One reading of meter `m` each two hours, and one of meter `n`."""
    rows = [("m", day * DAY_MINUTES + 120 * place, load) for place, load in enumerate(loads)]
    rows.append(("n", day * DAY_MINUTES + 30, 7))
    return [
        json.dumps({"id": f"{m}-{at}", "meter": m, "at": _iso(START + at * MINUTE), "load": load, "heat": load / 4})
        for m, at, load in rows
    ]


def ask(settings: Settings, *arguments: str) -> Any:
    code, told = answer(tidemark(settings, *arguments))
    assert code == 0, told
    return told


def loads_at(settings: Settings, at: str, *more: str) -> dict[str, Any]:
    told = ask(settings, "state", "meters", "--at", at, *more)
    return {row["meter"]: row["load"] for row in told["rows"]}


def run_day(settings: Settings, day: int) -> Any:
    date = f"2024-01-{day + 1:02}"
    return ask(settings, "run", "meters", "--from", date, "--to", date)


def test_a_chain_is_compacted_read_at_any_time_rolled_back_and_pinned(served: Settings) -> None:
    for day, loads in enumerate([[1, 2, 3, 4, 5, 6], [10, 20, 30]]):
        write_lines(served, day, lines(day, loads))
        run_day(served, day)
    assert loads_at(served, "2024-01-01T04:30:00Z") == {"m": 3, "n": 7}
    assert loads_at(served, "2024-01-01T04:30:00Z", "--entity", "m") == {"m": 3}
    assert loads_at(served, "2024-01-02T23:00:00Z") == {"m": 30, "n": 7}
    steps = ask(served, "trace", "steps", "meters")
    assert [step["step"] for step in steps if step["step"] in ("seal", "drain")] == ["seal", "drain"] * 2
    assert [step["updates"] for step in steps if step["step"] == "drain"] == [7, 4]
    early, late = (
        ask(served, "trace", "snapshot", "meters", "--entity", "m", "--at", f"2024-01-0{day}T23:59:59Z")
        for day in (1, 2)
    )
    assert [row["c_load"] for row in early] == [1, 2, 3, 4, 5, 6]
    assert [row["c_load"] for row in late] == [1, 2, 3, 4, 5, 6, 10, 20, 30]
    metrics = ask(served, "chains", "meters")
    assert (metrics["chains"], metrics["refused"]) == (2, 0)
    assert [version["vector"] for version in ask(served, "history", "meters", "m")] == [
        [load, load / 4] for load in (1, 2, 3, 4, 5, 6, 10, 20, 30)
    ]
    # two of all; the state of an entity that had three deltas then, its history as it has nine
    assert reads_of(StoredLake(served.lake), served.home, "meters") == Reads(2, {2: 1, 4: 1})
    # by SQL: two of all, two of one entity, and two of no state of this source
    for statement in (
        "SELECT count(*) FROM gold.meters",
        "SELECT m.load FROM gold.meters m WHERE m.meter = 'm' AND m.load > 0",
        "SELECT * FROM gold.meters_as_of(TIMESTAMP '2024-01-02 12:00:00') WHERE 'n' = meter",
        "SELECT count(*) FROM gold.checkpoints c WHERE (SELECT count(*) FROM silver.late) = 0 AND source = 'meters'",
        "SELECT count(*) FROM gold.checkpoints WHERE source = 'others'",
        "SELECT count(*) FROM quality.results",
    ):
        ask(served, "sql", statement)
    notes = served.home / NOTED_READS
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) >= 5, what="the reads were not noted")
    (step,) = ask(served, "maintain", "meters", "--chains")["steps"]
    assert (step["step"], step["do"]) == ("chains", "")
    # `m` has nine deltas, `n` two
    assert reads_of(StoredLake(served.lake), served.home / "another", "meters") == Reads(4, {2: 2, 4: 2})

    pinned = ask(served, "pin", "before_rollback")
    assert [pin["name"] for pin in ask(served, "pins")] == ["before_rollback"]
    assert pinned["tables"] == ["before_rollback__meters_state", "before_rollback__meters_versions"]
    code, again = answer(tidemark(served, "pin", "before_rollback"))
    assert (code, again["error"]["code"]) == (1, "pin_exists")

    back = ask(served, "rollback", "meters", "m", "--to", "2024-01-01T06:30:00Z", "--at", "2024-01-03T01:00:00Z")
    assert len(back) == 1
    write_lines(served, 2, [json.dumps({**back[0], "id": "back"}), *lines(2, [])])
    run_day(served, 2)
    assert loads_at(served, "2024-01-03T02:00:00Z") == {"m": 4, "n": 7}
    assert loads_at(served, "2024-01-02T23:00:00Z") == {"m": 30, "n": 7}
    frozen = ask(served, "sql", "SELECT meter, load FROM pins.before_rollback__meters_state")["rows"]
    assert {row["meter"]: row["load"] for row in frozen} == {"m": 30, "n": 7}
    assert ask(served, "unpin", "before_rollback")["dropped"] == [f"pins.{table}" for table in pinned["tables"]]
    assert ask(served, "pins") == []
    code, gone = answer(tidemark(served, "unpin", "before_rollback"))
    assert (code, gone["error"]["code"]) == (2, "parameter")
    # the same name again, at the time of before
    ask(served, "pin", "before_rollback", "--at", "2024-01-02T23:00:00Z")
    frozen = ask(served, "sql", "SELECT meter, load FROM pins.before_rollback__meters_state")["rows"]
    assert {row["meter"]: row["load"] for row in frozen} == {"m": 6, "n": 7}


def test_a_record_is_replayed_once_it_can_be_read_and_a_drop_is_taken_back(served: Settings) -> None:
    broken = write_lines(
        served, 3, ['{"id": "x", "meter": "m", "at": "no time", "load": 1, "heat": 1}', *lines(3, [99])]
    )
    run_day(served, 3)
    (open_,) = ask(served, "quarantine", "list", "meters")["quarantine"]
    assert (open_["drop"], open_["replay_state"], open_["records"]) == ("2024-01-04", "open", 1)
    (record,) = ask(served, "quarantine", "show", "meters")["records"]
    assert record["line"] == 1
    broken.write_text(broken.read_text().replace("no time", "2024-01-04T02:00:00Z"))
    for _ in range(2):
        ask(served, "quarantine", "replay", "meters")
        assert ask(served, "quarantine", "list", "meters")["quarantine"] == []
        assert loads_at(served, "2024-01-04T03:00:00Z")["m"] == 1
    ask(served, "retract", "meters", "--drop", "2024-01-04")
    assert loads_at(served, "2024-01-04T03:00:00Z")["m"] == 4
    ask(served, "retract", "meters", "--drop", "2024-01-04")


def test_a_lake_of_an_older_version_is_refused_by_name_until_a_run_widens_it(served: Settings) -> None:
    write_lines(served, 4, lines(4, [5]))
    run_day(served, 4)
    behind = ask(served, "why", "meters", "gold.meters", "n")["deltas"]
    for statement in (
        "CREATE TABLE trace.older USING delta PARTITIONED BY (batch)"
        " AS SELECT * EXCEPT (below_horizon) FROM trace.meters_updates",
        "DROP TABLE trace.meters_updates",
        "ALTER TABLE trace.older RENAME TO trace.meters_updates",
        # as the publications of such a version, which noted nothing of the tables
        "UPDATE trace.published SET tables = NULL",
    ):
        ask(served, "sql", statement)
    code, told = answer(tidemark(served, "why", "meters", "gold.meters", "n"))
    assert (code, told["error"]["code"]) == (1, "lake_older")
    assert told["error"]["lacking"] == {"trace.meters_updates": ["below_horizon"]}
    run_day(served, 4)
    assert ask(served, "why", "meters", "gold.meters", "n")["deltas"] == behind
