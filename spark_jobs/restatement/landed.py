"""Which landing brought an update: its file and line, and the run.

The trace does not say: merging writes an update under the token of the run that merges. Chunks do: each is of one
landing, and a row that a landing leaves as it was is in none of that landing's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.sources.drops import row_id_parts
from spark_jobs.storage.bronze_views import landed_chunks
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import FILES
from spark_jobs.storage.times import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
_OF_ROW = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids"}


def with_landings(lake: Lake, source: Source, updates: Sequence[Row], read: Sequence[str]) -> list[Row]:
    """The updates with `file`, `line`, `run_id` and `landing` of what brought them, in place of their `token`.

    An update has `row_id`, `entity`, `event_time`, `delta_id`, `token` (of the attempt that wrote it to the trace,
    later than its landing), `diff` if it may be below zero, and maybe the columns `read`, which tell versions of a row
    apart.
    """
    if not updates:
        return []
    brought: dict[tuple[int, bool], list[Row]] = {}
    for row in utc_rows(_of_chunks(lake, source, updates, read)):
        brought.setdefault((row["row_id"], row["diff"] > 0), []).append(row)
    ledger = utc_rows(lake.read(FILES).where(F.col("source") == source.name).orderBy("landing"))
    runs = {row["landing"]: row["run_id"] for row in ledger}
    paths: dict[tuple[int, int], list[Row]] = {}
    for row in ledger:
        paths.setdefault((row["seq_no"], row["file_rank"]), []).append(row)

    def named(update: Row) -> Row:
        seq_no, rank, line = row_id_parts(update["row_id"])
        landing = landing_of(update, brought.get((update["row_id"], update.get("diff", 1) > 0), []), read)
        of_file = [row["path"] for row in paths.get((seq_no, rank), []) if landing and row["landing"] <= landing]
        told = {name: value for name, value in update.items() if name != "token"}
        path = of_file[-1] if of_file else None
        return {"file": path, "line": line, "run_id": runs.get(landing or 0), "landing": landing, **told}

    return [named(update) for update in updates]


def landing_of(update: Row, brought: Sequence[Mapping[str, Any]], read: Sequence[str]) -> int | None:
    """The last landing that brought the update, of those before it was written to the trace: with its values, if one
    did, since a row that stands may be older than what its file says now."""
    told = [column for column in ("event_time", "delta_id", *read) if column in update]
    values = [repr(update[column]) for column in told]
    before = [row for row in brought if row["landing"] < update["token"]]
    same = [row for row in before if [repr(row[column]) for column in told] == values]
    return max((row["landing"] for row in same or before), default=None)


def _of_chunks(lake: Lake, source: Source, updates: Sequence[Row], read: Sequence[str]) -> DataFrame:
    """The rows of these updates' entities in the drops that brought them, with their chunk's `landing` and `diff`."""
    drops = [row_id_parts(update["row_id"])[0] for update in updates]
    arrays = _OF_ROW | {column: f"c_{column}" for column in read}
    # a chunk none of whose rows has a value holds no array: zipping needs one all the same
    padded = [
        F.coalesce(array, F.array_repeat(F.lit(None), F.col("rows"))).alias(column) for column, array in arrays.items()
    ]
    held = lake.run(landed_chunks(source)).where(F.col("seq_no").between(min(drops), max(drops)))
    near = held.where(F.col("entity").isin(sorted({update["entity"] for update in updates})))
    rows = near.select("landing", "diff", *padded).withColumn("r", F.explode(F.arrays_zip(*arrays)))
    return rows.select("landing", "diff", "r.*")
