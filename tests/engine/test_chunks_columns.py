"""Chunking whole tables gives the chunks that the batcher's rule gives row by row, in whatever batches rows come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import (
    BatcherConfig,
    ChunkBatcher,
    ChunkLayout,
    ChunkStore,
    Row,
    chunk_batches,
    chunk_columns,
)
from spark_jobs.engine.chunks.columns import row_sizes
from spark_jobs.engine.chunks.errors import UnsortedRows
from spark_jobs.engine.twins.chunks import naive_cut
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.chunk_tables import LANDING, chunks_from_table

TIMELINES, COMPONENTS = ["seen", "sent"], ["flow", "name"]
LAYOUT = ChunkLayout(entity="pump", row_id="id", timelines=TIMELINES, components=COMPONENTS)
SCHEMA = pa.schema(
    {"pump": pa.string(), "id": pa.int64(), "seen": pa.int64(), "sent": pa.int64()}
    | {"flow": pa.int32(), "name": pa.string()}
)

nullable_times = st.one_of(st.none(), st.integers(0, 6))
cells = st.tuples(
    st.sampled_from(["a", "b", "c"]), nullable_times, nullable_times, st.one_of(st.none(), st.integers(0, 3)),
    st.one_of(st.none(), st.sampled_from(["", "x", "yy"])),
)  # fmt: skip
limits = st.one_of(st.none(), st.integers(0, 6))
configs = st.builds(
    BatcherConfig,
    flush_num_rows=limits,
    flush_num_bytes=st.one_of(st.none(), st.integers(0, 120)),
    max_rows_if_unsorted=st.integers(0, 5),
    split_before_unsorting=st.booleans(),
    keep_sparse_rows=st.just(True),
)


def sorted_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    ordered = [(entity, row_id, *rest) for row_id, (entity, *rest) in enumerate(sorted(rows, key=lambda row: row[0]))]
    columns: list[Sequence[Any]] = [*zip(*ordered, strict=True)] if ordered else [[]] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def as_rows(table: pa.Table) -> list[tuple[str, Row]]:
    sizes = row_sizes(table, LAYOUT).tolist()
    return [
        (
            row["pump"],
            Row(
                row["id"],
                {name: row[name] for name in TIMELINES if row[name] is not None},
                {name: row[name] for name in COMPONENTS},
                {"flow": "int32", "name": "string"},
                size,
            ),
        )
        for row, size in zip(table.to_pylist(), sizes, strict=True)
    ]


def chunk_lists(table: pa.Table, config: BatcherConfig) -> pa.Table:
    return chunk_columns(table, entity="pump", row_id="id", timelines=TIMELINES, components=COMPONENTS, config=config)


def twin_pieces(table: pa.Table, config: BatcherConfig) -> list[list[Row]]:
    pending: list[Row] = []
    pieces: list[list[Row]] = []
    rows = as_rows(table)
    for position, (entity, row) in enumerate(rows):
        pending.append(row)
        full = config.flush_num_rows is not None and len(pending) >= config.flush_num_rows
        full |= config.flush_num_bytes is not None and sum(r.size_bytes for r in pending) >= config.flush_num_bytes
        if full or position + 1 == len(rows) or rows[position + 1][0] != entity:
            pieces += naive_cut(pending, config)
            pending = []
    return sorted(pieces, key=lambda piece: piece[0].row_id)


@pytest.mark.slow
@settings(max_examples=tries(20), deadline=None)
@given(st.lists(cells, max_size=25), configs)
def test_a_table_is_cut_as_its_rows_one_by_one_would_be(rows: list[Any], config: BatcherConfig) -> None:
    table = sorted_table(rows)
    chunks = sorted(chunk_lists(table, config).to_pylist(), key=lambda chunk: chunk["row_ids"][0])
    pieces = twin_pieces(table, config)
    assert [chunk["row_ids"] for chunk in chunks] == [[row.row_id for row in piece] for piece in pieces]
    for chunk, piece in zip(chunks, pieces, strict=True):
        assert chunk["num_rows"] == len(piece)
        for name in TIMELINES:
            times = [row.times[name] for row in piece] if name in piece[0].times else None
            assert chunk[f"time_{name}"] == times
            assert chunk[f"min_{name}"] == (None if times is None else min(times))
            assert chunk[f"max_{name}"] == (None if times is None else max(times))
            assert chunk[f"sorted_{name}"] == (None if times is None else times == sorted(times))
        for name in COMPONENTS:
            values = [row.data[name] for row in piece]
            assert chunk[f"data_{name}"] == (None if all(value is None for value in values) else values)


@settings(max_examples=tries(15), deadline=None)
@given(st.lists(cells, max_size=25), configs)
def test_the_batcher_gives_the_same_chunks_as_the_table(rows: list[Any], config: BatcherConfig) -> None:
    table = sorted_table(rows)
    batcher = ChunkBatcher(config)
    batched = [chunk for entity, row in as_rows(table) for chunk in batcher.push(entity, row)]
    batched += batcher.shutdown()
    from_table = chunk_lists(table, config)["row_ids"].to_pylist()
    assert sorted(from_table) == sorted(chunk.row_ids.tolist() for chunk in batched)


@settings(max_examples=tries(15), deadline=None)
@given(st.lists(cells, max_size=25), configs, st.lists(st.integers(0, 25), max_size=4))
def test_chunks_do_not_depend_on_how_rows_come_in_batches(
    rows: list[Any], config: BatcherConfig, cuts: list[int]
) -> None:
    table = sorted_table(rows)
    bounds = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    batches = [table.slice(lo, hi - lo) for lo, hi in pairwise(bounds)]
    found = [chunk for part in chunk_batches(batches, layout=LAYOUT, config=config) for chunk in part.to_pylist()]
    assert found == chunk_lists(table, config).to_pylist()


@settings(max_examples=tries(15), deadline=None)
@given(st.lists(cells, max_size=25), configs)
def test_no_row_is_lost_and_chunk_rows_answer_as_the_rows_do(rows: list[Any], config: BatcherConfig) -> None:
    table = sorted_table(rows)
    chunks = chunks_from_table(chunk_lists(table, config), timelines=TIMELINES, components=COMPONENTS)
    assert sorted(row_id for chunk in chunks for row_id in chunk.row_ids.tolist()) == table["id"].to_pylist()
    store = ChunkStore()
    for chunk in chunks:
        assert chunk.has_ascending_rows
        store.insert(chunk)
    a_has_static_flow = any(
        row["pump"] == "a" and row["seen"] is None and row["sent"] is None and row["flow"] is not None
        for row in table.to_pylist()
    )
    wanted = sorted(
        (row["seen"], row["id"], row["flow"])
        for row in table.to_pylist()
        if row["pump"] == "a" and row["seen"] is not None and row["flow"] is not None and 1 <= row["seen"] <= 4
    )
    if not a_has_static_flow:
        found = store.range_query("a", "seen", 1, 4, ["flow"]).to_pylist()
        assert [(row["time"], row["row_id"], row["flow"]) for row in found] == wanted


def test_timestamps_keep_their_type_in_lists_and_bounds() -> None:
    at = datetime(2013, 1, 2, 3, tzinfo=UTC)
    table = pa.table({"e": ["x"], "id": [7], "t": pa.array([at], pa.timestamp("us", "UTC")), "v": [1.5]})
    found = chunk_columns(table, entity="e", row_id="id", timelines=["t"], components=["v"], config=LANDING)
    assert found.schema.field("time_t").type == pa.list_(pa.timestamp("us", "UTC"))
    assert found.to_pylist() == [
        {"entity": "x", "num_rows": 1, "row_ids": [7], "time_t": [at], "min_t": at, "max_t": at, "sorted_t": True}
        | {"data_v": [1.5]}
    ]


def test_an_empty_table_gives_no_chunks_but_the_schema() -> None:
    found = chunk_lists(sorted_table([]), LANDING)
    assert found.num_rows == 0
    assert found.schema.field("data_name").type == pa.list_(pa.string())


def test_row_ids_that_do_not_ascend_within_an_entity_are_refused() -> None:
    table = sorted_table([("a", 1, None, 1, None), ("a", 2, None, 1, None)])
    with pytest.raises(UnsortedRows):
        chunk_lists(table.take([1, 0]), LANDING)


def test_a_null_entity_and_columns_that_hold_no_times_or_row_ids_are_refused() -> None:
    table = sorted_table([("a", 1, None, 1, None)])
    with pytest.raises(ParameterError, match="'pump' in every row"):
        chunk_lists(table.set_column(0, "pump", pa.array([None], pa.string())), LANDING)
    with pytest.raises(ParameterError, match="integer or timestamp"):
        chunk_lists(table.set_column(2, "seen", pa.array(["noon"])), LANDING)
    with pytest.raises(ParameterError, match="64 signed bits in column 'seen', found 9223372036854775808"):
        chunk_lists(table.set_column(2, "seen", pa.array([2**63], pa.uint64())), LANDING)
    for ids in (pa.array([2**63], pa.uint64()), pa.array([1.5]), pa.array(["1"])):
        with pytest.raises(ParameterError, match="column 'id'"):
            chunk_lists(table.set_column(1, "id", ids), LANDING)


def test_a_large_sorted_piece_ends_before_the_row_that_would_unsort_it() -> None:
    table = sorted_table([("a", time, None, 1, None) for time in (1, 2, 3, 2, 4)])
    config = BatcherConfig(max_rows_if_unsorted=3, split_before_unsorting=True, keep_sparse_rows=True)
    found = chunk_lists(table, config).to_pylist()
    assert [(chunk["time_seen"], chunk["sorted_seen"]) for chunk in found] == [([1, 2, 3], True), ([2, 4], True)]
