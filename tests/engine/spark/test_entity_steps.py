"""What the workers do with one entity's chunks is what the in-memory store does, and the report says what changed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.engine.chunks import ChunkStore, GcOptions, StoreConfig
from spark_jobs.engine.chunks.gc import Candidate, choose
from spark_jobs.engine.chunks.stored import StoredLayout, stored_chunks, stored_table
from spark_jobs.engine.spark.chunks.entity_steps import Compact, DropTimeRange, find_candidates, on_entity
from tests.engine.chunk_store_contract import chunk, on_day, rows

LAYOUT = StoredLayout(("day", "sent"), {"flow": pa.int64(), "heat": pa.int64()})
LIMITS = StoreConfig(max_rows=8, max_rows_if_unsorted=4, recheck_merged=True)


@pytest.fixture
def pump() -> ChunkStore:
    """Twenty chunks of one row each and a static one, typed as a table holds them."""
    store = ChunkStore(StoreConfig.off())
    store.insert_all(chunk(f"c{number}", on_day((number, number % 7, number))) for number in range(20))
    store.insert(chunk("static", rows((90, {}, {"heat": 1}))))
    return ChunkStore.restore(stored_chunks(stored_table(store.stored(), LAYOUT), LAYOUT), StoreConfig.off())


def parts(made: pa.Table) -> tuple[list[list[int]], dict[str, object]]:
    """Row ids of the chunks, and the report."""
    *chunks, report = made.to_pylist()
    assert report["chunk_id"] is None
    return [chunk["row_ids"] for chunk in chunks], {name: report[name] for name in ("rows", "changed", "dropped")}


def test_compaction_of_an_entity_is_the_stores_and_a_second_one_reports_no_change(pump: ChunkStore) -> None:
    made = on_entity(LAYOUT, StoreConfig.off(), Compact(LIMITS, 50))(stored_table(pump.stored(), LAYOUT))
    count = pump.compact(LIMITS)
    assert parts(made) == (
        [held.row_ids.tolist() for held in pump.chunks()],
        {"rows": count, "changed": True, "dropped": 0},
    )
    again = made.filter(pa.compute.is_valid(made["chunk_id"])).select(LAYOUT.schema().names)
    _, report = parts(on_entity(LAYOUT, StoreConfig.off(), Compact(LIMITS, 50))(again))
    assert report == {"rows": count, "changed": False, "dropped": 0}


def test_a_dropped_range_is_counted_and_an_entity_may_end_empty(pump: ChunkStore) -> None:
    table = stored_table(pump.stored(), LAYOUT)
    made = on_entity(LAYOUT, StoreConfig.off(), DropTimeRange("day", 2, 3))(table)
    assert parts(made)[1] == {"rows": 15, "changed": True, "dropped": 6}
    without_static = table.filter(pa.compute.is_valid(table["min_day"]))
    assert parts(on_entity(LAYOUT, StoreConfig.off(), DropTimeRange("day", 0, 9))(without_static)) == (
        [],
        {"rows": 0, "changed": True, "dropped": 20},
    )
    assert parts(on_entity(LAYOUT, StoreConfig.off(), DropTimeRange("day", 7, 9))(table))[1]["changed"] is False


@pytest.mark.parametrize(
    "options",
    [
        GcOptions(free_bytes=5),
        GcOptions(fraction=0.5, protect_latest=2),
        GcOptions(furthest_from=("day", 6), free_bytes=3),
        GcOptions(furthest_from=("day", -(2**63)), free_bytes=3),
    ],
)
def test_candidates_from_a_table_lead_to_the_stores_choice(pump: ChunkStore, options: GcOptions) -> None:
    found = find_candidates(LAYOUT, options)(stored_table(pump.stored(), LAYOUT)).to_pylist()
    chosen = choose((Candidate(**row) for row in found), options)
    assert [candidate.name for candidate in chosen] == pump.gc(options)
