"""The batcher keeps its limits, and never loses or doubles a row, whatever is pushed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import BatcherConfig, Chunk, ChunkBatcher, Row
from spark_jobs.engine.chunks.batcher import chunk_name, cut_rows
from spark_jobs.engine.chunks.errors import DuplicateRow
from spark_jobs.engine.twins.chunks import naive_cut, naive_is_sorted
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.chunk_strategies import row_lists, timeline_sets


@st.composite
def row_streams(draw: st.DrawFn, one_datatype: bool = True) -> list[Row]:
    """Rows of unique ids in any order, with timelines of their own each."""
    ids = draw(st.permutations(range(draw(st.integers(0, 14)))))
    return [row for row_id in ids for row in draw(row_lists([row_id], draw(timeline_sets), one_datatype))]


configs = st.builds(
    BatcherConfig,
    flush_num_rows=st.one_of(st.none(), st.integers(0, 5)),
    flush_num_bytes=st.one_of(st.none(), st.integers(0, 9)),
    max_rows_if_unsorted=st.integers(0, 4),
    split_before_unsorting=st.booleans(),
    keep_sparse_rows=st.booleans(),
)


def row(row_id: int, time: int, value: int | None = 1) -> Row:
    return Row(row_id, {"seen": time}, {"temp": value})


def ids(chunks: list[Chunk]) -> list[list[int]]:
    return [chunk.row_ids.tolist() for chunk in chunks]


@settings(max_examples=tries(20), deadline=None)
@given(row_streams(one_datatype=False), configs)
def test_every_row_with_a_value_comes_out_once_in_a_well_formed_chunk(stream: list[Row], config: BatcherConfig) -> None:
    batcher = ChunkBatcher(config)
    chunks = [chunk for pushed in stream for chunk in batcher.push("pump", pushed)] + batcher.shutdown()
    kept = [pushed.row_id for pushed in stream if pushed.datatypes() or config.keep_sparse_rows]
    assert sorted(row_id for chunk in chunks for row_id in chunk.row_ids.tolist()) == sorted(kept)
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert all(chunk.has_ascending_rows for chunk in chunks)
    assert batcher.shutdown() == []


@settings(max_examples=tries(15), deadline=None)
@given(row_streams(), st.integers(0, 4))
def test_with_split_before_unsorting_no_chunk_beyond_the_limit_is_unsorted(stream: list[Row], limit: int) -> None:
    config = BatcherConfig(max_rows_if_unsorted=limit, split_before_unsorting=True)
    for piece in cut_rows(stream, config):
        assert naive_is_sorted(piece) or len(piece) <= limit


@settings(max_examples=tries(15), deadline=None)
@given(row_streams(), st.integers(0, 4), st.booleans())
def test_pieces_of_one_datatype_are_those_of_the_twin(stream: list[Row], limit: int, split_first: bool) -> None:
    one_type = [replace(pushed, types={}) for pushed in stream]
    config = BatcherConfig(max_rows_if_unsorted=limit, split_before_unsorting=split_first, keep_sparse_rows=True)
    assert sorted(cut_rows(one_type, config), key=_first) == sorted(naive_cut(one_type, config), key=_first)


def test_a_sorted_piece_grows_and_takes_the_row_that_breaks_its_order() -> None:
    batcher = ChunkBatcher(BatcherConfig(max_rows_if_unsorted=2))
    for number, time in enumerate((1, 2, 3, 1, 9)):
        batcher.push("pump", row(number, time))
    assert ids(batcher.flush()) == [[0, 1, 2, 3], [4]]


def test_limits_are_tested_after_the_row_is_added() -> None:
    batcher = ChunkBatcher(BatcherConfig(flush_num_bytes=5))
    assert batcher.push("pump", replace(row(1, 1), size_bytes=4)) == []
    assert ids(batcher.push("pump", replace(row(2, 2), size_bytes=4))) == [[1, 2]]


def test_a_tick_after_a_flush_does_nothing_once() -> None:
    batcher = ChunkBatcher(BatcherConfig(flush_num_rows=2))
    batcher.push("north", row(1, 1))
    batcher.push("south", row(2, 1))
    assert ids(batcher.push("north", row(3, 2))) == [[1, 3]]
    assert batcher.tick() == []
    assert ids(batcher.tick()) == [[2]]


def test_new_limits_hold_from_the_next_push_on() -> None:
    batcher = ChunkBatcher()
    batcher.push("pump", row(1, 1))
    batcher.update_config(flush_num_rows=1)
    assert ids(batcher.push("pump", row(2, 2))) == [[1, 2]]


def test_the_same_rows_get_the_same_chunk_id() -> None:
    first, second = (ChunkBatcher(), ChunkBatcher())
    for batcher in (first, second):
        batcher.push("pump", row(4, 1))
        batcher.push("pump", row(6, 2))
    assert [chunk.id for chunk in first.flush()] == [chunk.id for chunk in second.flush()] == ["pump#4-6/2"]


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ParameterError, match="flush_num_rows"):
        BatcherConfig(flush_num_rows=-1)


class Unnamed(Exception):
    """What a caller's naming of chunks raises."""


