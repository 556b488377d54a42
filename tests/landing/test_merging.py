"""Merged chunks hold the rows of the chunks they are made of, each with its landing, whatever comes together."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.landing import merging
from spark_jobs.landing.merging import _Merger
from spark_jobs.sources import Source, load_source
from spark_jobs.sources.drops import drop_of, first_row_id, row_id
from spark_jobs.storage.descriptions.tables import chunks
from tests.effort import tries
from tests.landing.test_chunking import SOURCE

LIMITS = "chunks: {rows: 4, bytes: 1 MiB, unsorted: 2}\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "meters.yml").write_text(
        SOURCE.replace("timelines: [at]", "timelines: [at, seen]").replace(
            "at: timestamp,", "at: timestamp, seen: timestamp,"
        )
        + LIMITS
    )
    return load_source(folder / "meters.yml")


def random_chunks(chance: random.Random, source: Source) -> pa.Table:
    """Chunks of some landings by entity: rows come, go and come again, some without a time, some without a value."""
    rows: list[dict[str, Any]] = []
    for landing in range(1, 6):
        for entity in "abc":
            for diff in (1, -1):
                drops = chance.sample(range(3), chance.randint(0, 2))
                for drop in drops:
                    lines = sorted(chance.sample(range(1, 9), chance.randint(1, 4)))
                    ids = [row_id(first_row_id(drop, entity), line) for line in lines]
                    times = [chance.randint(0, 50) for _ in ids]
                    seen = times if chance.random() < 0.7 else None
                    loads = [chance.choice([None, 1, 2]) for _ in ids]
                    load = loads if any(value is not None for value in loads) else None
                    row = {"entity": entity, "seq_no": drop, "diff": diff, "landing": landing, "rows": len(ids)}
                    row |= {"row_ids": ids, "landings": [landing] * len(ids), "event_times": times, "t_at": times}
                    rows.append({**row, "t_seen": seen, "c_load": load})
    rows.sort(key=lambda row: row["entity"])
    us = pa.timestamp("us", tz="UTC")
    kinds = {"row_ids": pa.list_(pa.int64()), "landings": pa.list_(pa.int64()), "c_load": pa.list_(pa.int64())}
    kinds |= {name: pa.list_(us) for name in ("event_times", "t_at", "t_seen", "c_at", "c_seen")}
    kinds |= {"delta_ids": pa.list_(pa.string()), "c_meter": pa.list_(pa.string())}
    kinds |= {"extra": pa.list_(pa.map_(pa.string(), pa.string()))}
    whole = {name: pa.int64() for name in ("seq_no", "rows", "diff", "landing")}
    fields = {
        name: (kinds | whole | {"chunk_id": pa.string(), "entity": pa.string()}).get(name)
        for name in chunks(source).column_names
    }
    return pa.Table.from_pylist(rows, schema=pa.schema({n: k for n, k in fields.items() if k is not None}))


def cells(table: pa.Table) -> list[tuple[Any, ...]]:
    found = []
    for chunk in table.to_pylist():
        landings = chunk["landings"] or [chunk["landing"]] * chunk["rows"]
        for i, landing in enumerate(landings):
            arrays = [None if chunk[a] is None else chunk[a][i] for a in ("event_times", "t_at", "t_seen", "c_load")]
            found.append((chunk["entity"], chunk["diff"], chunk["row_ids"][i], landing, *arrays))
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("bound", "held"), [("HELD_ROWS", 1), ("HELD_ROWS", 7), ("HELD_BYTES", 1), ("HELD_ROWS", 1 << 19)]
)
@pytest.mark.parametrize("seed", range(tries(12)))
def test_every_row_is_in_one_merged_chunk_with_its_landing(
    source: Source, monkeypatch: pytest.MonkeyPatch, seed: int, bound: str, held: int
) -> None:
    monkeypatch.setattr(merging, bound, held)
    chance = random.Random(seed)
    given = random_chunks(chance, source)
    merger = _Merger(source, 5, 99)
    made = pa.Table.from_batches(list(merger(given.to_batches(max_chunksize=chance.randint(1, 9)))))
    assert made.column_names == chunks(source).column_names
    assert cells(made) == cells(given)
    for chunk in made.to_pylist():
        assert chunk["row_ids"] == sorted(set(chunk["row_ids"]))
        assert chunk["seq_no"] == drop_of(chunk["row_ids"][-1])
        assert chunk["landing"] == 5
        assert chunk["landings"] is None or min(chunk["landings"]) < 5
        assert chunk["rows"] <= source.chunks.rows
        if not (chunk["sorted_at"] and chunk["sorted_seen"] is not False):
            assert chunk["rows"] <= source.chunks.unsorted
    assert len(set(made["chunk_id"].to_pylist())) == made.num_rows


@pytest.mark.parametrize("seed", range(tries(12)))
def test_a_process_merges_stored_chunks_as_a_task_does(source: Source, seed: int) -> None:
    chance = random.Random(seed)
    whole = random_chunks(chance, source)
    stored = whole.to_pylist()
    for chunk in stored:  # chunks of one landing are stored without the landings of their rows
        chunk["landings"] = chance.choice([None, chunk["landings"]])
    chance.shuffle(stored)
    merger = _Merger(source, 5, 99)
    ordered = sorted(whole.to_pylist(), key=lambda chunk: (chunk["entity"], chunk["row_ids"][0]))
    task = pa.Table.from_batches(list(merger(pa.Table.from_pylist(ordered, whole.schema).to_batches())))
    here = merging.merged_here(pa.Table.from_pylist(stored, whole.schema), merger)
    assert cells(here) == cells(whole)
    assert here.to_pylist() == task.to_pylist()
