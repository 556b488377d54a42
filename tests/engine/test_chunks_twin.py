"""The in-memory store agrees with its slow twin after every step of random scripts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import Chunk, ChunkStore, GcOptions, Row, StoreConfig
from spark_jobs.engine.chunks.split import split_chunk
from spark_jobs.engine.twins.chunks import NaiveStore
from tests.effort import tries
from tests.engine.chunk_strategies import COMPONENTS, ENTITIES, TIMELINES, Spec, chunk_specs, store_configs, times

Pair = tuple[ChunkStore, NaiveStore]


def insert(pair: Pair, spec: Spec) -> None:
    store, twin = pair
    report = store.insert(Chunk.from_rows(spec.id, spec.entity, spec.rows))
    assert (report.changed, list(report.deleted)) == twin.insert(spec.id, spec.entity, spec.rows)


def partition(pair: Pair) -> list[list[int]]:
    store, twin = pair
    chunks = store.chunks()
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    found = sorted(chunk.row_ids.tolist() for chunk in chunks)
    assert found == sorted([row.row_id for row in chunk.rows] for chunk in twin.chunks)
    return found


def assert_same_answers(pair: Pair) -> None:
    store, twin = pair
    partition(pair)
    for timeline in (*TIMELINES, "unknown"):
        held = twin.times(timeline)
        assert store.time_range(timeline) == ((held[0], held[-1]) if held else None)
        for time in (-4, 2, 9):
            assert store.next_time(timeline, time) == min((t for t in held if t > time), default=None)
            assert store.prev_time(timeline, time) == max((t for t in held if t < time), default=None)
        for entity in ENTITIES:
            assert store.entity_min_time(entity, timeline) == twin.entity_min_time(entity, timeline)
            for component in COMPONENTS:
                assert_same_queries(pair, entity, timeline, component)


def assert_same_queries(pair: Pair, entity: str, timeline: str, component: str) -> None:
    store, twin = pair
    for at in (-4, 0, 3, 9):
        latest = store.latest(entity, timeline, at, component)
        got = None if latest is None else ("static" if latest.time is None else latest.time, latest.row_id)
        assert got == twin.latest_at(entity, timeline, at, component)
    for lo, hi, extended in ((-4, 9, False), (1, 4, True), (2, 2, False), (5, 1, True), (12, 20, True)):
        answer = store.range(entity, timeline, lo, hi, component, extended=extended)
        at_times = ["static"] * len(answer) if answer.times is None else answer.times.tolist()
        got_rows = list(zip(at_times, answer.row_ids.tolist(), strict=True))
        assert got_rows == twin.range(entity, timeline, lo, hi, component, extended=extended)


@settings(max_examples=tries(15), deadline=None)
@given(chunk_specs(), store_configs(), st.data())
def test_answers_agree_after_inserts_repeats_and_drops(
    specs: list[Spec], config: StoreConfig, data: st.DataObject
) -> None:
    pair = ChunkStore(config), NaiveStore(config)
    for spec in specs:
        insert(pair, spec)
        partition(pair)
        if data.draw(st.integers(0, 4)) == 0:
            insert(pair, data.draw(st.sampled_from(specs)))
        if data.draw(st.integers(0, 4)) == 0:
            timeline, lo, hi = data.draw(st.tuples(st.sampled_from(TIMELINES), times, times))
            assert pair[0].drop_time_range(timeline, lo, hi) == pair[1].drop_time_range(timeline, lo, hi)
            partition(pair)
    assert_same_answers(pair)
    entity = data.draw(st.sampled_from(ENTITIES))
    assert len(pair[0].drop_entity(entity)) == len(pair[1].drop_entity(entity))
    assert_same_answers(pair)


@settings(max_examples=tries(20), deadline=None)
@given(
    chunk_specs(),
    st.one_of(st.none(), st.integers(0, 20)),
    st.integers(0, 3),
    st.one_of(st.none(), st.tuples(st.sampled_from(TIMELINES), times)),
)
def test_collection_drops_the_same_chunks_in_the_same_order(
    specs: list[Spec], target: int | None, protect_latest: int, furthest_from: tuple[str, int] | None
) -> None:
    config = StoreConfig.off()
    pair = ChunkStore(config), NaiveStore(config)
    for spec in specs:
        insert(pair, spec)
    options = GcOptions(free_bytes=target, protect_latest=protect_latest, furthest_from=furthest_from)
    assert pair[0].gc(options) == pair[1].gc(target, protect_latest, furthest_from)
    assert_same_answers(pair)


@settings(max_examples=tries(15), deadline=None)
@given(chunk_specs(), store_configs())
def test_compaction_keeps_rows_and_answers_and_never_adds_chunks_within_limits(
    specs: list[Spec], limits: StoreConfig
) -> None:
    store, twin = ChunkStore(StoreConfig.off()), NaiveStore(StoreConfig.off())
    for spec in specs:
        insert((store, twin), spec)
    rows = sorted(row_id for chunk in store.chunks() for row_id in chunk.row_ids.tolist())
    static_rows = {row_id for chunk in store.chunks() if chunk.is_static for row_id in chunk.row_ids.tolist()}
    before = len(store.chunks())
    after = store.compact(limits)
    kept = sorted(row_id for chunk in store.chunks() for row_id in chunk.row_ids.tolist())
    assert set(rows) - set(kept) <= static_rows, "only static rows that answer nothing may go"
    if not _splits(limits):
        assert after <= before
    for entity in ENTITIES:
        for timeline in TIMELINES:
            for component in COMPONENTS:
                assert_same_queries((store, twin), entity, timeline, component)


@settings(max_examples=tries(15), deadline=None)
@given(chunk_specs(), store_configs(), store_configs())
def test_a_second_compaction_changes_nothing(specs: list[Spec], first: StoreConfig, limits: StoreConfig) -> None:
    rechecking = StoreConfig(limits.max_bytes, limits.max_rows, limits.max_rows_if_unsorted, recheck_merged=True)
    store = ChunkStore(first)
    for spec in specs:
        store.insert(Chunk.from_rows(spec.id, spec.entity, spec.rows))
    store.compact(rechecking)
    before = [chunk.row_ids.tolist() for chunk in store.chunks()]
    assert store.compact(rechecking) == len(before)
    assert [chunk.row_ids.tolist() for chunk in store.chunks()] == before


@settings(max_examples=tries(15), deadline=None)
@given(chunk_specs(), store_configs())
def test_a_rechecked_store_never_holds_a_merged_chunk_that_would_be_split(
    specs: list[Spec], limits: StoreConfig
) -> None:
    config = StoreConfig(limits.max_bytes, limits.max_rows, limits.max_rows_if_unsorted, recheck_merged=True)
    store = ChunkStore(config)
    inserted = set()
    for spec in specs:
        inserted.add(spec.id)
        store.insert(Chunk.from_rows(spec.id, spec.entity, spec.rows))
    for chunk in store.chunks():
        if chunk.id not in inserted:
            assert len(split_chunk(chunk, config)) == 1


def test_pieces_of_a_first_pass_that_only_splits_merge_in_the_same_compaction() -> None:
    limits = StoreConfig(max_bytes=100, max_rows=2, max_rows_if_unsorted=2, recheck_merged=True)
    store = ChunkStore(StoreConfig.off())
    for name, row_ids in (("a", [1, 2, 3]), ("b", [4, 5, 6])):
        rows = [Row(row_id, {"seen": row_id}, {"flow": 1}) for row_id in row_ids]
        store.insert(Chunk.from_rows(name, "pump", rows))
    assert store.compact(limits) == 4
    assert [chunk.row_ids.tolist() for chunk in store.chunks()] == [[1, 2], [3], [4, 5], [6]]


def test_a_script_that_merges_splits_and_replaces_agrees_with_the_twin() -> None:
    config = StoreConfig(max_bytes=100, max_rows=3, max_rows_if_unsorted=2)
    pair = ChunkStore(config), NaiveStore(config)
    for name, row_ids in (("a", [1, 2]), ("b", [3]), ("c", [4, 5, 6, 7]), ("c", [4, 5, 6, 7])):
        rows = tuple(Row(row_id, {"seen": row_id}, {"flow": 1}) for row_id in row_ids)
        insert(pair, Spec(name, "pump", rows))
    assert partition(pair) == [[1, 2, 3], [4, 5, 6], [7]]


def _splits(config: StoreConfig) -> bool:
    return bool(config.max_bytes or config.max_rows or config.max_rows_if_unsorted)
