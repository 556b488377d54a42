"""The updates that a publication takes in, as SQL: what windows and states must account for."""

from __future__ import annotations

from spark_jobs.gates.measures.query import texts, timestamp
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.tables import COUNTS, updates


def touching(scope: Scope) -> str:
    """Updates that count, are sealed and not future-dated now, and were not both when last published: see `Scope`."""
    return f"SELECT * FROM ({due_updates(scope)}) WHERE touches"


def due_updates(scope: Scope) -> str:
    """Updates that count, are sealed and not future-dated now; `touches`: they were not both when last published."""
    published = scope.publication
    handles = [batch.handle for batch in scope.frontiers.arrangement.trace]
    due = f"batch IN {texts(handles)} AND {COUNTS} AND event_time < {timestamp(scope.frontiers.reached_us)}"
    fresh = f"time >= {timestamp(published.published_us)} OR event_time >= {timestamp(published.reached_us)}"
    touches = "true" if scope.everything else fresh
    return f"SELECT *, {touches} AS touches FROM {qualified('trace', updates(scope.source).table)} WHERE {due}"


def of_changed_entities(scope: Scope, table: Table, token: int) -> str:
    """SQL that goes on with AND: a row of a history table is of an entity of which the attempt `token` wrote one.

    Only those can be wrong by it, and a day's few are told before all that is published is brought together. A changed
    definition writes all of them.
    """
    if scope.everything:
        return ""
    written = f"source = {literal(scope.source.name)} AND era IN ('live', 'closing') AND token = {token}"
    return f" AND entity IN (SELECT entity FROM {qualified(table.database, table.table)} WHERE {written})"
