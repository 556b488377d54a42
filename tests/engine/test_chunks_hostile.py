"""Whatever is handed to a store or a batcher, it answers or refuses with an error of ours, and a refusal changes
nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.chunks import BatcherConfig, Chunk, ChunkStore, ComponentColumn, GcOptions, StoreConfig
from spark_jobs.engine.chunks.stored import StoredLayout, stored_table
from spark_jobs.errors import ParameterError, TidemarkError
from tests.effort import tries
from tests.replaying.chunks import Player, _row

STEPS = 60

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 1.5, float("nan"), float("inf"), -1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30, "", "x", "7"),
    *([], [1], [1, 2], ["t", "x"], {}, {"t": 1}, {"t": [2, 1]}),
)


class Hostile:
    """Draws arguments: mostly such as an op takes, now and then anything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def of(self, proper: Callable[[], Any], share: float = 0.06) -> Any:
        return self.chance.choice(HOSTILE) if self.chance.random() < share else proper()

    def name(self, *names: str) -> Any:
        return self.of(lambda: self.chance.choice(names))

    def time(self) -> Any:
        return self.of(lambda: self.chance.choice([*range(6), -(2**63), 2**63 - 1]))

    def number(self) -> Any:
        return self.of(lambda: self.chance.randint(0, 6))

    def row(self, row_id: int) -> dict[str, Any]:
        chance = self.chance
        timelines = chance.choice([(), ("t",), ("t", "u"), ("t",)])
        row = {
            "row": self.of(lambda: row_id, 0.04),
            "times": self.of(lambda: {name: self.time() for name in timelines}, 0.03),
            "data": self.of(lambda: {n: chance.choice([None, 1, 1, *HOSTILE]) for n in ("v", "w")}, 0.03),
        }
        if chance.random() < 0.3:
            row["types"] = self.of(lambda: {"v": self.name("int", "text")}, 0.1)
        if chance.random() < 0.3:
            row["bytes"] = self.number()
        return row

    def rows(self) -> list[dict[str, Any]]:
        first, count = self.chance.randint(0, 40), self.chance.randint(0, 4)
        ids = [self.chance.randint(0, 40) for _ in range(count)]
        return [self.row(i) for i in (ids if self.chance.random() < 0.2 else range(first, first + count))]

    def chunk(self) -> dict[str, Any]:
        return {"id": self.name(*"abcdef"), "entity": self.name("e", "f"), "rows": self.rows()}

    def limits(self, *names: str) -> dict[str, Any]:
        return {name: self.number() for name in names if self.chance.random() < 0.5}

    def step(self) -> tuple[str, dict[str, Any]]:
        entity, timeline, component = self.name("e", "f"), self.name("t", "u"), self.name("v", "w")
        store = self.limits("max_bytes", "max_rows", "max_rows_if_unsorted")
        batcher = self.limits("flush_num_rows", "flush_num_bytes", "max_rows_if_unsorted", "split_before_unsorting")
        one, span = {"timeline": timeline, "at": self.time()}, {"lo": self.time(), "hi": self.time()}
        where = {"entity": entity, "timeline": timeline}
        column = {**where, "component": component}
        rows: dict[str, Any] = {"rows": self.rows(), "timeline": timeline}
        options: dict[str, Any] = {
            "target": self.chance.choice(["everything", {"bytes": self.number()}, {"fraction": self.of(lambda: 0.5)}]),
            "protect_latest": self.number(),
            "protected_chunks": self.of(lambda: ["a", "b"]),
            "furthest_from": self.of(lambda: self.chance.choice([None, ["t", self.time()]])),
            "protected_time_ranges": self.of(lambda: {"t": [self.time(), self.time()]}),
        }
        steps: list[tuple[str, Mapping[str, Any]]] = [
            *[("insert", {"chunk": self.chunk()}), ("push", {"entity": entity, "row": self.row(len(HOSTILE))})] * 6,
            *[("new", {"config": store}), ("drop_time_range", {"timeline": timeline, **span}), ("gc", options)],
            *[("drop_entity", {"entity": entity}), ("compact_all", {"config": store, "passes": self.number()})],
            *[("num_events", column), ("all_components", where), ("entity_min_time", where)],
            *[("time_range", {"timeline": timeline}), ("next_time", {"timeline": timeline, "time": self.time()})],
            *[("prev_time", {"timeline": timeline, "time": self.time()}), ("latest_at", {**column, **one})],
            *[("range", {**column, **span, "extended": self.chance.random() < 0.5})],
            *[("relevant_latest_at", {**one, "entity": entity}), ("relevant_range", {**where, **span})],
            *[("chunk_latest_at", {**rows, "at": self.time(), "component": component})],
            *[("chunk_range", {**rows, **span, "component": component, "extended": True}), ("dedupe_latest", rows)],
            ("split", {"rows": self.rows(), "config": store}),
            ("concat", {"left": self.chunk(), "right": self.chunk()}),
            *[("batcher_new", {"config": batcher}), ("update_config", {"config": batcher})],
            *[("push_many", {"rows": [[entity, self.row(i)] for i in range(3)]})] * 2,
            *[("tick", {}), ("flush", {}), ("shutdown", {})],
        ]
        op, args = self.chance.choice(steps)
        return op, dict(args)


