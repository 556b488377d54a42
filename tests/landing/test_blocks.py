"""Rows that travel as blocks are the rows of the files, and their chunks are those of the same rows one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.hashes import hashes_of
from spark_jobs.landing import block_chunks, blocks, worker
from spark_jobs.landing.block_chunks import BlockChunker, payloads
from spark_jobs.landing.blocks import (
    _NOT_IN_BLOCKS,
    BLOCK,
    FILE,
    REJECT,
    _bounds,
    _read,
    _rows,
)
from spark_jobs.landing.files import list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import output_schema, read_file
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination, WrittenFile
from tests.jobs.harness import Reading, write_source

HASH_RANGES = 4
METERS = [f"m{number:02d}" for number in range(7)]


@dataclass(frozen=True)
class Tables(Destination):
    """Keeps the tables that would be files."""

    written: list[pa.Table] = field(default_factory=list)

    def write(self, tables: Iterable[pa.Table]) -> list[WrittenFile]:
        self.written.extend(tables)
        return []


@pytest.fixture
def landed(settings: Any) -> tuple[Source, list[Any]]:
    """Two files of a drop and one of the next, with rejects, one file rejected whole."""
    settings = write_source(settings)
    drops = [settings.landing / "meters" / f"2024-01-0{day}" for day in (1, 2)]
    for number, drop in enumerate(drops):
        drop.mkdir(parents=True)
        for name in "ab":
            rows = [Reading(number, (i * 7) % 900, METERS[(i * i) % 7], i).line() for i in range(60)]
            (drop / f"{name}.ndjson").write_text("\n".join([*rows[:30], "nothing", *rows[30:]]))
    (drops[0] / "torn.gz").write_bytes(b"\x1f\x8b\x08\x00torn")
    source = load_source(settings.sources / "meters.yml")
    return source, [file for n in (0, 1) for file in list_drop_files(settings.landing, source, n)]


def read(source: Source, files: list[Any], bounds: list[bytes]) -> pa.Table:
    form, spec = source.landing.form, record_spec(source)
    places = pa.record_batch({"id": pa.array(range(len(files)), pa.int64())})
    read_files = partial(_read, files=tuple(files), form=form, spec=spec, bounds=bounds, hash_ranges=HASH_RANGES)
    return pa.Table.from_batches(read_files([places]))


def rows_of(source: Source, made: pa.Table) -> pa.Table:
    """The rows that blocks hold."""
    left_out = {*_NOT_IN_BLOCKS} - {"seq_no", "file", "line"}
    schema = pa.schema([f for f in output_schema(record_spec(source)) if f.name not in left_out])
    return pa.Table.from_batches(_rows(of_kind(made, BLOCK).to_batches(), schema=schema))


def of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"], kind))


@pytest.mark.parametrize("bounds", [[], [b"m02"], [b"m02", b"m05", b"x"]])
@pytest.mark.parametrize("rows_held", [8, 1 << 17])
def test_blocks_hold_the_rows_and_rejects_of_the_files(
    landed: tuple[Source, list[Any]], monkeypatch: pytest.MonkeyPatch, bounds: list[bytes], rows_held: int
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", rows_held)
    source, files = landed
    made = read(source, files, bounds)
    spec = record_spec(source)
    plain = pa.Table.from_batches([b for f in files for b in read_file(f, source.landing.form, spec)])
    good, bad = plain.filter(plain["rule"].is_null()), plain.filter(plain["rule"].is_valid())
    found = rows_of(source, made)
    assert found.sort_by("row_id").to_pylist() == good.select(found.column_names).sort_by("row_id").to_pylist()
    own = of_kind(made, BLOCK)
    told = [[np.frombuffer(part, np.uint64) for part in block] for block in own["hashes"].to_pylist()]
    assert np.array_equal(
        np.sort(np.concatenate([part for block in told for part in block])), np.sort(hashes_of(good["delta_id"]))
    )
    for block in told:
        for place, part in enumerate(block):
            assert all(int(h) * HASH_RANGES >> 64 == place for h in part) and (np.diff(part.astype(object)) >= 0).all()
    shown = ["seq_no", "file", "line", "rule", "reason", "raw"]
    assert of_kind(made, REJECT).select(shown).to_pylist() == bad.select(shown).to_pylist()
    counts = [
        (r["file"], *(r[n] for n in ("rows", "rejects", "whole", "lines"))) for r in of_kind(made, FILE).to_pylist()
    ]
    expected = {f.path: (60, 1, 0, 61) for f in files} | {"meters/2024-01-01/torn.gz": (0, 1, 1, 0)}
    assert counts == [(f.path, *expected[f.path]) for f in files]
    assert max(r["entities"] for r in of_kind(made, FILE).to_pylist()) <= len(METERS)


def test_blocks_and_what_chunks_are_made_of_are_cut_by_their_bytes_too(
    landed: tuple[Source, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, files = landed
    monkeypatch.setattr(worker, "BLOCK_BYTES", 512)
    assert len(of_kind(read(source, files[:1], []), BLOCK)) == 1
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1024)
    cut = of_kind(read(source, files[:1], []), BLOCK)
    assert len(cut) > 2
    assert len(rows_of(source, cut)) == pc.sum(of_kind(read(source, files[:1], []), FILE)["rows"]).as_py()
    rows = [block_chunks.decode(payload) for payload in cut["payload"]]
    for n_bytes, parts in ((1, len(rows)), (sum(table.nbytes for table in rows), 1)):
        monkeypatch.setattr(block_chunks, "HELD_BYTES", n_bytes)
        assert len([*block_chunks._rows_at_once(iter(rows))]) == parts


@pytest.mark.parametrize("rows_held", [20, 1 << 19])
def test_chunks_hold_each_row_once_in_order_but_the_hidden(
    landed: tuple[Source, list[Any]], monkeypatch: pytest.MonkeyPatch, rows_held: int
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)
    monkeypatch.setattr(block_chunks, "HELD_ROWS", rows_held)
    source, files = landed
    made = of_kind(read(source, files, [b"m03"]), BLOCK)
    ids = rows_of(source, made)["row_id"].to_numpy()
    hidden = np.sort(ids)[::5]
    found = []
    for bucket in (0, 1):
        own = made.filter(pc.equal(made["bucket"], bucket)).sort_by(
            [("seq_no", "ascending"), ("least_row_id", "ascending")]
        )
        to = Tables(TableHandle(""), pa.schema([]))
        assert list(BlockChunker(source, 7, hidden, to)(payloads(own.to_batches(max_chunksize=3))))
        for table in to.written:
            places = [(chunk["entity"], chunk["seq_no"], chunk["row_ids"][0]) for chunk in table.to_pylist()]
            assert places == sorted(places)
            found += table.to_pylist()
    assert sorted(i for chunk in found for i in chunk["row_ids"]) == sorted(set(ids.tolist()) - set(hidden.tolist()))
    by_entity: dict[tuple[int, str], list[int]] = {}
    for chunk in found:
        assert set(chunk["c_meter"]) == {chunk["entity"]}
        assert {row >> 43 for row in chunk["row_ids"]} == {chunk["seq_no"]}
        by_entity.setdefault((chunk["seq_no"], chunk["entity"]), []).extend(chunk["row_ids"])
    assert all(rows == sorted(rows) for rows in by_entity.values())
    assert len({chunk["chunk_id"] for chunk in found}) == len(found)


@given(st.lists(st.text("aé€\U0001f600z", max_size=3), max_size=40))
def test_rows_are_ordered_by_entity_as_a_stable_sort_orders_them(names: list[str]) -> None:
    assert_ordered(names)


def test_more_entities_than_16_bits_number_are_ordered_alike() -> None:
    assert_ordered([f"n{number % 70_001}" for number in range(0, 140_000 * 17, 17)])


def assert_ordered(names: list[str]) -> None:
    order = block_chunks._entity_order(pa.array(names, pa.string())).tolist()
    assert order == sorted(range(len(names)), key=lambda place: names[place].encode())


def test_buckets_are_ranges_of_entities_that_share_the_rows(
    landed: tuple[Source, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, files = landed
    assert _bounds(files, source.landing.form, record_spec(source), 1) == []
    bounds = _bounds(files, source.landing.form, record_spec(source), 4)
    assert bounds == sorted(set(bounds))
    assert 1 <= len(bounds) <= 3
    assert {name.decode() for name in bounds} <= set(METERS)
    assert Path(files[0].location).exists()
