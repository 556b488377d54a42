"""What every chunk store must do, in memory or on disk: subclass `ChunkStoreContract` and give it a store.

A store under contract has `insert`, `insert_all`, `range_query`, `latest_at`, `gc`, `drop_time_range`, `drop_entity`,
`compact`, `chunks()` and `stats()` as `engine.chunks.ChunkStore` has them. Only answers and rows are asserted,
chunk layouts only where the contract names them, so that a store may lay out its chunks as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from spark_jobs.engine.chunks import Chunk, ChunkStore, GcOptions, Row, StoreConfig
from spark_jobs.engine.chunks.errors import UnsortedRows
from spark_jobs.errors import ParameterError


def rows(*cells: tuple[int, Mapping[str, int], Mapping[str, Any]]) -> list[Row]:
    """Rows from (row id, times, data)."""
    return [Row(row_id, times, data) for row_id, times, data in cells]


def on_day(*cells: tuple[int, int, Any]) -> list[Row]:
    """Rows from (row id, time on `day`, value of `flow`)."""
    return rows(*((row_id, {"day": time}, {"flow": value}) for row_id, time, value in cells))


def chunk(chunk_id: str, chunk_rows: Sequence[Row], entity: str = "pump") -> Chunk:
    """A chunk of these rows."""
    return Chunk.from_rows(chunk_id, entity, chunk_rows)


class ChunkStoreContract:
    """The suite; a subclass overrides `new_store`."""

    def new_store(self, config: StoreConfig) -> ChunkStore:
        """An empty store under these limits."""
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> ChunkStore:
        """An empty store that neither splits nor merges."""
        return self.new_store(StoreConfig.off())

    @pytest.fixture
    def merging_store(self) -> ChunkStore:
        """An empty store with the default limits."""
        return self.new_store(StoreConfig())

    @staticmethod
    def flows(store: ChunkStore, lo: int, hi: int, entity: str = "pump") -> list[tuple[int | None, int, Any]]:
        """(time, row id, value) of a range query."""
        found = store.range_query(entity, "day", lo, hi, ["flow"]).to_pylist()
        return [(row["time"], row["row_id"], row["flow"]) for row in found]

    @staticmethod
    def row_ids(store: ChunkStore) -> list[int]:
        """All row ids, ascending."""
        return sorted(row_id for held in store.chunks() for row_id in held.row_ids.tolist())

    def test_a_range_includes_both_ends_and_orders_ties_by_row_id(self, store: ChunkStore) -> None:
        store.insert_all([chunk("a", on_day((1, 3, 10), (4, 5, 40))), chunk("b", on_day((2, 3, 20), (3, 9, 30)))])
        assert self.flows(store, 3, 5) == [(3, 1, 10), (3, 2, 20), (5, 4, 40)]

    def test_an_inverted_range_is_empty(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 3, 10))))
        assert self.flows(store, 4, 2) == []

    def test_unknown_names_give_nothing(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 3, 10))))
        assert self.flows(store, 0, 9, entity="pump/1") == []
        assert store.range_query("pump", "night", 0, 9, ["flow"]).num_rows == 0
        assert store.latest_at("pump", "day", 9, ["heat"]) == {}

    def test_unsorted_chunks_answer_like_sorted_ones(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 7, 10), (2, 3, 20), (3, 5, 30))))
        assert self.flows(store, 3, 6) == [(3, 2, 20), (5, 3, 30)]

    def test_latest_at_takes_the_greatest_time_then_the_greatest_row_id(self, store: ChunkStore) -> None:
        store.insert_all(
            [
                chunk("long", on_day((5, 1, 50), (6, 8, 60))),
                chunk("short", on_day((7, 4, 70))),
                chunk("tied", on_day((3, 4, 30))),
            ]
        )
        assert store.latest_at("pump", "day", 7, ["flow"])["flow"].row_id == 7
        assert store.latest_at("pump", "day", 8, ["flow"])["flow"].value == 60
        assert store.latest_at("pump", "day", 0, ["flow"]) == {}

    def test_latest_at_looks_past_rows_without_a_value(self, store: ChunkStore) -> None:
        store.insert(chunk("a", rows((1, {"day": 1}, {"flow": 1}), (2, {"day": 5}, {"flow": None, "heat": 2}))))
        found = store.latest_at("pump", "day", 9, ["flow", "heat"])
        assert (found["flow"].row_id, found["heat"].row_id) == (1, 2)

    def test_a_sparse_component_is_found_by_its_own_range(self, store: ChunkStore) -> None:
        store.insert_all(
            [
                chunk("a", rows((1, {"day": 1}, {"heat": 1}), (2, {"day": 9}, {"flow": 2}))),
                chunk("b", on_day((3, 5, 30))),
            ]
        )
        assert store.latest_at("pump", "day", 8, ["flow"])["flow"].row_id == 3

    def test_several_components_are_joined_on_the_row(self, store: ChunkStore) -> None:
        store.insert(chunk("a", rows((1, {"day": 1}, {"flow": 1, "heat": 2}), (2, {"day": 2}, {"heat": 3}))))
        found = store.range_query("pump", "day", 0, 9, ["flow", "heat"]).to_pylist()
        assert found == [
            {"row_id": 1, "time": 1, "flow": 1, "heat": 2},
            {"row_id": 2, "time": 2, "flow": None, "heat": 3},
        ]

    def test_a_static_value_overrides_all_temporal_ones(self, store: ChunkStore) -> None:
        store.insert_all([chunk("a", on_day((1, 3, 10))), chunk("s", rows((2, {}, {"flow": 0})))])
        assert self.flows(store, 3, 3) == [(None, 2, 0)]
        assert store.latest_at("pump", "day", -5, ["flow"])["flow"].time is None

    def test_the_static_row_with_the_greatest_id_wins_in_any_order(self, store: ChunkStore) -> None:
        store.insert_all(
            [chunk("new", rows((9, {}, {"flow": 9}))), chunk("old", rows((2, {}, {"flow": 2, "heat": 2})))]
        )
        found = store.latest_at("pump", "day", 0, ["flow", "heat"])
        assert (found["flow"].row_id, found["heat"].row_id) == (9, 2)

    def test_a_static_chunk_that_lost_its_last_component_is_deleted(self, store: ChunkStore) -> None:
        store.insert(chunk("old", rows((1, {}, {"flow": 1}))))
        report = store.insert(chunk("new", rows((2, {}, {"flow": 2}))))
        assert (report.changed, report.deleted) == (True, ("old",))
        assert self.row_ids(store) == [2]

    def test_a_known_chunk_changes_nothing(self, merging_store: ChunkStore) -> None:
        first, second = chunk("a", on_day((1, 1, 10))), chunk("b", on_day((2, 2, 20)))
        assert merging_store.insert(first).changed
        assert merging_store.insert(second).changed
        assert not merging_store.insert(first).changed
        assert not merging_store.insert(second).changed
        assert self.row_ids(merging_store) == [1, 2]

    def test_a_chunk_without_rows_or_values_changes_nothing(self, store: ChunkStore) -> None:
        assert not store.insert(chunk("none", [])).changed
        assert not store.insert(chunk("null", on_day((1, 1, None)))).changed
        assert self.row_ids(store) == []

    def test_row_ids_out_of_order_are_refused_and_nothing_changes(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 1, 10))))
        with pytest.raises(UnsortedRows):
            store.insert(chunk("b", on_day((3, 1, 30), (2, 2, 20))))
        assert self.flows(store, 0, 9) == [(1, 1, 10)]

    def test_a_split_and_merged_store_keeps_all_rows_and_answers(self) -> None:
        store = self.new_store(StoreConfig(max_bytes=10, max_rows=4, max_rows_if_unsorted=2))
        store.insert_all(
            chunk(f"c{number}", on_day(*((number * 3 + i, number * 2 + i, i) for i in range(3)))) for number in range(6)
        )
        store.insert(chunk("large", on_day(*((100 + i, 50 - i, i) for i in range(9)))))
        assert self.row_ids(store) == [*range(18), *range(100, 109)]
        assert len(self.flows(store, 0, 60)) == 27
        assert all(held.num_rows <= 4 for held in store.chunks())

    def test_compaction_shrinks_is_idempotent_and_keeps_the_answers(self, store: ChunkStore) -> None:
        store.insert_all(chunk(f"c{number}", on_day((number, number % 7, number))) for number in range(20))
        before = self.flows(store, 0, 9)
        limits = StoreConfig(max_rows=8, max_rows_if_unsorted=4, recheck_merged=True)
        count = store.compact(limits)
        assert count < 20
        layout = sorted(held.row_ids.tolist() for held in store.chunks())
        assert store.compact(limits) == count
        assert sorted(held.row_ids.tolist() for held in store.chunks()) == layout
        assert self.flows(store, 0, 9) == before

    def test_dropping_a_time_range_takes_rows_from_all_timelines_but_no_static_row(self, store: ChunkStore) -> None:
        both = rows(*((i, {"day": i, "sent": 10 - i}, {"flow": i}) for i in range(1, 6)))
        store.insert_all([chunk("a", both), chunk("s", rows((9, {}, {"heat": 1})))])
        assert store.drop_time_range("day", 2, 3) == 2
        assert store.drop_time_range("day", 3, 2) == 0
        assert self.row_ids(store) == [1, 4, 5, 9]
        assert store.range_query("pump", "sent", 0, 10, ["flow"])["row_id"].to_pylist() == [5, 4, 1]

    def test_dropping_an_entity_leaves_names_that_only_begin_alike(self, store: ChunkStore) -> None:
        store.insert_all(
            [
                chunk("t", on_day((1, 1, 1))),
                chunk("s", rows((2, {}, {"heat": 1}))),
                chunk("x", on_day((3, 1, 1)), entity="pump/1"),
            ]
        )
        assert store.drop_entity("pump") == ["s", "t"]
        assert store.drop_entity("pump") == []
        assert self.row_ids(store) == [3]

    def test_collection_frees_the_oldest_rows_first_and_never_static_ones(self, store: ChunkStore) -> None:
        store.insert(chunk("s", rows((0, {}, {"heat": 1}))))
        store.insert_all(
            chunk(f"c{number}", on_day((number, time, number))) for number, time in ((3, 1), (1, 3), (2, 2))
        )
        assert store.gc(GcOptions(free_bytes=2)) == ["c1", "c2"]
        assert store.gc(GcOptions()) == ["c3"]
        assert self.row_ids(store) == [0]

    def test_collection_keeps_what_latest_at_answers(self, store: ChunkStore) -> None:
        store.insert_all([chunk("long", on_day((1, 0, 1), (2, 100, 2))), chunk("later_start", on_day((3, 50, 3)))])
        assert store.gc(GcOptions(protect_latest=1)) == ["later_start"]
        assert store.latest_at("pump", "day", 1000, ["flow"])["flow"].row_id == 2

    def test_no_two_chunks_share_an_id_after_a_drop_or_a_split(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4))))
        assert store.drop_time_range("day", 2, 2) == 1
        assert sorted(held.id for held in store.chunks()) == ["a", "a~3"]
        assert store.drop_time_range("day", 3, 3) == 1
        assert sorted(held.id for held in store.chunks()) == ["a", "a~3"]
        assert store.gc(GcOptions(free_bytes=1)) == ["a"]
        assert store.compact(StoreConfig(max_rows=1)) == 1
        assert self.flows(store, 0, 9) == [(4, 4, 4)]

    def test_collection_takes_what_it_names_alone_where_entities_number_their_rows_alike(
        self, store: ChunkStore
    ) -> None:
        store.insert_all(chunk(f"of {entity}", on_day((1, 1, 1)), entity=entity) for entity in ("pump", "valve"))
        assert store.gc(GcOptions(protected_chunks=frozenset(["of pump"]))) == ["of valve"]
        assert (len(self.flows(store, 0, 9)), self.flows(store, 0, 9, "valve")) == (1, [])

    def test_arguments_of_another_type_are_refused_and_change_nothing(self, store: ChunkStore) -> None:
        store.insert(chunk("a", on_day((1, 1, 1))))
        # mypy refuses them, too; a caller may not run it
        refused: list[Callable[[], object]] = [
            lambda: store.latest_at("pump", "day", None, ["flow"]),  # type: ignore[arg-type]
            lambda: store.latest_at("pump", "day", 2**63, ["flow"]),
            lambda: store.latest_at("pump", "day", 1, "flow"),
            lambda: store.latest_at(None, "day", 1, ["flow"]),  # type: ignore[arg-type]
            lambda: store.range_query("pump", ["day"], 0, 9, ["flow"]),  # type: ignore[arg-type]
            lambda: store.range_query("pump", "day", 0, 9.5, ["flow"]),  # type: ignore[arg-type]
            lambda: store.drop_time_range("day", "0", 9),  # type: ignore[arg-type]
            lambda: store.drop_time_range({}, 0, 9),  # type: ignore[arg-type]
            lambda: store.drop_entity(["pump"]),  # type: ignore[arg-type]
            lambda: store.compact(StoreConfig(), passes=None),  # type: ignore[arg-type]
            lambda: store.compact({"max_rows": 1}),  # type: ignore[arg-type]
            lambda: store.insert(on_day((2, 1, 1))),  # type: ignore[arg-type]
            lambda: store.gc({"free_bytes": 1}),  # type: ignore[arg-type]
        ]
        for ask in refused:
            with pytest.raises(ParameterError):
                ask()
        assert self.flows(store, 0, 9) == [(1, 1, 1)]
