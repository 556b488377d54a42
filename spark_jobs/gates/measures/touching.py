"""The updates that a publication takes in, as SQL: what windows and states must account for."""

from __future__ import annotations

from spark_jobs.gates.measures.query import texts, timestamp
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.sql import qualified
from spark_jobs.storage.tables import COUNTS, updates


def touching(scope: Scope) -> str:
    """Updates that count, are sealed and not future-dated now, and were not both when last published: see `Scope`."""
    published = scope.publication
    handles = [batch.handle for batch in scope.frontiers.arrangement.trace]
    due = f"batch IN {texts(handles)} AND {COUNTS} AND event_time < {timestamp(scope.frontiers.reached_us)}"
    fresh = f"time >= {timestamp(published.published_us)} OR event_time >= {timestamp(published.reached_us)}"
    which = due if scope.everything else f"{due} AND ({fresh})"
    return f"SELECT * FROM {qualified('trace', updates(scope.source).table)} WHERE {which}"
