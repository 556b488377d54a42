"""Late rows: which rows of a publication were late for a window of a definition, and what was done with them.

One row per update and definition, whatever the kind: the kernel that the windows are made with says how late it is.
Rows below the horizon are listed too, which are in no window, once more for the source's state; of a row that went
below it the listing says that it still counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels.lateness import Lateness
from spark_jobs.restatement.touched import Scope, at
from spark_jobs.restatement.windows import drop_start, has_required
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import visible
from spark_jobs.storage.row_json import as_json
from spark_jobs.storage.tables import LATE
from spark_jobs.windows.parameters import DEFAULT_ROWS_A_SLICE

if TYPE_CHECKING:
    from pyspark.sql import Column

BELOW, KEPT_BELOW = "below_horizon", "kept_below_horizon"
"""Actions of rows that came, or went, below the horizon."""

ROWS_A_TASK = DEFAULT_ROWS_A_SLICE
"""Of a task that judges: a day's rows make one small file, a year's are judged by all cores."""
_TIMES = ("event_time", "drop_lo", "late_from", "late_to", "counts_from", "moved_to")
_LISTED = [c for c in LATE.column_names if c not in ("diff", "token", "known_from")]
_STORED = {c.name: c.type for c in LATE.columns}
_SCHEMA = (
    f"definition STRING, row_id BIGINT, entity STRING, diff BIGINT, {', '.join(f'{name} BIGINT' for name in _TIMES)},"
    " late_by BIGINT, action STRING"
)


def late_rows(
    lake: Lake, scope: Scope, definitions: list[Definition], token: int, *, n_rows: int = 0
) -> DataFrame | None:
    """The rows to append to `silver.late_history`; None where none can be late, then and now.

    Each row is judged by itself, so any number of tasks does; each writes a file. `n_rows`: about how many rows touch,
    over all definitions; one task serves ROWS_A_TASK of them.
    """
    parts = [_judged(lake, scope, definitions, n_rows)] if definitions else []
    if scope.everything:
        parts.append(_taken_back(lake, scope))
    if scope.has_horizon:
        parts.append(_below_changes(lake, scope, definitions))
    if not parts:
        return None
    marks = {"known_from": at(scope.known_from_us), "token": F.lit(token).cast("bigint")}
    return reduce(DataFrame.unionByName, parts).withColumns(marks).select(*LATE.column_names)


def _judged(lake: Lake, scope: Scope, definitions: list[Definition], n_rows: int) -> DataFrame:
    """The touching rows that are late for windows of a definition."""
    tasks = max(-(-n_rows // ROWS_A_TASK), 1)
    candidates = _candidates(lake, scope, definitions).coalesce(tasks)
    found = candidates.mapInArrow(_Judge({d.name: d for d in definitions}), _SCHEMA)
    named = found.withColumns({**{name: F.timestamp_micros(name) for name in _TIMES}, "source": _name(scope)})
    return named.select(*_LISTED, "diff")


def _taken_back(lake: Lake, scope: Scope) -> DataFrame:
    """What is listed now, taken back: after a change of definition every late row is judged anew."""
    judged = ~F.col("action").isin(BELOW, KEPT_BELOW)
    return _listed(lake, scope, judged).withColumn("diff", -F.col("diff"))


def _below_changes(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """Rows below the horizon: what should be listed of them less what is."""
    listed = _listed(lake, scope, F.col("action").isin(BELOW, KEPT_BELOW)).withColumn("diff", -F.col("diff"))
    both = _below(lake, scope, definitions).unionByName(listed)
    return both.groupBy(*_LISTED).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _below(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """The rows that came, or went, below the horizon and stay so, once per definition that would have taken them."""
    rows = scope.below_horizon(lake).where(F.col("event_time") < at(scope.frontiers.reached_us))
    # a row that came and went again below the horizon is none; one with other values is another row
    text = as_json(scope.source).alias("text")
    own = [
        F.first(c).alias(c) for c in rows.columns if c[:2] in ("c_", "t_") or c in ("entity", "event_time", "seq_no")
    ]
    net = rows.groupBy("row_id", text).agg(F.sum("diff").alias("net"), *own).where("net <> 0")
    takers = [
        F.when(has_required(d) & time.isNotNull(), F.struct(F.lit(d.name).alias("definition"), time.alias("time")))
        for d in definitions
        for time in [F.col(f"t_{d.time}")]
    ]
    if scope.source.state is not None:
        takers.append(F.struct(F.lit(None).cast("string").alias("definition"), F.col("event_time").alias("time")))
    if not takers:
        return lake.read(LATE).where("false").select(*_LISTED, "diff")
    told = {
        "definition": F.col("of.definition"),
        "event_time": F.col("of.time"),
        "source": _name(scope),
        "drop_lo": F.timestamp_micros(drop_start(scope.source)),
        "action": F.when(F.col("net") > 0, BELOW).otherwise(KEPT_BELOW),
        "diff": F.abs("net"),
    }
    found = net.withColumn("of", F.explode(F.array_compact(F.array(*takers)))).withColumns(told)
    missing = {c: F.lit(None).cast(_STORED[c]) for c in _LISTED if c not in found.columns}
    return found.withColumns(missing).select(*_LISTED, "diff")


def _listed(lake: Lake, scope: Scope, which: Column) -> DataFrame:
    """What is listed now of the source's rows, each with how often."""
    rows = lake.read(LATE).where((F.col("source") == scope.source.name) & visible(scope.publication) & which)
    return rows.groupBy(*_LISTED).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _name(scope: Scope) -> Column:
    return F.lit(scope.source.name)


