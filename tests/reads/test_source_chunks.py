"""Queries of landed chunks say what a filter of all rows says, whatever the table went through and wherever its index
is: none, behind, damaged, or of another table."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem

from spark_jobs.engine.chunks import Row
from spark_jobs.errors import ParameterError
from spark_jobs.landing import ledger
from spark_jobs.landing.chunking import chunks_here, chunks_without
from spark_jobs.landing.indexing import index_chunks
from spark_jobs.landing.merging import merge_all
from spark_jobs.landing.pending import row_schema
from spark_jobs.reads.source_chunks import NothingLanded, SourceChunks, UnknownComponent, UnknownTimeline
from spark_jobs.sources import Source, parse_source
from spark_jobs.sources.drops import first_row_id
from spark_jobs.sources.drops import row_id as id_of
from spark_jobs.storage.delta import chunk_index, chunk_index_writer
from spark_jobs.storage.delta.data_files import FileDamaged
from spark_jobs.storage.delta.dense_files import dense_layout
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_upkeep import remove_unused
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.rewriting import forget_versions
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.effort import tries
from tests.engine.landed_rows import latest_of, range_of

TEXT = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns: {meter: string, at: timestamp, seen: timestamp, p: {type: int, optional: true}, q: {type: int, optional: true}}
timelines: {taken: at, seen: seen}
event_time: [taken, seen]
entity: meter
chunks: {rows: 4, unsorted: 2}
"""
COMPONENTS, TIMELINES = ("p", "q"), ("taken", "seen")
ENTITIES = ("a", "b", "ä", "𝄞")
NONE_KEPT = timedelta(0)
_US = pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def source() -> Source:
    return parse_source(TEXT, file="meters.yml")


