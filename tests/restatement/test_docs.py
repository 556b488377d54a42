"""The page on source files: every window it shows is read, and its table is what these rows make."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.definitions.definition import Definition
from spark_jobs.sources import parse_source
from spark_jobs.sources.columns import COLUMN_TYPES
from tests.restatement.oracle import EPOCH, Row
from tests.restatement.simulation import Simulation

PAGE = Path(__file__).parents[2] / "dags" / "sources" / "README.md"
_TICK = timedelta(microseconds=1)
Table = list[dict[str, str]]


def tables(text: str) -> list[Table]:
    """The tables of a text, cells as they stand."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        found.append([dict(zip(header, line, strict=True)) for line in lines])
    return found


def examples() -> list[tuple[dict[str, Any], Table]]:
    """Every window that the page shows with its table, which is the first one after it."""
    return [(shown, (tables(rest) or [[]])[0]) for shown, rest in blocks() if "kind" in shown]


def blocks() -> list[tuple[dict[str, Any], str]]:
    """Every part of a source file that the page shows, and the text after it."""
    parts = PAGE.read_text().split("```yaml\n")[1:]
    return [(yaml.safe_load(shown), rest) for shown, _, rest in (part.partition("```") for part in parts)]


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // _TICK


def rows() -> list[Row]:
    made = []
    for place, line in enumerate(tables(PAGE.read_text())[0]):
        lo = micros(line["lands in the drop of"])
        values = {"load": int(line["load"]), "heat": float(line["heat"]), "__bytes": 1}
        made.append(Row(lo, micros(line["at"]), ("m",), lo + place, values, line["row"], "m"))
    return made


def shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def time_shown(time_us: int) -> str:
    time = EPOCH + time_us * _TICK
    return f"{time:%Y-%m-%d %H:%M}{f':{time:%S.%f}' if time.second or time.microsecond else ''}"


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(examples())))
def test_the_page_shows_the_table_that_its_rows_make(place: int) -> None:
    window, table = examples()[place]
    document = {
        "source": "meters",
        "start": "2024-01-01",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {"id": "string", "meter": "string", "at": "timestamp", "load": "int", "heat": "float"},
        "timelines": ["at"],
        "event_time": "at",
        "entity": "meter",
        "delta_id": "id",
        "windows": {"shown": {"key": "meter", **window}},
    }
    name = "shown_emissions" if window.get("emit") == "early" else "shown"
    simulation = Simulation(Definition(parse_source(yaml.safe_dump(document), file="meters.yml"), name))
    simulation.run(rows()[:3])
    simulation.run(rows()[3:])
    made = []
    for (_, start, end, *number), outputs in sorted(simulation.published().items()):
        cells = {"window_start": time_shown(start), "window_end": time_shown(end)}
        cells |= {simulation.definition.kind.identity[-1]: str(number[0])} if number else {}
        times = {"emitted_at": time_shown(outputs.pop("emitted_at"))} if "emitted_at" in outputs else {}
        made.append(cells | times | {name: shown(value) for name, value in outputs.items()})
    assert [{name: row[name] for name in table[0]} for row in made] == table


def test_the_other_parts_of_a_source_file_are_shown_as_they_are_read() -> None:
    types = {"id": "string", "meter": "string", "at": "timestamp", "load": "int", "heat": "float", "gone": "bool"}
    types |= {"op": "string", "cells": "string", "numbers": "string", "factor": "float", "how": "string"}
    types |= {"key": "string", "lsn": "int", "seq": "int"}
    shown = [block for block, _ in blocks() if not {"kind", "columns"} & {*block}]
    busy = {"key": "meter", "kind": "tumbling", "size": "1h", "aggregates": {"n": "count()"}}
    modes = {"add": "{mode: add, components: [load]}", "diff": "{mode: diff, components: [load]}"}
    for part in [*shown, *({"state": yaml.safe_load(text)} for text in modes.values())]:
        document = {
            "source": "meters",
            "start": "2024-01-01",
            "landing": {"path": "meters/{date}/*", "format": "ndjson"},
            "columns": {**types, "after": "string"},
            "timelines": ["at"],
            "event_time": "at",
            "entity": "meter",
            "delta_id": "id",
            "state": yaml.safe_load(modes["add"]),
            "windows": {"busy_hours": busy},
            **part,
        }
        assert parse_source(yaml.safe_dump(document), file="meters.yml").state is not None
    assert [next(iter(part)) for part in shown] == [
        "start",
        "landing",
        "landing",
        "landing",
        "delta_id",
        "state",
        "state",
        "compaction",
        "checks",
        "dag",
    ]


def test_the_page_shows_every_type_of_a_column() -> None:
    ((part, _),) = [(block, rest) for block, rest in blocks() if "columns" in block]
    document = {
        "source": "meters",
        "start": "2024-01-01",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "timelines": ["at"],
        "event_time": "at",
        "entity": "meter",
        **part,
    }
    columns = parse_source(yaml.safe_dump(document), file="meters.yml").columns
    assert {column.kind for column in columns.values()} == {kind.partition("(")[0] for kind in COLUMN_TYPES}
    assert columns["tax"].digits == (9, 4)


def test_every_kind_has_an_example() -> None:
    assert {window["kind"] for window, _ in examples()} == {
        "tumbling", "hopping", "calendar", "sliding", "session", "adaptive",
    }  # fmt: skip
