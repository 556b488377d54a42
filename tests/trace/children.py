"""Processes that write one collection on the lake server, started, and some ended in the middle, by tests.

`crash DATABASE INDEX POINT`: one operation of the scenario; SIGKILL at its n-th point before or after a commit.
`write DATABASE NAME SECONDS`: append, seal, drain and compact beside others for so long; prints what was appended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spark_jobs.model import Frontier
from spark_jobs.session import open_session
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import FRONTIERS, UPDATE
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, StateConflict
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.records_journal import RecordsJournal
from tests.trace.scenario import operations

LEAST_ROUNDS = 3

DATA = (Column("key", "STRING", "Key."), Column("value", "STRING", "Value."))


def updates_of(database: str) -> Table:
    return Table(database, "updates", "Updates.", (*UPDATE, *DATA), ("batch",), ("time",))


def journal_of(database: str) -> Table:
    return Table(database, "frontiers", FRONTIERS.comment, FRONTIERS.columns, ("source",), ("token",))


def opened(lake: Lake, database: str) -> Arrangement[Any]:
    """The collection as it is committed."""
    return Arrangement(DeltaPlane(lake, updates_of(database)), RecordsJournal(lake, journal_of(database)))


def as_frame(lake: Lake) -> Callable[[list[tuple[str, str, int, int]]], Any]:
    schema = "key STRING, value STRING, time TIMESTAMP, diff BIGINT"
    spark = lake.spark
    assert spark is not None
    return lambda rows: spark.createDataFrame([(k, v, instant(t), d) for k, v, t, d in rows], schema)


def crash(database: str, index: int, point: int) -> None:
    lake = SparkLake(open_session())
    arrangement = opened(lake, database)
    left = point

    def pass_a_point() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("append", "record_next", "replace_files"):
        _mortal(name, pass_a_point)
    operations(as_frame(lake))[index](arrangement)
    lake.spark.stop()


def _mortal(name: str, passing: Callable[[], None]) -> None:
    original = getattr(SparkLake, name)

    def mortal(self: SparkLake, *arguments: Any) -> None:
        passing()
        original(self, *arguments)
        passing()

    setattr(SparkLake, name, mortal)


class Writer:
    """One of several that append to a collection and keep it small at once; each repeats what conflicts."""

    def __init__(self, lake: Lake, database: str, name: str) -> None:
        self.lake, self.name = lake, name
        self.arrangement, self.frame = opened(lake, database), as_frame(lake)
        self.number = self.conflicts = self.merges = 0

    @property
    def seal(self) -> int:
        return self.arrangement.state.seal.time or 0

    def append(self) -> None:
        self.arrangement.write(self.frame([(self.name, str(self.number), self.seal, 1)]))

    def seal_on(self) -> None:
        self.arrangement.seal(self.seal + 1)

    def let_compact(self) -> None:
        self.arrangement.allow_compaction(max(self.arrangement.state.since, Frontier.at(self.seal)))

    def merge(self) -> None:
        self.merges += self.arrangement.compact(max_merges=1).merges

    def round(self) -> None:
        self.number += 1
        steps = (self.append, self.seal_on, self.arrangement.drain, self.arrangement.unsealed_step)
        for step in (*steps, self.let_compact, self.merge):
            self.insist(step)

    def insist(self, step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                return
            except StateConflict:
                self.conflicts += 1
                self.arrangement.refresh()


def write(database: str, name: str, seconds: float) -> None:
    lake = SparkLake(open_session())
    writer, end = Writer(lake, database, name), time.monotonic() + seconds
    # the seconds are for the other writer to come in between, the rounds for a machine that is slow
    while time.monotonic() < end or writer.number < LEAST_ROUNDS:
        writer.round()
    lake.spark.stop()
    print(json.dumps({"appended": writer.number, "conflicts": writer.conflicts, "merges": writer.merges}))


if __name__ == "__main__":
    mode, database, *rest = sys.argv[1:]
    if mode == "crash":
        crash(database, int(rest[0]), int(rest[1]))
    else:
        write(database, rest[0], float(rest[1]))
