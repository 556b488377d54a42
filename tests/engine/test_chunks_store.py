"""The in-memory store keeps the contract, and what only its own interface shows."""

from __future__ import annotations

import doctest
import random
from statistics import mean

import numpy as np
import pytest

import spark_jobs.engine.chunks
from spark_jobs.engine.chunks import Chunk, ChunkStore, ComponentColumn, GcOptions, Row, StoreConfig, TimeColumn
from spark_jobs.engine.chunks.errors import DifferentDatatypes, MixedDatatypes, MixedTimelines
from spark_jobs.engine.chunks.gc import Candidate, choose
from spark_jobs.errors import ParameterError
from tests.engine.chunk_store_contract import ChunkStoreContract, chunk, on_day, rows


class TestInMemoryStore(ChunkStoreContract):
    def new_store(self, config: StoreConfig) -> ChunkStore:
        return ChunkStore(config)


def typed_chunk(name: str, first: int, count: int) -> Chunk:
    """A chunk of numpy columns: row ids and times from `first` on."""
    ids = np.arange(first, first + count)
    return Chunk.from_columns(
        name,
        "pump",
        row_ids=ids,
        times={"day": ids * 10},
        components={"flow": ComponentColumn.of("double", ids / 2)},
    )


def test_columns_and_rows_build_the_same_chunk() -> None:
    from_columns = typed_chunk("a", 1, 3)
    from_rows = Chunk.from_rows(
        "a", "pump", [Row(i, {"day": i * 10}, {"flow": i / 2}, {"flow": "double"}) for i in (1, 2, 3)]
    )
    assert from_columns.row_ids.tolist() == from_rows.row_ids.tolist()
    assert from_columns.size_bytes == from_rows.size_bytes == 3
    assert from_columns.time_range("day", "flow") == from_rows.time_range("day", "flow") == (10, 30)
    assert from_columns.components["flow"].values.tolist() == from_rows.components["flow"].values.tolist()


def test_typed_columns_keep_their_dtype_through_a_merge_that_adds_nulls() -> None:
    store = ChunkStore()
    store.insert(typed_chunk("a", 1, 2))
    other = Chunk.from_columns(
        "b",
        "pump",
        row_ids=np.array([3, 4]),
        times={"day": np.array([30, 40])},
        components={
            "heat": ComponentColumn.of("int64", np.array([7, 8])),
            "flow": ComponentColumn.of("double", np.array([0.0, 2.5]), np.array([False, True])),
        },
    )
    store.insert(other)
    (merged,) = store.chunks()
    assert merged.components["flow"].values.dtype == np.float64
    assert merged.components["flow"].valid.tolist() == [True, True, False, True]
    assert merged.components["heat"].values.dtype == np.int64
    assert merged.components["heat"].valid.tolist() == [False, False, True, True]
    assert store.range_query("pump", "day", 0, 99, ["flow", "heat"])["flow"].to_pylist() == [0.5, 1.0, None, 2.5]


def test_a_change_of_datatype_keeps_values_exact_and_refuses_one_table() -> None:
    store = ChunkStore()
    large = 2**53 + 1
    store.insert(
        Chunk.from_columns(
            "a",
            "pump",
            row_ids=np.array([1]),
            times={"day": np.array([5])},
            components={"flow": ComponentColumn.of("int64", np.array([large]))},
        )
    )
    store.insert(typed_chunk("b", 2, 1))
    assert store.range("pump", "day", 0, 99, "flow").values.tolist() == [large, 1.0]
    with pytest.raises(DifferentDatatypes, match="'flow'"):
        store.range_query("pump", "day", 0, 99, ["flow"])
    assert store.range_query("pump", "day", 0, 5, ["flow"])["flow"].to_pylist() == [large]


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ParameterError, match="columns of 2 rows"):
        Chunk.from_columns("a", "pump", row_ids=np.array([1, 2]), times={"day": np.array([1])}, components={})


def test_a_time_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ParameterError, match="64-bit"):
        chunk("a", on_day((1, 2**63, 1)))


def test_mixed_rows_are_refused_with_the_component_named() -> None:
    with pytest.raises(MixedTimelines):
        chunk("a", rows((1, {"day": 1}, {"flow": 1}), (2, {}, {"flow": 1})))
    with pytest.raises(MixedDatatypes) as refusal:
        Chunk.from_rows("a", "p", [Row(1, {}, {"v": 1}, {"v": "int64"}), Row(2, {}, {"v": 1.5}, {"v": "double"})])
    assert refusal.value.as_json() == {"code": "mixed_datatypes", "component": "v"}


