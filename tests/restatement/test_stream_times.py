"""Cutoffs under a grace against Kafka's algorithm, record by record: rows come late, go, and are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.definitions.definition import Definition
from spark_jobs.restatement import stream_times
from spark_jobs.restatement.cutoffs import Cutoffs, CutoffsOfRows
from spark_jobs.sources import parse_source
from spark_jobs.storage.delta.data_files import StoredRows
from tests.effort import tries

SECOND = 1_000_000
GRACE = 3 * SECOND
US = pa.timestamp("us", "UTC")
PUBLISHED = 100 * SECOND


@cache
def definition(kind: str) -> Definition:
    shape = {"kind": "sliding", "size": "2 s", "tick": "1 s"} if kind == "sliding" else {"kind": kind, "size": "4 s"}
    document = {
        "source": "meters",
        "start": "1970-01-01",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {"off": "int", "part": "string", "meter": "string", "at": "timestamp", "load": "int"},
        "timelines": ["at"],
        "event_time": "at",
        "entity": "meter",
        "sequence": "off",
        "windows": {
            "w": {
                **shape,
                "key": "meter",
                "aggregates": {"s": "sum(load)"},
                "grace": {"period": "3 s", "stream": "part"},
            }
        },
    }
    return Definition(parse_source(yaml.safe_dump(document), file="meters.yml"), "w")


@dataclass(frozen=True)
class Record:
    """A version of a row, and the updates by which it came and went: `+1` and `-1`, each published or fresh."""

    drop: int
    offset: int
    line: int
    part: str | None
    meter: str | None
    time: int
    load: int | None
    came_fresh: bool
    went: str | None

    @property
    def row_id(self) -> int:
        return self.drop * 1000 + self.line

    def stands(self, *, before: bool) -> bool:
        if before:
            return not self.came_fresh and self.went != "published"
        return self.went is None


records = st.builds(
    Record,
    drop=st.integers(0, 3),
    offset=st.integers(0, 5),
    line=st.integers(1, 40),
    part=st.sampled_from(["a", "b", None]),
    meter=st.sampled_from(["m", "n", None]),
    time=st.integers(0, 20 * SECOND),
    load=st.none() | st.just(1),
    came_fresh=st.booleans(),
    went=st.sampled_from([None, None, None, "fresh", "published"]),
).map(lambda r: r if not (r.came_fresh and r.went == "published") else r.__class__(**{**r.__dict__, "went": "fresh"}))


def closing_times(kind: str, rows: Sequence[Record]) -> dict[int, int]:
    """Kafka's algorithm: the stream time of each partition less the grace, when each record arrived."""
    found: dict[int, int] = {}
    reached: dict[str | None, int] = {}
    for row in sorted(rows, key=lambda row: (row.drop, row.offset, row.row_id)):
        if row.meter is None or (kind == "sliding" and row.load is None):
            continue
        time = row.time // SECOND * SECOND if kind == "sliding" else row.time
        reached[row.part] = max(reached.get(row.part, time), time)
        first_end = time if kind == "sliding" else (time // (4 * SECOND) + 1) * 4 * SECOND - 1
        if first_end < reached[row.part] - GRACE:
            found[row.row_id] = reached[row.part] - GRACE
    return found


def updates(kind: str, rows: Sequence[Record]) -> pa.Table:
    updates = []
    for row in rows:
        came = [(1, row.came_fresh)]
        went = [(-1, row.went == "fresh")] if row.went is not None else []
        for diff, fresh in came + went:
            updates.append(
                {
                    "row_id": row.row_id, "seq_no": row.drop, "time": PUBLISHED + fresh, "event_time": row.time,
                    "diff": diff, "t_at": row.time, "c_meter": row.meter, "c_part": row.part, "c_off": row.offset,
                    "c_load": row.load,
                }
            )  # fmt: skip
    times = [("time", US), ("event_time", US), ("t_at", US)]
    whole = [(name, pa.int64()) for name in ("row_id", "seq_no", "diff", "c_off", "c_load")]
    schema = pa.schema([*times, *whole, ("c_meter", pa.string()), ("c_part", pa.string())])
    return pa.Table.from_pylist(updates, schema=schema)


def find(kind: str, table: pa.Table) -> Cutoffs:
    def read(columns: Sequence[str], where: pc.Expression | None) -> StoredRows:
        rows = table if where is None else table.filter(where)
        return StoredRows((), rows.schema, tuple(columns), None, beside=rows)

    return stream_times.find_cutoffs(definition(kind), read, (PUBLISHED + 1, 2**62))


def listed(rows: CutoffsOfRows) -> dict[int, int]:
    return dict(zip(rows.row_ids.tolist(), rows.cutoffs.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["sliding", "tumbling"])
@pytest.mark.parametrize("rows_at_once", [1, 1 << 20])
@settings(max_examples=tries(60), deadline=None)
@given(st.lists(records, max_size=14, unique_by=lambda row: row.row_id), st.randoms())
def test_cutoffs_are_kafkas_stream_time_less_the_grace(
    kind: str, rows_at_once: int, rows: list[Record], chance: Any
) -> None:
    table = updates(kind, rows)
    table = table.take(pa.array(chance.sample(range(table.num_rows), table.num_rows), pa.int64()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_times, "ROWS_AT_ONCE", rows_at_once)
        cutoffs = find(kind, table)
    before, now = (closing_times(kind, [r for r in rows if r.stands(before=at)]) for at in (True, False))
    assert (listed(cutoffs.before), listed(cutoffs.now)) == (before, now)
    stay = [r.row_id for r in rows if r.stands(before=True) and r.stands(before=False)]
    assert cutoffs.changed == any(before.get(row_id) != now.get(row_id) for row_id in stay)


def test_a_row_that_goes_is_judged_as_when_it_counted() -> None:
    rows = CutoffsOfRows(np.array([1, 2]), np.array([10, 20])), CutoffsOfRows(np.array([2, 3]), np.array([21, 30]))
    table = pa.table({"row_id": [1, 2, 2, 3, 4], "diff": [-1, -1, 1, 1, 1]})
    times, fresh = np.array([5, 6, 7, 8, 9]), np.array([True] * 5)
    assert Cutoffs(*rows).of(table, times, fresh).tolist() == [10, 20, 21, 30, 9]
    assert Cutoffs(*rows).of(table, times, ~fresh).tolist() == [10, 20, 20, 8, 9]
