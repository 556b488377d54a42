"""The publications that follow from moves of frontiers: worked out for columns at once and, as a twin, row by row."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.reads.publications import PublicationEntry, publications_of
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.times import EPOCH, instant

TIMES = ("seal", "reached", "published")
SCHEMA = pa.schema([("run_id", pa.string()), ("token", pa.int64()), *((name, INSTANT) for name in TIMES)])
Moves = list[dict[str, Any]]


def row_by_row(moves: Moves, newest_us: int) -> list[PublicationEntry]:
    """The twin: seals from below, each with the moves that no withdrawal leaves out."""
    seals = {instant(newest_us), *(move["published"] for move in moves)}
    entries: list[PublicationEntry] = []
    withdrawn = -1
    for seal in sorted({move["seal"] for move in moves} - {None}):
        to_seal = [move for move in moves if move["seal"] == seal]
        counting = [move for move in to_seal if move["token"] > withdrawn]
        withdrawn = max(withdrawn, *(move["token"] for move in to_seal))
        if seal in seals and seal > EPOCH and counting:
            first = min(counting, key=lambda move: move["token"])
            before = (entries[-1].published, entries[-1].reached) if entries else (EPOCH, EPOCH)
            reached = max(move["reached"] for move in counting)
            entries.append(PublicationEntry(first["run_id"], first["token"], seal, reached, *before))
    return entries


def chosen(chance: random.Random) -> Moves:
    """A few moves of few times, in any order; some have no seal, or note no publication."""
    moves = []
    for place in range(chance.randrange(14)):
        times = (chance.choice([None, *range(7)]), chance.randrange(6), chance.choice([None, *range(7)]))
        at = {name: None if us is None else instant(us) for name, us in zip(TIMES, times, strict=True)}
        moves.append({"run_id": f"run-{chance.randrange(6)}", "token": 2 * place + 1, **at})
    chance.shuffle(moves)
    return moves


@pytest.mark.parametrize("seed", range(8))
def test_publications_of_columns_are_those_of_their_rows(seed: int) -> None:
    chance, listed = random.Random(seed), 0
    for _ in range(100):
        moves, newest_us = chosen(chance), chance.randrange(8)
        entries = publications_of(pa.Table.from_pylist(moves, schema=SCHEMA), newest_us)
        assert entries == row_by_row(moves, newest_us)
        listed += len(entries)
    assert listed > 20
