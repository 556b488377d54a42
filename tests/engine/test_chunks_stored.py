"""Stored chunks survive the way into a table and back, and a store of them behaves as the one they came from."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import Chunk, ChunkStore, GcOptions, StoreConfig
from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.stored import StoredLayout, standing_chunks, stored_chunks, stored_table
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.chunk_store_contract import chunk, on_day, rows
from tests.engine.chunk_strategies import COMPONENTS, ENTITIES, TIMELINES, Spec, chunk_specs, store_configs

LAYOUT = StoredLayout(TIMELINES, dict.fromkeys(COMPONENTS, pa.int64()))


def typed(spec: Spec) -> list[Chunk]:
    """The chunk as a table holds it: of the declared types; nothing if it has no rows or values."""
    made = Chunk.from_rows(spec.id, spec.entity, spec.rows)
    if not made.components:
        return []
    table = stored_table([StoredChunk(made, {spec.id})], LAYOUT)
    return [held.chunk for held in stored_chunks(table, LAYOUT)]


def reread(store: ChunkStore) -> ChunkStore:
    """The store after all its chunks went through a table."""
    return ChunkStore.restore(stored_chunks(stored_table(store.stored(), LAYOUT), LAYOUT), store.config)


def shape(store: ChunkStore) -> list[tuple[object, ...]]:
    """All that a later answer can depend on, as plain values."""
    return [
        (
            held.chunk.id,
            held.chunk.entity,
            sorted(held.sources),
            held.from_split,
            held.chunk.row_ids.tolist(),
            held.chunk.row_bytes.tolist(),
            {name: column.times.tolist() for name, column in held.chunk.timelines.items()},
            {n: (c.datatype, c.values[c.valid].tolist(), c.valid.tolist()) for n, c in held.chunk.components.items()},
        )
        for held in store.stored()
    ]


@settings(max_examples=tries(60), deadline=None)
@given(chunk_specs(), store_configs())
def test_a_store_that_is_read_back_between_inserts_is_the_store_that_was_not(
    specs: list[Spec], config: StoreConfig
) -> None:
    whole = ChunkStore(config)
    again = ChunkStore(config)
    for spec in specs:
        for made in typed(spec):
            report = whole.insert(made)
            again = reread(again)
            assert again.insert(made) == report
    assert shape(reread(again)) == shape(whole)
    for entity in ENTITIES:
        for component in COMPONENTS:
            assert again.latest_at(entity, "seen", 5, [component]) == whole.latest_at(entity, "seen", 5, [component])
    assert again.gc(GcOptions(fraction=0.5, protect_latest=1)) == whole.gc(GcOptions(fraction=0.5, protect_latest=1))


@settings(max_examples=tries(60), deadline=None)
@given(chunk_specs(), st.integers(-3, 9), st.integers(0, 4))
def test_what_a_store_does_per_entity_is_what_it_does_to_all(specs: list[Spec], lo: int, width: int) -> None:
    limits = StoreConfig(max_rows=5, max_rows_if_unsorted=3, max_bytes=9, recheck_merged=True)
    whole = ChunkStore(limits)
    for spec in specs:
        whole.insert_all(typed(spec))
    parts = [
        ChunkStore.restore([held for held in whole.stored() if held.chunk.entity == entity], limits)
        for entity in ENTITIES
    ]
    assert sum(part.drop_time_range("seen", lo, lo + width) for part in parts) == whole.drop_time_range(
        "seen", lo, lo + width
    )
    assert sorted(s for part in parts for s in map(str, shape(part))) == sorted(map(str, shape(whole)))


@settings(max_examples=tries(40), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from([1, -1]), st.sets(st.integers(0, 7), min_size=1))))
def test_rows_that_went_after_they_came_do_not_stand(changes: list[tuple[int, int, set[int]]]) -> None:
    came: dict[int, int] = {}
    tables = []
    for number, (landing, diff, ids) in enumerate(sorted(changes, key=lambda change: (change[0], -change[1]))):
        held = {i for i in ids if (i in came) == (diff < 0)}
        if diff < 0:
            held = {i for i in held if came[i] < landing}
        if not held:
            continue
        came = {i: by for i, by in came.items() if i not in held}
        came |= dict.fromkeys(held, landing) if diff > 0 else {}
        made = chunk(f"c{number}", rows(*((i, {"seen": i}, {"flow": i}) for i in sorted(held))))
        table = stored_table([StoredChunk(made, {made.id})], LAYOUT)
        tables.append(table.append_column("diff", pa.array([diff])).append_column("landing", pa.array([landing])))
    if tables:
        standing = standing_chunks(pa.concat_tables(tables), LAYOUT)
        assert sorted(i for held in standing for i in held.chunk.row_ids.tolist()) == sorted(came)


def test_a_batch_is_inserted_whole_or_not_at_all() -> None:
    store = ChunkStore()
    with pytest.raises(Exception, match="unsorted_rows"):
        store.insert_all([chunk("a", on_day((1, 1, 1))), chunk("b", on_day((3, 1, 1), (2, 2, 2)))])
    assert store.chunks() == []


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (chunk("a", rows((1, {"landed": 1}, {"flow": 1}))), "landed"),
        (chunk("a", rows((1, {"seen": 1}, {"speed": 1}))), "speed"),
        (chunk("a", rows((1, {"seen": 1}, {"flow": "much"}))), "flow"),
        (chunk("a", rows((1, {"seen": 1}, {"flow": 1.5}))), "flow"),
        (chunk("a", rows((2**63, {"seen": 1}, {"flow": 1}))), str(2**63)),
    ],
)
def test_what_a_table_cannot_hold_exactly_is_refused_by_name(made: Chunk, named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        stored_table([StoredChunk(made, {"a"})], LAYOUT)
