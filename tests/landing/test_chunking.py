"""Landed rows become chunks of one drop, one entity and one diff, in whatever batches they come."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.landing.chunking import _Chunker
from spark_jobs.sources import load_source
from spark_jobs.sources.drops import first_row_id, row_id
from spark_jobs.storage.descriptions.tables import chunks

SOURCE = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns: {meter: string, at: timestamp, load: int}
timelines: [at]
event_time: at
entity: meter
"""
ROWS = [
    # drop, diff, entity, line, load
    (0, -1, "a", 1, 1),
    (0, 1, "a", 1, 2),
    (0, 1, "a", 3, None),
    (0, 1, "b", 2, 3),
    (1, 1, "b", 2, 4),
]


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_a_chunk_is_of_one_drop_one_entity_and_one_diff(tmp_path: Path, batch_rows: int) -> None:
    (tmp_path / "meters.yml").write_text(SOURCE)
    source = load_source(tmp_path / "meters.yml")
    ids = [row_id(first_row_id(drop, "a"), line) for drop, _, _, line, _ in ROWS]
    at = pa.array(ids, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table(
        {
            **{name: pa.array([row[i] for row in ROWS], pa.int64()) for name, i in (("seq_no", 0), ("diff", 1))},
            "entity": [row[2] for row in ROWS],
            "row_id": pa.array(ids, pa.int64()),
            "event_time": at,
            "t_at": at,
            "delta_id": pa.nulls(len(ROWS), pa.string()),
            "c_meter": [row[2] for row in ROWS],
            "c_at": at,
            "c_load": pa.array([row[4] for row in ROWS], pa.int64()),
            "extra": pa.nulls(len(ROWS), pa.map_(pa.string(), pa.string())),
        }
    )
    made = pa.Table.from_batches([*_Chunker(source, 7)(iter(table.to_batches(max_chunksize=batch_rows)))])
    assert made.column_names == chunks(source).column_names
    told = ("seq_no", "diff", "entity", "row_ids", "c_load", "landing")
    assert sorted(tuple(row[name] for name in told) for row in made.to_pylist()) == [
        (0, -1, "a", ids[:1], [1], 7),
        (0, 1, "a", ids[1:3], [2, None], 7),
        (0, 1, "b", ids[3:4], [3], 7),
        (1, 1, "b", ids[4:], [4], 7),
    ]
    assert len(set(made["chunk_id"].to_pylist())) == made.num_rows
