"""Live rows and the closing rows that end some of them, where both are brought together."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.engine.restatement import CLOSING, LIVE, without_closed


def _rows(*rows: tuple[str, int, str]) -> pa.Table:
    key, known_from, era = zip(*rows, strict=True)
    values = [[i] for i in range(len(rows))]
    return pa.table({"key": key, "known_from": known_from, "era": era, "values": values})


def test_a_closing_row_ends_the_live_row_of_its_identity_and_time_alone() -> None:
    rows = _rows(("a", 1, LIVE), ("a", 1, CLOSING), ("a", 2, LIVE), ("b", 1, LIVE), ("b", 2, CLOSING))
    left = without_closed(rows, ["key"])
    assert left.sort_by("key").to_pylist() == [
        {"key": "a", "known_from": 2, "values": [2]},
        {"key": "b", "known_from": 1, "values": [3]},
    ]


def test_rows_without_a_closing_stay_as_they_are() -> None:
    rows = _rows(("a", 1, LIVE), ("b", 1, LIVE))
    assert without_closed(rows, ["key"]).equals(rows.drop_columns(["era"]))
