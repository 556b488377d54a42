"""Rows that bring a state back: by sums they come out to the bit, or none are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.engine.deltas import EntityState, Status
from spark_jobs.reads.state_reads import _Rows
from spark_jobs.sources import load_source

SOURCE = """
source: meters
start: 2024-01-01
landing: {{path: "meters/{{date}}/*", format: ndjson}}
columns: {{meter: string, id: string, at: timestamp, load: {column}, gone: bool, note: string}}
timelines: [at]
event_time: at
entity: meter
delta_id: id
state: {{mode: add, datatype: {datatype}, components: {{load: load}}, delete_when: gone}}
"""
AT = 1_709_296_200_000_000
GONE = EntityState(Status.DELETED, (), (), 5, 5, 2)


def back(tmp_path: Path, datatype: str, now: EntityState, then: EntityState) -> list[object] | None:
    file = tmp_path / "meters.yml"
    column = "int" if datatype == "int64" else "float"
    file.write_text(SOURCE.format(datatype=datatype, column=column))
    made = _Rows(load_source(file), "a", AT).back(now, then)
    assert all({"id", "meter", "at", "load", "gone", "note"} == {*row} for row in made or ())
    return None if made is None else [row["gone"] if row["load"] is None else row["load"] for row in made]


def live(value: float) -> EntityState:
    return EntityState(Status.LIVE, (value,), (True,), 1, 1, 1)


@pytest.mark.parametrize(
    ("datatype", "now", "then", "made"),
    [
        pytest.param("int64", live(2**62), live(5), [5 - 2**62], id="difference"),
        pytest.param("int64", GONE, live(7), [7], id="from nothing"),
        pytest.param("float64", GONE, live(0.1), [0.1], id="floats from nothing"),
        pytest.param("int64", live(2**62), GONE, [True], id="to nothing"),
        pytest.param("int64", live(-(2**62) - 1), live(2**62), None, id="a difference that is no int64"),
        pytest.param("float64", live(0.1), live(0.3), [0.19999999999999998], id="doubles that come out"),
        pytest.param("float64", live(1e300), live(0.1), None, id="digits lost"),
        # as doubles these come out, as floats of 32 bits they do not
        pytest.param("float32", live(16777216.0), live(0.10000000149011612), None, id="digits lost in 32 bits"),
    ],
)
def test_sums_come_out_to_the_bit_or_no_row_is_made(
    tmp_path: Path, datatype: str, now: EntityState, then: EntityState, made: list[object] | None
) -> None:
    assert back(tmp_path, datatype, now, then) == made
