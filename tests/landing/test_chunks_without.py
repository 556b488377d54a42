"""Rows leave chunks: each chunk is then what its other rows alone would have made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.audit.chunks import judged_chunks
from spark_jobs.engine.chunks import chunk_rows, chunks_at
from spark_jobs.landing.chunking import chunks_without, merged_chunks, named_chunks, row_layout
from spark_jobs.sources import Source, parse_source
from spark_jobs.sources.drops import PLACE_BITS

TEXT = """
source: orders
start: 2024-01-01
every: 1 day
landing: {path: "orders/{date}/*", format: ndjson}
columns: {id: string, shop: string, customer: string, at: timestamp, paid: timestamp, load: int}
timelines: {taken: at, paid: paid}
event_time: taken
entity: shop
delta_id: id
"""
COUNTS = (1, 4, 3, 2, 5)


@pytest.fixture(scope="module")
def source() -> Source:
    return parse_source(TEXT, file="orders.yml")


def rows_of(source: Source, random: np.random.Generator) -> pa.Table:
    """Rows of one chunk after the other; the second chunk has no value of `customer`, the third no time of `paid`."""
    n = sum(COUNTS)
    of_chunk = np.repeat(np.arange(len(COUNTS)), COUNTS)
    at = pa.array(random.integers(0, 10, n) * 1_000_000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    texts = np.array([f"c{k}" for k in random.integers(0, 3, n)], object)
    return pa.table(
        {
            "entity": pa.array([f"S{k}" for k in of_chunk]),
            "row_id": pa.array((np.arange(n) << PLACE_BITS) + 5),
            "event_time": at,
            "t_taken": at,
            "t_paid": pa.array(at.cast(pa.int64()).to_numpy(), mask=of_chunk == 2).cast(pa.timestamp("us", "UTC")),
            "delta_id": pa.array([f"d{k}" for k in range(n)]),
            "c_id": pa.array([f"d{k}" for k in range(n)]),
            "c_shop": pa.array([f"S{k}" for k in of_chunk]),
            "c_customer": pa.array(texts, pa.string(), mask=of_chunk == 1),
            "c_at": at,
            "c_paid": at,
            "c_load": pa.array(random.integers(0, 9, n), mask=random.random(n) < 0.5),
            "extra": pa.array([[("k", "v")]] * n, pa.map_(pa.string(), pa.string())),
            "landing": pa.array(random.integers(1, 4, n)),
        }
    )


def chunks_of(source: Source, rows: pa.Table, counts: list[int], *, merged: bool) -> pa.Table:
    starts = np.cumsum([0, *counts])[:-1]
    layout = row_layout(source)
    if merged:
        layout = type(layout)(
            entity=layout.entity,
            row_id=layout.row_id,
            timelines=layout.timelines,
            components=[*layout.components, "landing"],
        )
        return merged_chunks(source, chunks_at(rows, starts, layout), diff=1, landing=3, writer="merged")
    return named_chunks(source, chunks_at(rows, starts, layout), seq_no=0, diff=1, landing=3)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("merged", [True, False])
def test_what_stays_is_what_other_rows_alone_would_have_made(source: Source, seed: int, *, merged: bool) -> None:
    random = np.random.default_rng(seed)
    rows = rows_of(source, random)
    going = random.random(rows.num_rows) < random.choice([0.1, 0.5, 1.0])
    of_chunk = np.repeat(np.arange(len(COUNTS)), COUNTS)
    stored = chunks_of(source, rows, list(COUNTS), merged=merged).append_column(
        "c_undeclared", pa.array([[k] * count for k, count in enumerate(COUNTS)], pa.list_(pa.int64()))
    )
    left = chunks_without(source, stored, going)
    counts = np.bincount(of_chunk[~going], minlength=len(COUNTS))
    if going.all():
        assert (left.num_rows, left.schema) == (0, stored.schema)
        return
    wanted = chunks_of(source, rows.filter(pa.array(~going)), counts[counts > 0].tolist(), merged=merged)
    # a chunk keeps its name, and, if it lost no row, its drop and its landings
    same = [name for name in wanted.column_names if name not in ("chunk_id", "seq_no", "landings")]
    assert left.select(same).to_pylist() == wanted.select(same).to_pylist()
    assert left["chunk_id"].to_pylist() == stored["chunk_id"].filter(pa.array(counts > 0)).to_pylist()
    assert left["c_undeclared"].to_pylist() == [[k] * n for k, n in enumerate(counts.tolist()) if n]
    assert left.schema == stored.schema
    assert not merged or judged_chunks(left, source)[0] == []
    lists = chunk_rows(left, rows="rows", arrays={"landing": "landings"}, same=())
    landings = [3 if landing is None else landing for landing in lists["landing"].to_pylist()]
    assert not merged or landings == rows["landing"].filter(pa.array(~going)).to_pylist()
