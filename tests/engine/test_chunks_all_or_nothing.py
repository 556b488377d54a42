"""An operation of a store that fails, wherever it fails, leaves the store as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import Chunk, ChunkStore, GcOptions, StoreConfig
from spark_jobs.engine.chunks.errors import UnsortedRows
from spark_jobs.engine.chunks.index import ChunkCatalog, StoredChunk
from spark_jobs.engine.twins.chunks import NaiveStore
from tests.effort import tries
from tests.engine.chunk_store_contract import chunk, on_day, rows
from tests.engine.chunk_strategies import ENTITIES, TIMELINES, Spec, chunk_specs, store_configs, times
from tests.engine.test_chunks_twin import assert_same_answers

CHANGES = ("put", "grow", "rename", "remove", "take_slot")


class Failure(Exception):
    """A fault in the middle of an operation."""


@contextmanager
def failing_at(number: int) -> Iterator[None]:
    """The catalog fails after this many changes have been made."""
    left = number

    def failing(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: ChunkCatalog, *arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Failure
            left -= 1
            return change(self, *arguments)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(ChunkCatalog, name, failing(getattr(ChunkCatalog, name)))
        yield


def made(spec: Spec) -> Chunk:
    return Chunk.from_rows(spec.id, spec.entity, spec.rows)


@settings(max_examples=tries(80), deadline=None)
@given(chunk_specs(), store_configs(), st.data())
def test_a_change_that_fails_half_way_is_taken_back(
    specs: list[Spec], config: StoreConfig, data: st.DataObject
) -> None:
    store, twin = ChunkStore(config), NaiveStore(config)
    first = data.draw(st.integers(0, len(specs)))
    for spec in specs[:first]:
        store.insert(made(spec))
        twin.insert(spec.id, spec.entity, spec.rows)
    timeline, lo, width = data.draw(st.tuples(st.sampled_from(TIMELINES), times, st.integers(0, 5)))
    entity = data.draw(st.sampled_from(ENTITIES))
    operations: dict[str, Callable[[], object]] = {
        "insert": lambda: store.insert(made(specs[-1])),
        "insert_all": lambda: store.insert_all([made(spec) for spec in specs]),
        "drop_time_range": lambda: store.drop_time_range(timeline, lo, lo + width),
        "drop_entity": lambda: store.drop_entity(entity),
        "gc": lambda: store.gc(GcOptions(protect_latest=1)),
        "compact": lambda: store.compact(StoreConfig(max_rows=4, max_rows_if_unsorted=3)),
    }
    before, ids = store.snapshot(), [held.id for held in store.chunks()]
    operation = operations[data.draw(st.sampled_from(sorted(operations)))]
    with failing_at(data.draw(st.integers(0, 8))):
        try:
            operation()
        except Failure:
            assert store.snapshot() == before
            assert [held.id for held in store.chunks()] == ids
        else:
            return
    assert_same_answers((store, twin))
    for spec in specs:
        report = store.insert(made(spec))
        assert (report.changed, list(report.deleted)) == twin.insert(spec.id, spec.entity, spec.rows)
    assert_same_answers((store, twin))


def test_a_batch_that_deletes_a_chunk_and_then_brings_it_out_of_order_is_refused_whole() -> None:
    store = ChunkStore()
    store.insert(chunk("old", rows((1, {}, {"flow": 1}), (2, {}, {"flow": 1}))))
    before = store.snapshot()
    newer = chunk("new", rows((9, {}, {"flow": 1})))
    out_of_order = chunk("old", rows((2, {}, {"heat": 1}), (1, {}, {"heat": 1})))
    with pytest.raises(UnsortedRows):
        store.insert_all([newer, out_of_order])
    assert store.snapshot() == before


def test_no_two_chunks_share_an_id_whatever_ids_callers_choose() -> None:
    store = ChunkStore(StoreConfig(max_bytes=100, max_rows=2, max_rows_if_unsorted=2))
    store.insert(chunk("a", on_day((1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1))))
    assert [held.id for held in store.chunks()] == ["a", "a~3", "a~5"]
    store.insert(chunk("a~3", on_day((6, 90, 1))))
    assert sorted(held.id for held in store.chunks()) == ["a", "a~3", "a~3~", "a~5"]
    assert store.relevant_range("pump", "day", 90, 90) == ["a~3"]
    store.insert(chunk("b", on_day((7, 91, 1))))
    assert store.relevant_range("pump", "day", 90, 91) == ["a~3+"]
    store.insert(chunk("a~3+", on_day((8, 99, 1)), entity="valve"))
    assert store.relevant_range("valve", "day", 0, 99) == ["a~3+"]
    assert store.drop_time_range("day", 4, 4) == 1
    held = [held.id for held in store.chunks()]
    assert len(set(held)) == len(held)
    again = chunk("a", on_day((1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1)))
    assert store.insert(again).changed, "pieces of a split are replaced, whatever their names"
    assert sorted(row_id for held in store.chunks() for row_id in held.row_ids.tolist()) == list(range(1, 9))


def test_what_holds_rows_of_a_protected_chunk_is_not_collected() -> None:
    store = ChunkStore(StoreConfig.off())
    store.insert(chunk("a", on_day((1, 1, 1), (2, 2, 1), (3, 3, 1))))
    store.insert(chunk("b", on_day((4, 9, 1))))
    store.drop_time_range("day", 2, 2)
    assert store.gc(GcOptions(protected_chunks=frozenset(["a"]))) == ["b"]
    assert [held.id for held in store.chunks()] == ["a", "a~3"]
    assert store.gc(GcOptions(protected_chunks=frozenset(["a~3"]))) == ["a"]


def test_chunks_that_shared_a_name_before_keep_working() -> None:
    parts = [chunk("a", on_day((1, 1, 1), (2, 2, 1))), chunk("a", on_day((3, 3, 1), (4, 4, 1)))]
    store = ChunkStore.restore([StoredChunk(part, {"a"}, from_split=True) for part in parts], StoreConfig.off())
    assert store.drop_time_range("day", 1, 1) == 1
    store.insert(chunk("b", on_day((9, 9, 1))))
    assert store.gc(GcOptions(free_bytes=1)) == ["a"]
    assert store.insert(chunk("a", on_day((1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)))).changed
    assert [held.id for held in store.chunks()] == ["a", "b"]
    assert store.drop_entity("pump") == ["a", "b"]