@dataclass
class Bronze:
    """The chunks of a source in a lake of files, and the rows that stand: by entity and row id."""

    lake: FileLake
    source: Source
    chance: random.Random
    standing: dict[tuple[str, int], Row] = field(default_factory=dict)
    token: int = 0
    unused: list[int] = field(default_factory=lambda: list(range(1, 4_000)))

    @classmethod
    def in_folder(cls, folder: Path, source: Source, chance: random.Random) -> Bronze:
        """An empty lake in a folder."""
        lake = FileLake(folder)
        lake.folder = LakeFolder(str(folder))  # not its own: an erasure takes the log away under an open table
        lake.catalog.ensure({}, [chunks(source), FILES])
        return cls(lake, source, chance)

    @property
    def folder(self) -> Path:
        """The folder of the table of chunks."""
        return Path(self.lake.folder.handle(chunks(self.source)).uri)

    def land(self, *, counts: bool = True) -> None:
        """Rows that come and rows that go, in one landing; the ledger names it if it counts."""
        chance, self.token = self.chance, self.token + 1
        back = {key: row for key, row in self.standing.items() if chance.random() < 0.2}
        drop = chance.randrange(4)
        new = {}
        for _ in range(chance.randint(1, 12)):
            line = self.unused.pop(0)
            times = {name: chance.randint(0, 40) for name in chance.choice([TIMELINES, ("taken",), ("seen",)])}
            values = {name: chance.choice([None, chance.randint(0, 9)]) for name in COMPONENTS}
            row_id = id_of(first_row_id(drop, "a.ndjson"), line)
            new[chance.choice(ENTITIES), row_id] = Row(row_id, times, values)
        again = {key: row for key, row in back.items() if chance.random() < 0.3}
        came = [*again.items(), *new.items()]
        made = self._rows([*((*pair, -1) for pair in back.items()), *((*pair, 1) for pair in came)])
        table = chunks(self.source)
        layout = dense_layout(chance.choice([1, 2, 64]))
        stored = chunks_here(made, self.source, self.token)
        self.lake.append_files(table, self.lake.destination(table, layout).write([stored]))
        if counts:
            counted = {"rows": len(came), "rows_back": len(back)}
            rows = [{**ledger.empty_drop_row(self.source, drop), **counted}]
            ledger.write(self.lake, rows, Fence(self.source.name, self.token), "test")
            self.standing = {k: r for k, r in self.standing.items() if k not in back} | again | new

    def _rows(self, rows: list[tuple[tuple[str, int], Row, int]]) -> pa.Table:
        def times(name: str) -> pa.Array:
            return pa.array([row.times.get(name) for _, row, _ in rows], pa.int64()).cast(_US)

        columns = {
            "row_id": [row.row_id for _, row, _ in rows],
            "seq_no": [row.row_id >> 40 for _, row, _ in rows],
            "entity": [entity for (entity, _), _, _ in rows],
            "event_time": pc.coalesce(times("taken"), times("seen")),
            "t_taken": times("taken"),
            "t_seen": times("seen"),
            "c_meter": [entity for (entity, _), _, _ in rows],
            "c_p": [row.data["p"] for _, row, _ in rows],
            "c_q": [row.data["q"] for _, row, _ in rows],
        }
        schema = row_schema(self.source)
        n = len(rows)
        arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in schema]
        return pa.table(arrays, schema=schema).append_column("diff", pa.array([diff for *_, diff in rows]))

    def crash(self) -> None:
        """A landing that ends before its row of the ledger."""
        self.land(counts=False)

    def index(self) -> None:
        """Bring the index up to date."""
        index_chunks(self.lake, self.source)

    def merge(self) -> None:
        """Merge all landings, as a run or maintenance does."""
        merge_all(self.lake, self.source, self.token, self.token)

    def vacuum(self) -> None:
        """Remove the files that the table names no more."""
        before = {*(self.folder / "_index").glob("*")}
        remove_unused(self.lake.folder.handle(chunks(self.source)), NONE_KEPT)
        assert {*(self.folder / "_index").glob("*")} == before

    def erase(self) -> None:
        """Remove all rows of an entity from the files and from earlier versions."""
        entity = self.chance.choice(ENTITIES)

        def change(stored: pa.Table) -> pa.Table | None:
            of_entity = pc.equal(stored["entity"], entity).to_numpy()
            going = np.repeat(of_entity, stored["rows"].to_numpy())
            if not going.any():
                return None
            return chunks_without(self.source, stored, going) if "row_ids" in stored.column_names else stored

        self.lake.rewrite(chunks(self.source), change, ["entity", "rows"], layout=dense_layout(2))
        self._count_what_is_left()
        forget_versions(self.lake.folder.handle(chunks(self.source)))
        self.standing = {key: row for key, row in self.standing.items() if key[0] != entity}
        assert not (self.folder / "_index").exists() or not any((self.folder / "_index").iterdir())

    def _count_what_is_left(self) -> None:
        stored = self.lake.stored(chunks(self.source), ["landing", "landings", "rows"]).whole().to_pylist()
        left = Counter[int](n for row in stored for n in row["landings"] or [row["landing"]] * row["rows"])
        counted = ledger.counted_landings(self.lake, self.source)
        empty, now = ledger.empty_drop_row(self.source, 0), datetime.now(UTC)
        rows = [{**empty, "rows": left[n], "landing": n, "run_id": "test", "landed_at": now} for n in counted]
        self.token += 1
        self.lake.replace_records(FILES, rows, Fence(self.source.name, self.token))

    def damage(self) -> None:
        """The index is lost, in part or whole, or is that of another table."""
        files = sorted((self.folder / "_index").glob("*"))
        if not files:
            return
        file = self.chance.choice(files)
        match self.chance.choice(["gone", "cut off", "other", "all"]):
            case "gone":
                file.unlink()
            case "cut off" if file.suffix == ".json":
                file.write_bytes(file.read_bytes()[:-9])
            case "other" if file.suffix == ".json":
                file.write_text(file.read_text().replace('"commit": "', '"commit": "of another table '))
            case _:
                shutil.rmtree(self.folder / "_index")

    def check(self) -> None:
        """Compare answers with the filter of all rows."""
        chance, landed_rows = self.chance, SourceChunks(StoredLake(self.lake.folder.root), self.source)
        for entity in (*ENTITIES, "nobody"):
            rows = [row for (of, _), row in self.standing.items() if of == entity]
            timeline, components = chance.choice(TIMELINES), chance.sample(COMPONENTS, chance.randint(1, 2))
            lo, hi, at = (chance.randint(-1, 41) for _ in range(3))
            answer = landed_rows.range_query(entity, timeline, lo, hi, components)
            answer = answer.set_column(1, "time", answer["time"].cast(pa.int64()))
            assert [tuple(row.values()) for row in answer.to_pylist()] == range_of(rows, timeline, lo, hi, components)
            latest = landed_rows.latest_at(entity, timeline, at, components)
            got = {name: (row.time, row.row_id, row.value) for name, row in latest.items()}
            assert got == latest_of(rows, timeline, at, components)


STEPS: list[Callable[[Bronze], None]] = [
    *[Bronze.land] * 6,
    *[Bronze.index] * 4,
    *[Bronze.merge, Bronze.vacuum, Bronze.erase, Bronze.damage, Bronze.crash],
]


@pytest.mark.parametrize("seed", range(tries(20)))
def test_queries_say_what_a_filter_of_all_rows_says(
    seed: int, tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(chunk_index_writer, "GROUP_ENTRIES", chance.choice([1, 3, 4_096]))
    bronze = Bronze.in_folder(tmp_path, source, chance)
    bronze.check()
    bronze.land()
    for step in chance.choices(STEPS, k=16):
        step(bronze)
        bronze.check()


def test_parts_of_the_index_grow_with_the_logarithm_of_landings(tmp_path: Path, source: Source) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(7))
    for _ in range(40):
        bronze.land()
        bronze.index()
    bronze.check()
    assert len([*(bronze.folder / "_index").glob("part-*")]) < 2 * 10, "those of the index and of the one before it"
    (newest,) = (bronze.folder / "_index").glob("*.json")
    listed = json.loads(newest.read_text())
    assert len(listed["parts"]) < 10
    assert listed["beside"] == []