def _candidates(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """Touching rows that can count and may be late, those before their drop's start, once per definition."""
    lo = drop_start(scope.source)

    def candidate(definition: Definition) -> Column:
        time = F.unix_micros(f"t_{definition.time}")
        row = F.struct(F.lit(definition.name).alias("definition"), time.alias("time"))
        return F.when((time < lo) & has_required(definition), row)

    found = F.explode(F.array_compact(F.array(*map(candidate, definitions)))).alias("of")
    rows = scope.touching(lake).select("row_id", "entity", "diff", lo.alias("lo"), found)
    return rows.select("of.definition", "row_id", "entity", "diff", "of.time", "lo")


@dataclass(frozen=True)
class _Judge:
    """What runs in the Python workers: candidates of several definitions to the late rows among them."""

    definitions: dict[str, Definition]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = batch.column("definition")
            for name in names.unique().to_pylist():
                rows = pa.Table.from_batches([batch.filter(pa.compute.equal(names, name))])
                yield from self._late(self.definitions[name], rows).to_batches()

    def _late(self, definition: Definition, rows: pa.Table) -> pa.Table:
        times, lo = rows.column("time").to_numpy(), rows.column("lo").to_numpy()
        found = definition.lateness(times, lo)
        end = int(definition.kind.half_open)
        last_late = definition.kind.latest_before(times, lo - 1)
        columns = {
            **{name: rows.column(name) for name in ("definition", "row_id", "entity", "diff")},
            "event_time": pa.array(times),
            "drop_lo": pa.array(lo),
            "late_from": pa.array(found.first + end),
            "late_to": pa.array(last_late + end),
            "counts_from": pa.array(np.maximum(found.first, found.min_end) + end, mask=found.last < found.min_end),
            "moved_to": pa.array(lo, mask=~found.moved),
            "late_by": pa.array(lo - found.first - end),
            "action": pa.array(_actions(found)),
        }
        return pa.table(columns).filter(pa.array(found.late))


def _actions(found: Lateness) -> list[str]:
    chosen = np.select([found.moved, found.discarded, found.partial], [0, 1, 2], default=3)
    return np.array(["next_window", "discard", "partial", "reemit"], object)[chosen].tolist()
