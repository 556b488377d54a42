"""Whole histories, judged at once, against going through them version by version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.measures import judge_history
from tests.effort import tries

Row = dict[str, Any]
TIMES = (1, 2, 3, 4, 5)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("era", pa.string()),
        ("known_from", pa.int64()),
        ("known_to", pa.int64()),
        ("revision", pa.int32()),
    ]
)
ANY_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, "a"]),
            "era": st.sampled_from(["live", "live", "closing", "closed"]),
            "known_from": st.integers(0, 4),
            "known_to": st.integers(1, 6),
            "revision": st.integers(0, 2),
        }
    ).map(lambda row: row | {"known_to": None if row["era"] == "live" else row["known_to"]}),
    max_size=5,
)


def twin(rows: list[Row], *, whole: bool) -> list[int]:
    """The fault of each row, one after another."""
    faults = []
    for row in rows:
        of_thing = [r for r in rows if r["key"] == row["key"]]
        same = [r for r in of_thing if r["known_from"] == row["known_from"]]
        ends = row["known_to"] if row["era"] != "live" else end_of(same)
        if row["known_from"] not in TIMES or (row["known_to"] is not None and row["known_to"] not in TIMES):
            faults.append(1)
        elif ends is not None and ends <= row["known_from"]:
            faults.append(3)
        elif row["era"] == "closing":
            closings = [r for r in same if r["era"] == "closing"]
            faults.append(0 if len(closings) == 1 and any(r["era"] == "live" for r in same) else 2)
        else:
            faults.append(fault_of_version(rows, of_thing, row, whole=whole))
    return faults


def end_of(same: list[Row]) -> int | None:
    return next((r["known_to"] for r in reversed(same) if r["era"] == "closing"), None)


def fault_of_version(rows: list[Row], of_thing: list[Row], row: Row, *, whole: bool) -> int:
    versions = sorted((r for r in of_thing if r["era"] != "closing"), key=lambda r: (r["known_from"], rows.index(r)))
    place = next(n for n, version in enumerate(versions) if version is row)
    if place == 0:
        return 4 if whole and row["revision"] != 0 else 0
    before = versions[place - 1]
    ended = before["known_to"]
    if before["era"] == "live":
        ended = end_of([r for r in of_thing if r["known_from"] == before["known_from"]])
    if ended is None or ended > row["known_from"]:
        return 3
    wanted = before["revision"] + 1 if ended == row["known_from"] else 0
    return 0 if row["revision"] == wanted else 4


def judged(rows: list[Row], *, whole: bool) -> list[int]:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return judge_history(table, ["key"], np.array(TIMES, np.int64), whole=whole).tolist()


@given(rows=ANY_ROWS, whole=st.booleans())
@settings(max_examples=tries(200), deadline=None)
def test_any_rows_are_judged_as_one_by_one(rows: list[Row], whole: bool) -> None:
    rows = [dict(row) for row in rows]  # told apart as objects
    for row in rows:
        same = [r for r in rows if (r["key"], r["known_from"], r["era"]) == (row["key"], row["known_from"], row["era"])]
        if len(same) > 1 and row["era"] != "closing":
            return  # which of two equal ones is first is not said
    assert judged(rows, whole=whole) == twin(rows, whole=whole)


@given(st.lists(st.lists(st.sampled_from(TIMES), unique=True, max_size=5).map(sorted), max_size=3), st.data())
@settings(max_examples=tries(100), deadline=None)
def test_a_history_that_runs_have_written_has_no_fault(changes: list[list[int]], data: st.DataObject) -> None:
    rows: list[Row] = []
    for key, times in enumerate(changes):
        # at each time the version before ends, and another begins or none does
        standing: Row | None = None
        for time in times:
            revision = 0
            if standing is not None:
                revision = standing["revision"] + 1
                settled = data.draw(st.booleans())
                if settled:
                    standing.update(era="closed", known_to=time)
                else:
                    rows.append({**standing, "era": "closing", "known_to": time})
                if data.draw(st.booleans()):
                    standing = None
                    continue
            standing = {"key": str(key), "era": "live", "known_from": time, "known_to": None, "revision": revision}
            rows.append(standing)
    assert judged(rows, whole=True) == [0] * len(rows)


def test_a_closing_row_ends_only_a_version_that_stands() -> None:
    rows = [
        {"key": None, "era": "live", "known_from": 1, "known_to": None, "revision": 0},
        {"key": None, "era": "closing", "known_from": 1, "known_to": 2, "revision": 0},
        {"key": None, "era": "closed", "known_from": 1, "known_to": 3, "revision": 0},
        {"key": None, "era": "live", "known_from": 2, "known_to": None, "revision": 0},
    ]
    assert judged(rows, whole=False) == twin(rows, whole=False) == [0, 0, 3, 3]


def test_no_rows_have_no_fault() -> None:
    assert judged([], whole=True) == []
