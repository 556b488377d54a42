"""Rows with equal times: a source's `sequence` orders them, whatever file, drop or run they came with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from tests.jobs.harness import DAY, START, Session, lake_of, published, run, write_lines, write_source

ORDERED = "sequence: [lsn, seq]\n"
SOURCE = f"""
source: items
start: 2024-01-01
landing: {{path: "meters/{{date}}/*", format: ndjson}}
columns: {{id: string, item: string, at: timestamp, lsn: string, seq: int, n: int, op: string}}
timelines: [at]
event_time: at
entity: item
delta_id: id
duplicates: last
{ORDERED}windows:
  hourly:
    kind: tumbling
    size: 1 h
    key: item
    aggregates: {{first_n: first(n), last_n: last(n)}}
state: {{mode: upsert, datatype: int64, components: [n], delete_when: {{op: D}}}}
"""
COLUMNS = ("id", "item", "at", "lsn", "seq", "n", "op")
# drop, file, id, item, minute of the first day, lsn, seq, n, op
ROWS = [
    (0, "a", "1", "x", 10, "0a", 2, 12, "U"),
    (0, "b", "2", "x", 10, "0a", 10, 13, "U"),
    (0, "c", "3", "x", 10, "09", 99, 11, "U"),
    (0, "a", "4", "y", 20, "0b", 1, 21, "U"),
    (1, "a", "5", "y", 20, "0a", 1, 20, "U"),
    (1, "b", "6", "z", 30, "0c", 2, 31, "U"),
    (1, "c", "7", "z", 30, "0c", 1, 0, "D"),
    # told again, and again: the greatest sequence counts, not the newest drop
    (0, "a", "8", "w", 40, "0d", 3, 41, "U"),
    (1, "a", "8", "w", 40, "0d", 5, 42, "U"),
    (1, "b", "8", "w", 40, "0d", 4, 43, "U"),
]
STATES = [("w", 42), ("x", 13), ("y", 21), ("z", 31)]
WINDOWS = [("w", 42, 42), ("x", 11, 13), ("y", 20, 21), ("z", 0, 31)]


def write(settings: Settings) -> None:
    for drop in (0, 1):
        for name in "abc":
            rows = [(*row[2:4], _at(row[4]), *row[5:]) for row in ROWS if row[:2] == (drop, name)]
            lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
            write_lines(settings, drop, lines, f"{name}.ndjson")


def _at(minute: int) -> str:
    return f"2024-01-01T00:{minute:02}:00Z"


def states(lake: Session) -> list[tuple[str, int]]:
    return [(row.item, row.n) for row in lake.sql("SELECT item, n FROM gold.items ORDER BY item").collect()]


def windows(lake: Session) -> list[tuple[str, int, int]]:
    rows = lake.sql("SELECT item, first_n, last_n FROM silver.hourly ORDER BY item").collect()
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("runs", [[(0, 0), (1, 1)], [(1, 1), (0, 0)], [(0, 1), (0, 0)]])
def test_a_sequence_orders_rows_of_one_time_in_any_slicing(
    lake: Session, spark_settings: Settings, tmp_path: Path, runs: list[tuple[int, int]]
) -> None:
    home = write_source(
        spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}), SOURCE, "items"
    )
    write(home)
    for first, last in runs:
        run(lake, home, first, last, source="items")
    assert (states(lake), windows(lake)) == (STATES, WINDOWS)
    chunks, noon = SourceChunks(lake_of(lake), load_source(home.sources / "items.yml")), micros(START + DAY / 2)
    asked = {item: chunks.latest_at(item, "at", noon, ["n"])["n"].value for item, _ in STATES}
    assert list(asked.items()) == STATES
    assert chunks.range_query("x", "at", 0, noon, ["n"])["n"].to_pylist() == [11, 12, 13]


def test_another_sequence_is_another_definition(lake: Session, spark_settings: Settings, tmp_path: Path) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, SOURCE.replace(ORDERED, "").replace("duplicates: last\n", ""), "items")
    write(home)
    run(lake, home, 0, 1, source="items")
    assert ("w", 41) in states(lake), "without both keys the least row id counts"
    write_source(home, SOURCE, "items")
    with pytest.raises(DefinitionChanged, match=r"another delta, state, window\.hourly"):
        run(lake, home, 0, 1, source="items")
    run(lake, home, 0, 1, source="items", accept_definition=True)
    assert (states(lake), windows(lake)) == (STATES, WINDOWS)
    assert not [row for row in published(lake, "gold.refused") if "items" in row]
