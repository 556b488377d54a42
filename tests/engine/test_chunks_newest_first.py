"""Latest-at over chunks that are read from the newest on says what the rows say that stand, whatever came and went."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_jobs.engine.chunks import Chunk, ChunkStore, Latest, Row, StoreConfig
from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.newest_first import latest_newest_first
from spark_jobs.engine.chunks.stored import StoredLayout, standing_chunks, stored_table
from tests.effort import tries
from tests.engine.landed_rows import TIMELINES, Landed, landed_rows, latest_of, range_of

COMPONENTS = ("p", "q", "r")
LAYOUT = StoredLayout(TIMELINES, dict.fromkeys(COMPONENTS, pa.int64()))
CASES = 400


def as_table(landed: Sequence[Landed]) -> pa.Table:
    """The chunks of all landings, one row each, as a table with a history keeps them."""
    parts = []
    for number, part in enumerate(landed):
        held = StoredChunk(Chunk.from_rows(f"c{number}", "e", part.rows), {f"c{number}"})
        table = stored_table([held], LAYOUT).append_column("diff", pa.array([part.diff]))
        parts.append(table.append_column("landing", pa.array([part.landing])))
    return pa.concat_tables(parts)


def stored(table: pa.Table) -> ChunkStore:
    return ChunkStore.restore(standing_chunks(table, LAYOUT), StoreConfig.off())


def latest_in_reads(table: pa.Table, timeline: str, at: int, components: Sequence[str], step: int) -> dict[str, Latest]:
    """Latest-at as a reader of the table asks for it; no chunk is read twice."""
    begun = table.filter(pc.less_equal(table[f"min_{timeline}"], at))
    ends = sorted(begun[f"max_{timeline}"].to_pylist(), reverse=True)
    met: list[str] = []

    def read(least: int | None, below: int | None) -> pa.Table:
        if least is None:
            return begun.slice(0, 0)
        wanted = pc.greater_equal(begun[f"max_{timeline}"], least)
        if below is not None:
            wanted = pc.and_(wanted, pc.less(begun[f"max_{timeline}"], below))
        met.extend(begun.filter(wanted)["chunk_id"].to_pylist())
        assert len(met) == len(set(met))
        return begun.filter(wanted)

    def answer(chunks: pa.Table) -> dict[str, Latest]:
        return stored(chunks).latest_at("e", timeline, at, components)

    newest = max(begun[f"min_{timeline}"].to_pylist(), default=None)
    return latest_newest_first(ends, newest, components, read=read, answer=answer, first_chunks=step)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(tries(CASES) // 100 or 1))
def test_latest_values_and_ranges_are_those_of_the_rows_that_stand(seed: int) -> None:
    for case in range(100):
        chance = random.Random(100 * seed + case)
        landed, standing = landed_rows(chance, COMPONENTS)
        table = as_table(landed)
        for timeline in TIMELINES:
            asked = chance.sample(COMPONENTS, chance.randint(1, len(COMPONENTS)))
            at, step = chance.randint(-1, 13), chance.choice([1, 1, 2, 8])
            found = latest_in_reads(table, timeline, at, asked, step)
            got = {name: (row.time, row.row_id, row.value) for name, row in found.items()}
            assert got == latest_of(standing, timeline, at, asked), (seed, case)
            lo, hi = chance.randint(-1, 13), chance.randint(-1, 13)
            rows = stored(table).range_query("e", timeline, lo, hi, asked).to_pylist()
            assert [tuple(row.values()) for row in rows] == range_of(standing, timeline, lo, hi, asked), (seed, case)


def test_a_value_whose_retraction_lies_in_an_older_chunk_is_not_an_answer() -> None:
    def row(row_id: int, time: int, value: int | None) -> Row:
        return Row(row_id, {"seen": time}, {"p": value})

    landed = [Landed(1, 1, [row(1, 1, 7), row(2, 10, None)]), Landed(1, 2, [row(3, 5, None)])]
    assert latest_in_reads(as_table(landed), "seen", 20, ["p"], 8)["p"].value == 7
    taken_back = [*landed, Landed(-1, 3, [row(1, 1, 7)])]
    assert latest_in_reads(as_table(taken_back), "seen", 20, ["p"], 8) == {}
