"""Which landing brought an update: its file and line, and the run.

The trace does not say: merging writes an update under the token of the run that merges. Chunks do, of each row; a row
that a landing leaves as it was did not come by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS, drop_of, line_of
from spark_jobs.storage.bronze_views import landed_chunks
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import FILES, LANDING_OF_ROWS
from spark_jobs.storage.times import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
_OF_FILE = ("path", "first_row_id", "last_row_id")
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
    said = lake.read(FILES).where(F.col("source") == source.name).select("landing", "run_id", *_OF_FILE)
    ledger = utc_rows(said.orderBy("landing"))
    runs = {row["landing"]: row["run_id"] for row in ledger}
    files = _Files(ledger)

    def named(update: Row) -> Row:
        came = update.get("diff", 1) > 0
        landing = landing_of(update, brought.get((update["row_id"], came), []), read)
        # what went was of the files as they were until then
        path, line = files.place_of(update["row_id"], (landing or 0) if came else (landing or 0) - 1)
        told = {name: value for name, value in update.items() if name != "token"}
        return {"file": path, "line": line, "run_id": runs.get(landing or 0), "landing": landing, **told}

    return [named(update) for update in updates]


class _Files:
    """The files of a source by their row ids. An older version gave the ids of a file that it took back to the next
    one, so which file it was depends on the landing."""

    def __init__(self, ledger: Sequence[Row]) -> None:
        self._rows: dict[int, list[Row]] = {}
        for row in ledger:
            if row["first_row_id"] is not None:
                self._rows.setdefault(row["first_row_id"], []).append(row)
        self._firsts = sorted(self._rows)

    def place_of(self, row_id: int, landing: int) -> tuple[str | None, int | None]:
        """The file that had the row id when `landing` was done, and the line; None where the ledger does not say."""
        before = bisect_right(self._firsts, row_id)
        if not before:
            return None, None
        first = self._firsts[before - 1]
        until = [row for row in self._rows[first] if row["landing"] <= landing and row_id <= row["last_row_id"]]
        return (until[-1]["path"], line_of(row_id, first)) if until else (None, None)


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
    drops = [drop_of(update["row_id"]) for update in updates]
    arrays = _OF_ROW | {column: f"c_{column}" for column in read}
    # a chunk none of whose rows has a value holds no array: zipping needs one all the same
    padded = [
        F.coalesce(array, F.array_repeat(F.lit(None), F.col("rows"))).alias(column) for column, array in arrays.items()
    ]
    # of a merged chunk `seq_no` is that of its last row
    held = lake.run(landed_chunks(source)).where(F.col("seq_no") >= min(drops))
    held = held.where(F.shiftright(F.col("row_ids")[0], PLACE_BITS) <= max(drops))
    near = held.where(F.col("entity").isin(sorted({update["entity"] for update in updates})))
    of_rows = near.select("diff", *padded, F.expr(LANDING_OF_ROWS).alias("landing"))
    return of_rows.select("diff", F.explode(F.arrays_zip(*arrays, "landing")).alias("r")).select("diff", "r.*")
