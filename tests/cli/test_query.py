"""`tidemark query`: the landed rows of an entity, read in the command's own process, without a lake server."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli import app as command_line
from spark_jobs.config import Settings
from spark_jobs.engine.chunks import Row
from tests.engine.landed_rows import latest_of, range_of
from tests.jobs.harness import START, run, write_lines, write_source
from tests.support.file_session import open_file_session

SOURCE = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, seen: timestamp, load: {type: int, optional: true},
          heat: {type: float, optional: true}, note: {type: string, optional: true}}
timelines: {taken: at, seen: seen}
event_time: [taken, seen]
entity: meter
"""


def minutes(number: int) -> datetime:
    return START + timedelta(minutes=number)


def line(meter: str, row: Row) -> str:
    taken, seen = row.times["taken"], row.times["seen"]
    times = {"at": minutes(taken).isoformat(), "seen": minutes(seen).isoformat()}
    return json.dumps({"id": f"{meter}{taken}-{seen}", "meter": meter, **times, **row.data})


def random_files(chance: random.Random) -> dict[tuple[int, str], list[tuple[str, Row]]]:
    """Rows of 30 meters in files of three drops; a meter's times never tie, so that row ids order nothing."""
    files: dict[tuple[int, str], list[tuple[str, Row]]] = {}
    for number in range(30):
        taken, seen = (chance.sample(range(60), 9) for _ in range(2))
        for place in range(9):
            values = {name: chance.choice([None, None, chance.randint(0, 99)]) for name in ("load", "heat")}
            row = Row(0, {"taken": taken[place], "seen": seen[place]}, values)
            files.setdefault((chance.randrange(3), chance.choice("ab")), []).append((f"m{number}", row))
    return files


def test_the_command_answers_with_what_was_not_taken_back(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20240117)
    settings = write_source(settings.model_copy(update={"lake": str(tmp_path / "lake")}), SOURCE)
    files = random_files(chance)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def write(drop: int, file: str) -> None:
        write_lines(settings, drop, [line(m, r) for m, r in files[drop, file]], f"{file}.ndjson")

    def asked(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        code = command_line.run(["query", "meters", *arguments, "--components", "load,heat", "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert code == 0, answer
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    with open_file_session(tmp_path / "lake") as session:
        for drop, file in files:
            write(drop, file)
        run(session, settings, 0, 2)
        run(session, settings, 0, 0, retract=True, only_file="meters/2024-01-01/a.ndjson")
        del files[0, "a"]
        files[1, "b"] = [pair for pair in files[1, "b"] if chance.random() < 0.5]
        write(1, "b")
        run(session, settings, 1, 1)
        assert [*(tmp_path / "lake" / "bronze.db" / "meters_chunks" / "_index").glob("*.json")]
        for meter in (f"m{number}" for number in range(30)):
            rows = [row for rows in files.values() for owner, row in rows if owner == meter]
            timeline, at = chance.choice(["taken", "seen"]), chance.randint(20, 60)
            answer = asked("--entity", meter, "--timeline", timeline, "--latest-at", minutes(at).isoformat())
            got = {row["component"]: (datetime.fromisoformat(row["time"]), row["value"]) for row in answer}
            expected = latest_of(rows, timeline, at, ["load", "heat"])
            assert got == {name: (minutes(time), value) for name, (time, _, value) in expected.items()}, meter
            ends = ("--from", minutes(10).isoformat(), "--to", minutes(at).isoformat())
            got_rows = [
                (datetime.fromisoformat(row["time"]), row["load"], row["heat"])
                for row in asked("--entity", meter, "--timeline", timeline, *ends)
            ]
            expected_rows = range_of(rows, timeline, 10, at, ["load", "heat"])
            wanted = [(None if time is None else minutes(time), *values) for _, time, *values in expected_rows]
            assert got_rows == wanted, meter
