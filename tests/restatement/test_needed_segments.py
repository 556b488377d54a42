"""Which published segments and states a run works on, beside the slow twin of the worker's test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from spark_jobs.engine.deltas import CompactionPolicy, Frontiers
from spark_jobs.restatement.chain_needs import Needs, touched_entities
from spark_jobs.restatement.chain_stretches import SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_worker import oldest_age
from spark_jobs.storage.delta.data_files import StoredRows
from tests.restatement.test_chain_worker import needed_rows

PLACES = ("entity", "start_time", "end_time", "settled_end", "ages_from", "era")
SCHEMA = pa.schema([(column, pa.string() if column in ("entity", "era") else pa.int64()) for column in PLACES])
ROWS = pa.schema([("entity", pa.string()), ("event_time", pa.int64())])


def in_a_file(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, where: Any = None) -> StoredRows:
    """The rows as a table's only file has them."""
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    fragments = tuple(ds.dataset(path).get_fragments())
    return StoredRows(fragments, schema, tuple(schema.names), where)


def stored() -> list[dict[str, Any]]:
    """Chains of six entities in three segments each, the newest of two of them old enough, and what closed some."""
    rows = []
    for entity in ("a", "b'`", "c", "d", "e\u00e9", ""):
        for start, end, settled in ((None, 10, None), (10, 20, 12), (20, None, 40)):
            ages = 20 if end is None and entity in ("c", "d") else 39 if end is None and entity == "a" else None
            row = {"entity": entity, "start_time": start, "end_time": end, "settled_end": settled, "ages_from": ages}
            rows += [{**row, "era": era, "part": SEGMENT_PART} for era in ("live", "closing") if era == "live" or start]
    return rows


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("frontiers", [Frontiers(), Frontiers(since=12, horizon=15)])
@pytest.mark.parametrize("age", [None, 20])
def test_a_run_reads_what_its_rows_reach_what_is_of_age_and_what_retention_passed(
    tmp_path: Path, whole: bool, frontiers: Frontiers, age: int | None
) -> None:
    policy, held = CompactionPolicy(age_threshold=age), stored()
    rows = [{"entity": "b'`", "event_time": 15}, {"entity": "b'`", "event_time": 25}, {"entity": "", "event_time": 21}]
    touched = touched_entities(in_a_file(tmp_path, rows, ROWS))
    assert touched is not None
    needs = Needs(touched, frontiers, whole, oldest_age(policy, 50))
    read = in_a_file(tmp_path, held, SCHEMA, needs.segments_where()).whole()
    found = read.filter(pa.array(needs.segments(read))).to_pylist()
    expected = needed_rows(rows, held, frontiers, policy, 50, whole)
    in_order = [repr(tuple(row[c] for c in PLACES)) for row in expected]
    assert sorted(repr(tuple(row.values())) for row in found) == sorted(in_order)
    states = [{"entity": entity, "part": STATE_PART} for entity in ("a", "", "zz", "b'`")]
    of_range = in_a_file(tmp_path, states, pa.schema([("entity", pa.string())]), touched.in_range()).whole()
    needed = needed_rows(rows, [{**s, "end_time": None} for s in states], frontiers, policy, 50, whole)
    of_touched = of_range.filter(pa.array(needs.states(of_range)))["entity"].to_pylist()
    assert sorted(of_touched) == sorted(row["entity"] for row in needed)


def test_no_row_touches_nothing(tmp_path: Path) -> None:
    assert touched_entities(in_a_file(tmp_path, [], ROWS)) is None
