"""Queries of an entity's parts say what the rows say that stand, however its chunks are dealt out to parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.chunks import Chunk, Row
from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.part_reader import PartReader
from spark_jobs.engine.chunks.stored import StoredLayout, stored_table
from spark_jobs.engine.columns.plain import Ints
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.landed_rows import TIMELINES, Landed, landed_rows, latest_of, range_of

COMPONENTS = ("p", "q", "r")
LAYOUT = StoredLayout(TIMELINES, dict.fromkeys(COMPONENTS, pa.int64()))


def chunk_of(name: str, parts: Sequence[Landed]) -> pa.Table:
    """One chunk of all rows of these parts, which differ in their landings alone."""
    rows = sorted(((row, part.landing) for part in parts for row in part.rows), key=lambda pair: pair[0].row_id)
    chunk = Chunk.from_rows(name, "e", [row for row, _ in rows])
    landings = [landing for _, landing in rows]
    of_rows = landings if len(parts) > 1 else None
    columns = stored_table([StoredChunk(chunk, {name})], LAYOUT)
    columns = columns.append_column("diff", pa.array([parts[0].diff]))
    columns = columns.append_column("landing", pa.array([max(landings)]))
    return columns.append_column("landings", pa.array([of_rows], pa.list_(pa.int64())))


def merged(landed: Sequence[Landed]) -> list[list[Landed]]:
    """The landings in groups that one chunk may have: rows that are there twice are in different ones."""
    alike: dict[object, list[list[Landed]]] = {}
    for part in landed:
        groups = alike.setdefault((part.diff, tuple(part.rows[0].times)), [])
        row_ids = {row.row_id for row in part.rows}
        room = (group for group in groups if not row_ids & {row.row_id for other in group for row in other.rows})
        group = next(room, None)
        if group is None:
            groups.append(group := [])
        group.append(part)
    return [group for groups in alike.values() for group in groups]


@dataclass
class Parts:
    """Chunks dealt out to parts. `opened`: the numbers of the parts that were read."""

    chunks: list[pa.Table]
    least: Ints
    greatest: Ints
    opened: list[int] = field(default_factory=list)

    def read(self, numbers: Ints, columns: Sequence[str]) -> pa.Table:
        """The chunks of some parts."""
        self.opened += numbers.tolist()
        chosen = [self.chunks[0].slice(0, 0), *(self.chunks[n] for n in numbers)]
        present = [name for name in columns if name in chosen[0].column_names]
        return pa.concat_tables(chosen).select(present)


@dataclass
class Stored:
    """A table of chunks of the entity `e`, in parts of one chunk or of several."""

    parts: list[pa.Table]
    last: Parts | None = None

    def parts_of(self, entity: str, timeline: str, lo: int, hi: int) -> Parts:
        """The parts that may have times from `lo` to `hi`."""
        there: list[tuple[pa.Table, int, int]] = []
        for part in self.parts if entity == "e" and timeline in TIMELINES else []:
            least, greatest = (
                [v for v in part[f"{of}_{timeline}"].to_pylist() if v is not None] for of in ("min", "max")
            )
            if least and min(least) <= hi and max(greatest) >= lo:
                there.append((part, min(least), max(greatest)))
        first, last = (np.array([of[place] for of in there], np.int64) for place in (1, 2))
        self.last = Parts([part for part, *_ in there], first, last)
        if not there:
            self.last.chunks = [self.parts[0].slice(0, 0)]
        return self.last

    def reader(self) -> PartReader:
        """The reader of this table."""
        return PartReader(self.parts_of, LAYOUT, has_history=True)


def stored(chance: random.Random, landed: Sequence[Landed], *, merge: bool) -> Stored:
    """The landings as chunks, dealt out to parts at random."""
    groups = merged(landed) if merge else [[part] for part in landed]
    chunks = [chunk_of(f"chunk-{number}", group) for number, group in enumerate(groups)]
    dealt: dict[int, list[pa.Table]] = {}
    for chunk in chunks:
        dealt.setdefault(chance.randrange(len(chunks)), []).append(chunk)
    return Stored([pa.concat_tables(part) for part in dealt.values()])


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("seed", range(tries(60)))
def test_queries_of_parts_say_what_the_rows_say_that_stand(seed: int, merge: bool) -> None:
    chance = random.Random(seed)
    landed, standing = landed_rows(chance, COMPONENTS)
    table = stored(chance, landed, merge=merge)
    for timeline in TIMELINES:
        asked = chance.sample(COMPONENTS, chance.randint(1, len(COMPONENTS)))
        at, lo, hi = (chance.randint(-1, 13) for _ in range(3))
        latest = table.reader().latest_at("e", timeline, at, asked)
        got = {name: (row.time, row.row_id, row.value) for name, row in latest.items()}
        assert got == latest_of(standing, timeline, at, asked)
        rows = table.reader().range_query("e", timeline, lo, hi, asked).to_pylist()
        assert [tuple(row.values()) for row in rows] == range_of(standing, timeline, lo, hi, asked)
    assert table.reader().latest_at("nobody", "seen", 9, ["p"]) == {}
    assert table.reader().latest_at("e", "unknown", 9, ["p"]) == {}


def test_the_latest_value_is_read_from_the_newest_parts() -> None:
    landed = [Landed(1, time, [Row(time, {"seen": time}, {"p": time})]) for time in range(100)]
    table = Stored([chunk_of(f"chunk-{part.landing}", [part]) for part in landed])
    assert table.reader().latest_at("e", "seen", 70, ["p"])["p"].value == 70
    assert table.last is not None
    assert table.last.opened == [70]


def test_arguments_of_another_type_are_refused_before_a_read() -> None:
    def parts_of(*_: Any) -> Parts:
        raise AssertionError("nothing is read")

    reader = PartReader(parts_of, LAYOUT)
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
