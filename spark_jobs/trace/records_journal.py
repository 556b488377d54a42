"""Committed states on the lake: one row per change in a table of records like `trace.frontiers`; the greatest token of
a collection is in force.

A commit is worked out from the states in one version of the table. It becomes the next version, or is worked out anew.
So of two commits from one state, one is made and the other raises StateConflict. Several collections change together or
not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FRONTIERS
from spark_jobs.storage.lakes.lake import RecordTables
from spark_jobs.trace.frontiers import SourceFrontiers, frontier_row
from spark_jobs.trace.journal import StateChange, StateConflict, StateJournal

if TYPE_CHECKING:
    from spark_jobs.storage.delta.records import Rows


class RecordsJournal(StateJournal):
    """The states of any number of collections in one table, to which only journals may commit.

    Args:
        lake: the session.
        table: the table of the rows; several journals need a table each.
        run_id: written to each row, for people.
    """

    def __init__(self, lake: RecordTables, table: Table = FRONTIERS, *, run_id: str = "") -> None:
        self._lake = lake
        self._table = table
        self._run_id = run_id
        self._seen: dict[str, int] = {}

    def load(self, collection: str) -> ArrangementState:
        """See `StateJournal.load`. Rows older than the last one seen are skipped by their statistics."""
        rows = self._lake.records(self._table, self._unseen([collection]))
        return self._newest(rows).get(collection, ArrangementState())

    def states(self) -> Mapping[str, ArrangementState]:
        """See `StateJournal.states`."""
        return self._newest(self._lake.records(self._table))

    def commit(self, changes: Sequence[StateChange]) -> None:
        """See `StateJournal.commit`. Raises RecordsContended if other commits come first again and again."""
        if not changes:
            return

        def rows_after(rows: Rows) -> Rows:
            present = self._newest(rows)
            stale = [c.collection for c in changes if present.get(c.collection, ArrangementState()) != c.before]
            if stale:
                raise StateConflict(stale)
            token = max((row["token"] for row in rows), default=0) + 1
            after = ((change.collection, SourceFrontiers(change.after, reached_us=0)) for change in changes)
            return [frontier_row(collection, token, self._run_id, frontiers) for collection, frontiers in after]

        self._lake.record_next(self._table, self._unseen([change.collection for change in changes]), rows_after)

    def _unseen(self, collections: Sequence[str]) -> pc.Expression:
        """The condition for rows of these collections, without rows that are known to be out of force."""
        seen = min(self._seen.get(collection, 0) for collection in collections)
        return pc.field("source").isin(list(collections)) & (pc.field("token") >= seen)

    def _newest(self, rows: Rows) -> dict[str, ArrangementState]:
        newest: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: row["token"]):
            newest[row["source"]] = row["state"]
            self._seen[row["source"]] = row["token"]
        return {collection: SourceFrontiers.from_json(state).arrangement for collection, state in newest.items()}
