"""The updates that a publication takes in, out of the trace's files: what windows and states must account for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.column_types import INSTANT
from spark_jobs.storage.data_files import StoredRows
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import BELOW_HORIZON, updates
from spark_jobs.trace.source_plane import trace_handles


def touching(lake: Lake, scope: Scope, columns: Sequence[str]) -> StoredRows:
    """Updates that count, are sealed and not future-dated now, and were not both when last published: see `Scope`."""
    return due(lake, scope, columns, None if scope.everything else touches(scope))


def due(lake: Lake, scope: Scope, columns: Sequence[str], where: pc.Expression | None = None) -> StoredRows:
    """Updates that count, are sealed and not future-dated now, of those that meet `where`."""
    counts = pc.field(BELOW_HORIZON.name).is_null() & (pc.field("event_time") < instant(scope.frontiers.reached_us))
    handles = {"batch": trace_handles(scope.frontiers.arrangement)}
    return lake.stored(updates(scope.source), columns, counts if where is None else counts & where, handles)


def touches(scope: Scope) -> pc.Expression:
    """Whether an update that is due was not so when last published."""
    published = scope.publication
    fresh = pc.field("time") >= instant(published.published_us)
    return fresh | (pc.field("event_time") >= instant(published.reached_us))


def instant(time_us: int) -> pa.Scalar:
    """An instant as the tables have them."""
    return pa.scalar(time_us, INSTANT)


def of_landings(landings: Sequence[int]) -> pc.Expression:
    """Whether a row is of one of these landings."""
    return pc.field("landing").isin(pa.array(list(landings), pa.int64()))
