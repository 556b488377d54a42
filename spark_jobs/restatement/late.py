"""Late rows: which rows of a publication were late for a window of a definition, and what was done with them.

It follows from the row and the definition alone, never from when the row was processed: a row at `t` is late for a
window that ended before `lo`, the start of its own drop. The first such window ends at `t` (sliding), `t + gap`
(session), or is the first half-open one over `t`; the last one ends at the latest `t + size`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.restatement.definitions import Definition
from spark_jobs.restatement.touched import Scope, at
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import LATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def late_rows(lake: Lake, scope: Scope, definitions: list[Definition], token: int) -> DataFrame | None:
    """The rows to append to `silver.late_history`; None for a source without windows."""
    frame = None
    for definition in definitions:
        rows = _late(lake, scope, definition)
        frame = rows if frame is None else frame.unionByName(rows)
    if frame is None:
        return None
    stamped = frame.withColumns(
        {
            "source": F.lit(scope.source.name),
            "known_from": at(scope.known_from_us),
            "token": F.lit(token).cast("bigint"),
        }
    )
    return stamped.select(*LATE.column_names).coalesce(1)


def _late(lake: Lake, scope: Scope, definition: Definition) -> DataFrame:
    drops = definition.source.drops
    time = F.unix_micros(f"t_{definition.time}")
    lo = F.lit(drops.start_us) + F.col("seq_no") * F.lit(drops.every_us)
    first_end, last_end = (time + F.lit(d) for d in _ends(definition))
    rows = scope.touching(lake).where(first_end < lo)
    for key in definition.key:
        rows = rows.where(F.col(f"c_{key}").isNotNull())
    return rows.select(
        F.lit(definition.name).alias("definition"),
        "row_id",
        "entity",
        F.col(f"t_{definition.time}").alias("event_time"),
        F.timestamp_micros(lo).alias("drop_lo"),
        (lo - first_end).alias("late_by"),
        _action(definition, lo, first_end, last_end),
        "diff",
    )


def _ends(definition: Definition) -> tuple[int, int]:
    """Distance from a row's time to the end of the first and of the last window that can hold it."""
    if definition.is_session:
        return definition.span_us, definition.span_us
    return 0, definition.span_us


def _action(definition: Definition, lo: Column, first_end: Column, last_end: Column) -> Column:
    if definition.limit_us is None:
        return F.lit("reemit").alias("action")
    limit = F.lit(definition.limit_us)
    counts_in_first, counts_in_last = lo - first_end <= limit, lo - last_end <= limit
    action = F.when(counts_in_first, "reemit").when(counts_in_last, "partial").otherwise("discard")
    return action.alias("action")