def test_row_ids_above_64_signed_bits_stay_exact() -> None:
    store = ChunkStore()
    store.insert(chunk("a", on_day((2**64 - 2, 1, "x"), (2**64 - 1, 1, "y"))))
    store.insert(chunk("b", on_day((5, 1, "z"))))
    latest = store.latest("pump", "day", 1, "flow")
    assert latest is not None
    assert latest.row_id == 2**64 - 1
    assert [held.row_ids.tolist() for held in store.chunks()] == [[5, 2**64 - 2, 2**64 - 1]]


def test_queries_at_the_ends_of_time_find_what_is_there() -> None:
    least, greatest = -(2**63), 2**63 - 1
    store = ChunkStore()
    store.insert(chunk("a", on_day((1, least, 1), (2, greatest, 2))))
    assert store.range("pump", "day", least, greatest, "flow").row_ids.tolist() == [1, 2]
    assert store.range("pump", "day", least + 1, greatest - 1, "flow", extended=True).row_ids.tolist() == [1, 2]
    assert store.next_time("day", least) == greatest
    assert store.prev_time("day", least) is None
    assert store.gc(GcOptions(furthest_from=("day", least))) == ["a"]


def test_a_chunk_that_was_cut_by_a_drop_stays_known() -> None:
    store = ChunkStore(StoreConfig.off())
    whole = chunk("a", on_day((1, 1, 1), (2, 2, 2), (3, 3, 3)))
    store.insert(whole)
    store.drop_time_range("day", 2, 2)
    assert not store.insert(whole).changed
    store.drop_time_range("day", 0, 9)
    assert store.insert(whole).changed


def test_component_columns_know_their_valid_rows() -> None:
    column = ComponentColumn.of("int64", np.array([1, 2, 3]), np.array([True, False, True]))
    assert not column.all_valid
    assert column.take(np.array([0, 2])).all_valid


def test_a_time_column_is_sorted_when_no_time_decreases() -> None:
    assert TimeColumn.of(np.array([1, 1, 2])).is_sorted
    assert not TimeColumn.of(np.array([1, 3, 2])).is_sorted
    assert (TimeColumn.of(np.array([4, 9, 2])).min, TimeColumn.of(np.array([4, 9, 2])).max) == (2, 9)


def test_a_collection_looks_at_chunks_of_two_entities_that_number_their_rows_alike() -> None:
    store = ChunkStore(StoreConfig.off())
    for entity in ("a", "b"):
        store.insert(Chunk.from_rows(f"of {entity}", entity, [Row(1, {"t": 1}, {"x": 1})]))
    assert store.gc(GcOptions()) == ["of a", "of b"]
    assert not store.chunks()


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ParameterError, match="fraction"):
        GcOptions(fraction=fraction)


def test_a_fraction_of_the_bytes_is_rounded_half_up_from_its_exact_value() -> None:
    sizes = [14, 1, 35]
    held = [Candidate(str(i), i, size, False, False, None) for i, size in enumerate(sizes)]
    dropped = choose(held, GcOptions(fraction=0.29))
    assert [candidate.name for candidate in dropped] == ["0", "1"], "0.29 of 50 bytes is 14.5, rounded 15"


def test_two_targets_and_negative_limits_are_refused() -> None:
    with pytest.raises(ParameterError, match="both"):
        GcOptions(fraction=0.5, free_bytes=3)
    with pytest.raises(ParameterError, match="max_rows of 0 or more"):
        StoreConfig(max_rows=-1)


@pytest.mark.parametrize(("late_share", "most_chunks"), [(0.0, 1.2), (0.3, 3.0)])
def test_compaction_keeps_chunks_narrow_in_time(late_share: float, most_chunks: float) -> None:
    arrivals, lateness = random.Random(7), 30
    store = ChunkStore(StoreConfig.off())
    for row_id in range(600):
        delay = arrivals.randrange(lateness) if arrivals.random() < late_share else 0
        store.insert(chunk(f"c{row_id}", on_day((row_id, row_id - delay, 1))))
    store.compact(StoreConfig(max_rows=64, max_rows_if_unsorted=32, recheck_merged=True))
    touched = [len(store.relevant_range("pump", "day", time, time + 5)) for time in range(0, 600, 5)]
    assert mean(touched) <= most_chunks
    assert max(held.timelines["day"].max - held.timelines["day"].min for held in store.chunks()) <= 64 + lateness


def test_the_examples_of_the_public_module_run() -> None:
    results = doctest.testmod(spark_jobs.engine.chunks)
    assert results.attempted > 0
    assert results.failed == 0
