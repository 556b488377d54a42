"""The journal of committed states on a table of records, without Spark: its contract, and processes that write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from spark_jobs.engine.arrangement import ArrangementState, StoredBatch, UnsealedBatch, check_state
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import Rows, append_next_records, arrow_records, read_records
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FRONTIERS
from spark_jobs.trace import StateChange, StateConflict
from spark_jobs.trace.records_journal import RecordsJournal
from tests.engine.arrangement_contract import StateJournalContract

WRITERS, COMMITS = 3, 12


class FolderLake:
    """Tables of records in a folder, without a Spark session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def handle(self, table: Table) -> TableHandle:
        return TableHandle(str(self._folder / table.qualified))

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        return read_records(self.handle(table), where).to_pylist()

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        append_next_records(self.handle(table), where, rows_after)


@pytest.fixture
def journal(tmp_path: Path) -> RecordsJournal:
    schema = arrow_records(FRONTIERS, []).schema
    DeltaTable.create(
        FolderLake(tmp_path).handle(FRONTIERS).uri, schema=schema, partition_by=list(FRONTIERS.partitions)
    )
    return RecordsJournal(FolderLake(tmp_path))


class TestRecordsJournal(StateJournalContract):
    @pytest.fixture
    def journal(self, journal: RecordsJournal) -> RecordsJournal:
        return journal


def write(folder: Path, name: str) -> None:
    """Add so many batches to one collection, each in a commit of its own that is repeated until it is made."""
    journal = RecordsJournal(FolderLake(folder), run_id=name)
    for number in range(COMMITS):
        while True:
            before = journal.load("shared")
            batch = UnsealedBatch.of(
                StoredBatch(f"{name}{number}", 1, 1, number, number), (before.seqno_upper, before.seqno_upper + 1)
            )
            try:
                journal.commit([StateChange("shared", before, before.append(batch))])
                break
            except StateConflict:
                continue


@pytest.mark.turns
def test_of_processes_that_commit_at_once_none_loses_a_step(journal: RecordsJournal, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.trace.test_records_journal import write;"
    code += "write(Path(sys.argv[1]), sys.argv[2])"
    names = [f"writer{n}-" for n in range(WRITERS)]
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in names]
    assert [child.wait(timeout=300) for child in children] == [0] * WRITERS
    state = journal.load("shared")
    check_state(state)
    assert sorted(state.handles()) == sorted(f"{name}{n}" for name in names for n in range(COMMITS))
    assert state.seqno_upper == WRITERS * COMMITS
    # each commit is a row of its own, under a token of its own
    rows = FolderLake(tmp_path).records(FRONTIERS)
    assert sorted(row["token"] for row in rows) == [*range(1, WRITERS * COMMITS + 1)]


def test_a_collection_that_moves_does_not_hold_another_one_up(tmp_path: Path, journal: RecordsJournal) -> None:
    other = RecordsJournal(FolderLake(tmp_path))
    start = ArrangementState()
    other.commit([StateChange("aside", start, start.advance_seal(3))])
    journal.commit([StateChange("main", start, start.advance_seal(5))])
    assert {name: state.seal.time for name, state in other.states().items()} == {"aside": 3, "main": 5}
