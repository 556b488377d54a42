"""Committed states on Delta: one row per change in a table like `trace.frontiers`, the greatest token is in force.

Every commit takes the next token of the whole journal as Delta's transaction version, so of two commits that start
from one state Delta takes one: several collections change together or not at all. The loser looks again: if only
other collections have moved it repeats its commit under the next token, else StateConflict is raised.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.arrangement import ArrangementState
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.schema import Table
from spark_jobs.storage.tables import FRONTIERS
from spark_jobs.trace.frontiers import SourceFrontiers, frontier_row
from spark_jobs.trace.journal import StateChange, StateConflict, StateJournal

if TYPE_CHECKING:
    from pyspark.sql import Row

ATTEMPTS = 20
"""How often a commit is repeated because other collections of the journal moved in between."""

CONCURRENT = "2D521"
"""SQLSTATE of Delta's refusals of a commit that another one has overtaken."""


class DeltaJournal(StateJournal):
    """The states of any number of collections in one table.

    Args:
        lake: the session.
        table: where the rows go; several journals need a table each.
        run_id: stands in each row, for people.
    """

    def __init__(self, lake: Lake, table: Table = FRONTIERS, *, run_id: str = "") -> None:
        self._lake = lake
        self._table = table
        self._run_id = run_id
        self._seen: dict[str, int] = {}
        self._head = 0

    def load(self, collection: str) -> ArrangementState:
        """See `StateJournal.load`. Rows older than the last one seen are skipped by their statistics."""
        rows = self._lake.read(self._table).where(F.col("source") == collection)
        rows = rows.where(F.col("token") >= self._seen.get(collection, 0))
        return self._state(collection, rows.orderBy(F.col("token").desc()).first())

    def commit(self, changes: Sequence[StateChange]) -> None:
        """See `StateJournal.commit`."""
        for _ in range(ATTEMPTS):
            if not changes:
                return
            present, head = self._present([change.collection for change in changes])
            stale = [change.collection for change in changes if present[change.collection] != change.before]
            if stale:
                raise StateConflict(stale)
            if self._try_commit(changes, head + 1):
                return
        raise StateConflict(change.collection for change in changes)

    def _present(self, collections: Sequence[str]) -> tuple[dict[str, ArrangementState], int]:
        """The states in force and the journal's greatest token, of one snapshot of the table."""
        # every collection seen lies at or before the head, so its row is among these or was seen to be in force
        floor = min(self._seen.get(collection, 0) for collection in collections)
        rows = self._lake.read(self._table).where(F.col("token") >= floor).select("source", "token", "state")
        newest = rows.groupBy("source").agg(F.max_by(F.struct("token", "state"), "token").alias("row"))
        found = {row.source: row.row for row in newest.collect()}
        states = {collection: self._state(collection, found.get(collection)) for collection in collections}
        return states, max((row.token for row in found.values()), default=self._head)

    def _state(self, collection: str, row: Row | None) -> ArrangementState:
        if row is None:
            return ArrangementState()
        self._seen[collection] = row.token
        self._head = max(self._head, row.token)
        return SourceFrontiers.from_json(row.state).arrangement

    def _try_commit(self, changes: Sequence[StateChange], token: int) -> bool:
        """Whether the rows were written under `token`: Delta skips or refuses them if another commit took it."""
        mine = f"{self._run_id}#{uuid.uuid4().hex}"
        rows = [
            frontier_row(change.collection, token, mine, SourceFrontiers(change.after, reached_us=0))
            for change in changes
        ]
        try:
            self._lake.append(self._table, self._lake.frame(self._table, rows), Fence(self._table.qualified, token))
        except PySparkException as error:
            if error.getSqlState() != CONCURRENT:
                raise
            return False
        written = self._lake.read(self._table).where((F.col("token") == token) & (F.col("run_id") == mine))
        return not written.isEmpty()