@pytest.mark.parametrize("seed", range(tries(150)))
def test_every_op_answers_or_refuses_and_a_refusal_changes_nothing(seed: int) -> None:
    player, hostile = Player(), Hostile(seed)
    for _ in range(STEPS):
        op, args = hostile.step()
        before = player.state()
        try:
            player.play(op, args)
        except TidemarkError:
            if op != "push_many":  # several pushes in one step of the runner
                assert player.state() == before, (op, args)
    _assert_works(player)


def _assert_works(player: Player) -> None:
    """Nothing that was accepted stands in the way of what comes later."""
    for op in ("chunks", "all_rows", "stats", "flush"):
        player.play(op, {})
    for entity in ("e", "f"):
        for timeline in ("t", "u"):
            where = {"entity": entity, "timeline": timeline}
            assert player.play("entity_min_time", where) is None or isinstance(
                player.play("entity_min_time", where), int
            )
            player.play("relevant_latest_at", {**where, "at": 5})
            for component in ("v", "w"):
                column = {**where, "component": component}
                latest = player.play("latest_at", {**column, "at": 5})
                found = player.play("range", {**column, "lo": -(2**63), "hi": 5})
                assert (latest is None) == (not found)
                assert latest is None or found[-1] == [latest["time"], latest["row"]]
    player.play(
        "insert", {"chunk": {"id": "last", "entity": "e", "rows": [{"row": -5, "times": {"t": 1}, "data": {"v": 1}}]}}
    )
    player.play("compact_all", {"config": {"max_rows": 3}})
    player.play("drop_time_range", {"timeline": "t", "lo": -(2**63), "hi": 2})
    player.play("gc", {"target": "everything", "protect_latest": 1})


@pytest.mark.parametrize("seed", range(tries(60)))
def test_a_table_of_chunks_holds_any_values_exactly_or_refuses_them(seed: int) -> None:
    hostile = Hostile(1000 + seed)
    store = ChunkStore()
    layout = StoredLayout(("t", "u"), {"v": pa.int64(), "w": pa.string()})
    for _ in range(STEPS):
        chunk = hostile.chunk()
        try:
            made = Chunk.from_rows(chunk["id"], chunk["entity"], [_row(row) for row in chunk["rows"]])
            store.insert(made)
        except TidemarkError:
            continue
        for asked in (
            lambda: store.range_query("e", hostile.name("t"), hostile.time(), hostile.time(), ["v", "w"]),
            lambda: store.latest_at("e", "t", hostile.time(), hostile.of(lambda: ["v", "w"])),
            lambda: stored_table(store.stored(), layout),
        ):
            with suppress(TidemarkError):
                asked()


IDS, TIMES = np.array([1, 2]), np.array([3, 4])
VALUES = ComponentColumn.of("int64", np.array([5, 6]))


def _with_values(column: ComponentColumn) -> Chunk:
    return Chunk.from_columns("c", "e", row_ids=IDS, times={}, components={"v": column})


