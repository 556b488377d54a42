"""Late rows: which rows of a publication were late for a window of a definition, and what was done with them.

It follows from the row and the definition alone, never from when the row was processed: a row is late for a window
whose last instant lies before `lo`, the start of the row's own drop. The first window over a row at `t` ends at `t`
(sliding) or is the first half-open one over `t`; a session's end counts as `t + gap`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.restatement.definitions import Definition
from spark_jobs.restatement.touched import Scope, at
from spark_jobs.restatement.windows import min_end
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
    lo = F.lit(drops.start_us) + F.col("seq_no") * F.lit(drops.every_us)
    first, last = _last_instants(definition, F.unix_micros(f"t_{definition.time}"))
    rows = scope.touching(lake).where(first < lo)
    for key in definition.key:
        rows = rows.where(F.col(f"c_{key}").isNotNull())
    least = min_end(definition)
    action = F.when(first >= least, "reemit").when(last >= least, "partial").otherwise("discard")
    return rows.select(
        F.lit(definition.name).alias("definition"),
        "row_id",
        "entity",
        F.col(f"t_{definition.time}").alias("event_time"),
        F.timestamp_micros(lo).alias("drop_lo"),
        (lo - first - F.lit(int(definition.is_half_open))).alias("late_by"),
        action.alias("action"),
        "diff",
    )


def _last_instants(definition: Definition, time: Column) -> tuple[Column, Column]:
    """The last instant of the first and of the last window that can hold a row at `time`."""
    if definition.is_session:
        return time + F.lit(definition.span_us), time + F.lit(definition.span_us)
    if not definition.is_half_open:
        return time, time + F.lit(definition.span_us)
    step, size = F.lit(definition.step_us), F.lit(definition.span_us)
    first_start = (F.floor((time - size) / step) + F.lit(1)) * step
    return first_start + size - F.lit(1), F.floor(time / step) * step + size - F.lit(1)