def naming_all_but(bad: set[str]) -> Callable[[str, list[Row]], str]:
    def name(entity: str, rows: list[Row]) -> str:
        if entity in bad:
            raise Unnamed(entity)
        return chunk_name(entity, rows)

    return name


@pytest.mark.parametrize("call", ["tick", "flush", "shutdown"])
def test_a_flush_that_fails_loses_no_row_of_any_entity(call: str) -> None:
    bad = {"south"}
    batcher = ChunkBatcher(name_chunk=naming_all_but(bad))
    for number, entity in enumerate(["north", "south", "west", "north"]):
        batcher.push(entity, row(number, 1))
    before = batcher.snapshot()
    with pytest.raises(Unnamed):
        getattr(batcher, call)()
    assert batcher.snapshot() == before
    bad.clear()
    assert ids(batcher.tick()) == [[0, 3], [1], [2]]


def test_a_push_whose_flush_fails_adds_no_row() -> None:
    bad = {"pump"}
    batcher = ChunkBatcher(BatcherConfig(flush_num_rows=2), name_chunk=naming_all_but(bad))
    batcher.push("pump", row(1, 1))
    before = batcher.snapshot()
    with pytest.raises(Unnamed):
        batcher.push("pump", row(2, 1))
    assert batcher.snapshot() == before
    bad.clear()
    assert ids(batcher.push("pump", row(2, 1))) == [[1, 2]]


def test_what_no_chunk_could_hold_is_refused_before_it_waits() -> None:
    batcher = ChunkBatcher()
    batcher.push("pump", row(1, 1))
    before = batcher.snapshot()
    # mypy refuses them, too; a caller may not run it
    for refused in (
        lambda: batcher.push("pump", row(2, 2**63)),
        lambda: batcher.push("pump", Row(2, {"seen": 1.5}, {"temp": 1})),  # type: ignore[dict-item]
        lambda: batcher.push("pump", Row(2, {"seen": 1}, {"temp": 1}, {"temp": ["int"]})),  # type: ignore[dict-item]
        lambda: batcher.push("pump", Row("2", {"seen": 1}, {"temp": 1})),  # type: ignore[arg-type]
        lambda: batcher.push("pump", Row(2, {"seen": 1}, {"temp": 1}, size_bytes=-1)),
        lambda: batcher.push(None, row(2, 1)),  # type: ignore[arg-type]
        lambda: batcher.push("pump", {"row": 2}),  # type: ignore[arg-type]
        lambda: batcher.update_config(flush_rows=2),
        lambda: batcher.update_config(flush_num_rows="2"),
    ):
        with pytest.raises(ParameterError):
            refused()
        assert batcher.snapshot() == before
    assert ids(batcher.flush()) == [[1]]


def test_a_row_id_waits_once() -> None:
    batcher = ChunkBatcher(BatcherConfig(flush_num_rows=2))
    batcher.push("pump", row(1, 1))
    batcher.push("valve", row(1, 1))
    with pytest.raises(DuplicateRow) as refusal:
        batcher.push("pump", row(1, 5))
    assert refusal.value.as_json() == {"code": "duplicate_row", "row": 1}
    assert ids(batcher.push("pump", row(2, 1))) == [[1, 2]]


def _first(piece: list[Row]) -> int:
    return piece[0].row_id