@pytest.mark.parametrize(
    "made",
    [
        # mypy refuses them, too; a caller may not run it
        lambda: Chunk.from_columns(7, "e", row_ids=IDS, times={}, components={}),  # type: ignore[arg-type]
        lambda: Chunk.from_columns("c", None, row_ids=IDS, times={}, components={}),  # type: ignore[arg-type]
        lambda: Chunk.from_columns("c", "e", row_ids=[1, 2], times={}, components={}),  # type: ignore[arg-type]
        lambda: Chunk.from_columns("c", "e", row_ids=np.array([[1, 2]]), times={}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=np.array([1.0, 2.0]), times={}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=np.array(["1", "2"]), times={}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={"t": np.array([1.0, 2.5])}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={"t": np.array([1, 2**63])}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={"t": np.array([1])}, components={}),
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={3: TIMES}, components={}),  # type: ignore[dict-item]
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={}, components={}, row_bytes=np.array([1])),
        lambda: Chunk.from_columns("c", "e", row_ids=IDS, times={}, components={}, row_bytes=np.array([1, -1])),
        lambda: Chunk.from_columns(
            "c",
            "e",
            row_ids=IDS,
            times={},
            components={"v": ComponentColumn.of("a", np.array([1, 2]), np.array([True]))},
        ),
        lambda: Chunk.from_columns(
            "c", "e", row_ids=IDS, times={}, components={"v": ComponentColumn.of("a", np.array([[1, 2], [3, 4]]))}
        ),
        lambda: StoreConfig(max_rows=None),  # type: ignore[arg-type]
        lambda: StoreConfig(recheck_merged=1),  # type: ignore[arg-type]
        lambda: BatcherConfig(flush_num_rows=1.5),  # type: ignore[arg-type]
        lambda: BatcherConfig(keep_sparse_rows=None),  # type: ignore[arg-type]
        lambda: GcOptions(free_bytes="1"),  # type: ignore[arg-type]
        lambda: GcOptions(fraction=True),
        lambda: GcOptions(protect_latest=-1),
        lambda: GcOptions(protected_chunks="abc"),  # type: ignore[arg-type]
        lambda: GcOptions(protected_time_ranges={"t": (1, None)}),  # type: ignore[dict-item]
        lambda: GcOptions(furthest_from=("t",)),  # type: ignore[arg-type]
        lambda: ChunkStore().compact(StoreConfig(), passes=-1),
    ],
)
def test_columns_and_settings_of_another_type_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        made()


def test_small_integers_become_the_columns_of_a_chunk() -> None:
    chunk = Chunk.from_columns(
        "c",
        "e",
        row_ids=np.array([1, 2], dtype=np.uint8),
        times={"t": np.array([3, 4], dtype=np.int16)},
        components={"v": VALUES},
        row_bytes=np.array([2**62, 2**62], dtype=np.uint64),
    )
    assert {chunk.row_ids.dtype, chunk.timelines["t"].times.dtype} == {np.dtype(np.int64)}
    assert chunk.size_bytes == 2**63
    large = Chunk.from_columns("l", "e", row_ids=np.array([1, 2**64 - 1], dtype=np.uint64), times={}, components={})
    assert large.row_ids.tolist() == [1, 2**64 - 1]


def test_row_ids_and_values_that_no_table_column_holds_are_refused_by_a_range_of_several_components() -> None:
    store = ChunkStore()
    store.insert(_chunk_of((2**64, 1)))
    with pytest.raises(ParameterError, match="row_id"):
        store.range_query("e", "t", 0, 9, ["v"])
    assert store.range("e", "t", 0, 9, "v").row_ids.tolist() == [2**64]
    mixed = ChunkStore()
    mixed.insert(_chunk_of((1, 1), (2, "x")))
    with pytest.raises(ParameterError, match="'v'"):
        mixed.range_query("e", "t", 0, 9, ["v"])


def _chunk_of(*cells: tuple[int, Any]) -> Chunk:
    rows = [{"row": row_id, "times": {"t": 1}, "data": {"v": value}} for row_id, value in cells]
    return Chunk.from_rows("c", "e", [_row(row) for row in rows])
