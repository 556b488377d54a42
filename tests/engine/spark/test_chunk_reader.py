"""Queries of a table of chunks with a history say what the rows say that stand; the table lies in DuckDB, not in a
lake."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from spark_jobs.engine.chunks import Chunk, Row
from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.stored import StoredLayout, stored_table
from spark_jobs.engine.spark.chunks.reading import ChunkReader
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.landed_rows import TIMELINES, Landed, landed_rows, latest_of, range_of

COMPONENTS = ("p", "q", "r")
LAYOUT = StoredLayout(TIMELINES, dict.fromkeys(COMPONENTS, pa.int64()))


@dataclass
class DuckLake:
    """Runs a reader's statements; `between` is called after each of them."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    between: Callable[[], object] = lambda: None

    def add(self, landed: Sequence[Landed]) -> None:
        for part in landed:
            self.put(f"{part.landing}-{part.diff}-{part.rows[0].row_id}", [part])

    def put(self, name: str, parts: Sequence[Landed]) -> None:
        """One chunk of all rows of these parts, which differ in their landings alone."""
        rows = sorted(((row, part.landing) for part in parts for row in part.rows), key=lambda pair: pair[0].row_id)
        chunk = Chunk.from_rows(name, "e", [row for row, _ in rows])
        landings = [landing for _, landing in rows]
        of_rows = landings if len(parts) > 1 else None
        columns = stored_table([StoredChunk(chunk, {name})], LAYOUT)
        columns = columns.append_column("diff", pa.array([parts[0].diff]))
        columns = columns.append_column("landing", pa.array([max(landings)]))
        columns = columns.append_column("landings", pa.array([of_rows], pa.list_(pa.int64())))
        self.connection.register("rows", columns)
        self.connection.execute("CREATE TABLE IF NOT EXISTS chunks AS SELECT * FROM rows LIMIT 0")
        self.connection.execute("INSERT INTO chunks SELECT * FROM rows")

    def merge(self, landed: Sequence[Landed]) -> None:
        """Put chunks of several landings in the place of all that are there, but where a row is there twice."""
        self.connection.execute("DELETE FROM chunks")
        alike: dict[object, list[list[Landed]]] = {}
        for part in landed:
            groups = alike.setdefault((part.diff, tuple(part.rows[0].times)), [])
            own = {row.row_id for row in part.rows}
            room = (group for group in groups if not own & {row.row_id for other in group for row in other.rows})
            group = next(room, None)
            if group is None:
                groups.append(group := [])
            group.append(part)
        for number, group in enumerate(group for groups in alike.values() for group in groups):
            self.put(f"merged-{number}", group)

    def sql(self, statement: str) -> Any:
        # DuckDB quotes names by ", counts from 1 and has no suffix of 64 bits
        spoken = re.sub(r"(\d)L\b", r"\1", statement.replace("`", '"').replace("row_ids[0]", "row_ids[1]"))
        table = self.connection.sql(spoken).to_arrow_table()
        self.between()
        return SimpleNamespace(toArrow=lambda: table)

    def reader(self) -> ChunkReader:
        named = SimpleNamespace(database="main", table="chunks")
        return ChunkReader(self.sql, named, LAYOUT, counted=lambda chunks: chunks)  # type: ignore[arg-type]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("seed", range(tries(60)))
def test_what_is_asked_of_the_table_brings_every_row_that_stands(seed: int, merged: bool) -> None:
    chance = random.Random(seed)
    landed, standing = landed_rows(chance, COMPONENTS)
    lake = DuckLake()
    lake.add(landed)
    if merged:
        lake.merge(landed)
    for timeline in TIMELINES:
        asked = chance.sample(COMPONENTS, chance.randint(1, len(COMPONENTS)))
        at, lo, hi = (chance.randint(-1, 13) for _ in range(3))
        latest = lake.reader().latest_at("e", timeline, at, asked)
        got = {name: (row.time, row.row_id, row.value) for name, row in latest.items()}
        assert got == latest_of(standing, timeline, at, asked)
        rows = lake.reader().range_query("e", timeline, lo, hi, asked).to_pylist()
        assert [tuple(row.values()) for row in rows] == range_of(standing, timeline, lo, hi, asked)
    assert lake.reader().latest_at("nobody", "seen", 9, ["p"]) == {}
    assert lake.reader().latest_at("e", "unknown", 9, ["p"]) == {}


@pytest.mark.parametrize("reads", [1, 2])
def test_what_lands_between_two_reads_is_in_none_of_the_answer(reads: int) -> None:
    def row(row_id: int, time: int, value: int | None) -> Row:
        return Row(row_id, {"seen": time}, {"p": value})

    lake, done = DuckLake(), 0
    lake.add([Landed(1, 1, [row(1, 1, 7)]), Landed(1, 1, [row(2, 5, None)]), Landed(1, 1, [row(3, 9, None)])])

    def land() -> None:
        nonlocal done
        done += 1
        if done == reads:  # the row moves to the time that has been read already
            lake.add([Landed(-1, 2, [row(1, 1, 7)]), Landed(1, 2, [row(4, 9, 8)])])

    lake.between = land
    assert lake.reader().latest_at("e", "seen", 20, ["p"])["p"].value == 7
    assert done > reads
    assert lake.reader().latest_at("e", "seen", 20, ["p"])["p"].value == 8


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_merge_between_two_reads_changes_no_answer(reads: int) -> None:
    values = [None] * 30
    landed = [Landed(1, time, [Row(time, {"seen": time}, {"p": v})]) for time, v in enumerate([5, *values], start=1)]
    lake, done = DuckLake(), 0
    lake.add(landed)

    def merge() -> None:
        nonlocal done
        done += 1
        if done == reads:  # the chunk with the value now ends with the newest ones, which have been read already
            lake.merge(landed)

    lake.between = merge
    assert lake.reader().latest_at("e", "seen", 40, ["p"])["p"].value == 5
    assert done > reads


def test_arguments_of_another_type_are_refused_before_a_statement() -> None:
    reader = DuckLake().reader()
    # mypy refuses them, too; a caller may not run it
    for asked in (
        lambda: reader.latest_at("e", "seen", None, ["p"]),  # type: ignore[arg-type]
        lambda: reader.latest_at("e", "seen", "noon", ["p"]),  # type: ignore[arg-type]
        lambda: reader.latest_at("e", "seen", 2**63, ["p"]),
        lambda: reader.latest_at(7, "seen", 1, ["p"]),  # type: ignore[arg-type]
        lambda: reader.range_query("e", "seen", 1.5, 2, ["p"]),  # type: ignore[arg-type]
        lambda: reader.range_query("e", "seen", 1, 2, "p"),
    ):
        with pytest.raises(ParameterError):
            asked()
