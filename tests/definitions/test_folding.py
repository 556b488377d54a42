"""A source's rows folded into states, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.definitions.folding import fold_rows
from spark_jobs.sources import parse_source

SOURCE = """
source: meters
start: 2026-01-01
landing: {format: csv, path: "{date}.csv"}
columns: {meter: string, at: timestamp, n: int}
timelines: {measured: at}
event_time: measured
entity: meter
state: {mode: %s, components: %s}
"""


@pytest.mark.parametrize(
    ("mode", "components", "vector"),
    [("add", "[n]", [2.0**53]), ("diff", "[n]", [2.0**53]), ("add", "{n: n, share: 0.5}", [2.0**53, 0.5])],
)
def test_a_state_of_doubles_takes_whole_numbers_and_fractions(mode: str, components: str, vector: list[float]) -> None:
    source = parse_source(SOURCE % (mode, components), file="meters.yml")
    rows = pa.table({"entity": ["a"], "event_time": [1], "row_id": [1], "diff": [1], "v_n": [2**53 + 1]})
    (state,) = fold_rows(rows, source).to_pylist()
    assert state["vector"] == vector