def test_an_index_is_written_only_if_the_table_has_changed(tmp_path: Path, source: Source) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(7))
    bronze.land()
    bronze.index()
    before = {path: path.stat().st_mtime_ns for path in (bronze.folder / "_index").iterdir()}
    bronze.index()
    assert {path: path.stat().st_mtime_ns for path in (bronze.folder / "_index").iterdir()} == before


def test_a_query_opens_the_files_that_have_the_entity_and_no_table_log(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(3))
    for _ in range(30):
        bronze.land()
        bronze.index()
    opened: list[str] = []
    real = chunk_index.open_chunks

    def note(system: FileSystem, path: str) -> AbstractContextManager[pq.ParquetFile]:
        opened.append(path)
        return real(system, path)

    monkeypatch.setattr(chunk_index, "open_chunks", note)
    for name in ("open_table", "_select_files"):
        monkeypatch.delattr(chunk_index, name)
    monkeypatch.setattr(StoredLake, "records", None)
    rows = [row for (of, _), row in bronze.standing.items() if of == "a" and "taken" in row.times]
    time = rows[0].times["taken"]
    SourceChunks(StoredLake(bronze.lake.folder.root), source).range_query("a", "taken", time, time, ["p"])
    assert 0 < len(opened) < 30


def test_rows_written_without_a_landing_are_in_no_answer_until_they_land(tmp_path: Path, source: Source) -> None:
    def beside() -> int:
        (newest,) = (bronze.folder / "_index").glob("*.json")
        return len(json.loads(newest.read_text())["beside"])

    bronze = Bronze.in_folder(tmp_path, source, random.Random(5))
    bronze.land()
    before = dict(bronze.standing)
    bronze.land(counts=False)
    for _ in range(2):
        bronze.check()
        bronze.index()
    assert beside() == 1, "the attempt may still be at work, though it has lost its lease"
    drop = [ledger.empty_drop_row(source, 0)]
    ledger.write(bronze.lake, drop, Fence(source.name, bronze.token), "test")
    late = SourceChunks(bronze.lake, source)
    came = {entity: late.range_query(entity, "taken", 0, 40).num_rows for entity in ENTITIES}
    bronze.index()
    assert beside() == 0
    assert {entity: late.range_query(entity, "taken", 0, 40).num_rows for entity in ENTITIES} == came
    stood = Counter(entity for (entity, _), row in before.items() if "taken" in row.times)
    assert came != {entity: stood[entity] for entity in ENTITIES}


def test_what_a_given_up_attempt_left_gets_no_entry_once_a_later_one_has_landed(tmp_path: Path, source: Source) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(5))
    bronze.crash()
    bronze.land()
    bronze.index()
    (newest,) = (bronze.folder / "_index").glob("*.json")
    assert json.loads(newest.read_text())["beside"] == []
    bronze.check()


def test_unknown_names_are_refused_by_name(tmp_path: Path, source: Source) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(5))
    landed_rows = SourceChunks(bronze.lake, source)
    with pytest.raises(UnknownTimeline, match="one of the timelines taken, seen of meters, found 'felt'"):
        landed_rows.range_query("a", "felt", 0, 1)
    with pytest.raises(UnknownComponent, match="found 'weight'"):
        landed_rows.latest_at("a", "taken", 0, ["p", "weight"])
    with pytest.raises(ParameterError, match="a string as timeline"):
        landed_rows.range_query("a", ["taken"], 0, 1)  # type: ignore[arg-type]  # the wrong type is the case
    with pytest.raises(ParameterError, match="a list of strings as components"):
        landed_rows.latest_at("a", "taken", 0, "p")
    nobody = landed_rows.range_query("nobody", "taken", 0, 9_999)
    assert (nobody.num_rows, nobody.column_names[2:]) == (0, list(source.columns))
    with pytest.raises(NothingLanded, match="never_landed"):
        SourceChunks(bronze.lake, source.model_copy(update={"source": "never_landed"})).latest_at("a", "taken", 0)


def test_a_damaged_file_ends_the_queries_that_need_it_by_name_and_no_landing(tmp_path: Path, source: Source) -> None:
    bronze = Bronze.in_folder(tmp_path, source, random.Random(5))
    bronze.land()
    (file,) = bronze.folder.glob("part-*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    bronze.index()
    entity = next(iter(bronze.standing))[0]
    with pytest.raises(FileDamaged, match=file.name):
        SourceChunks(bronze.lake, source).range_query(entity, "taken", 0, 40)
    file.write_bytes(content)
    bronze.check()
    bronze.index()
    bronze.check()
