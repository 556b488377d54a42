"""The landing that brought an update: its file and line, and its run.

The trace does not record the landing: merging writes an update under the token of the run that merges. Chunks record it
for each row. A landing that leaves a row as it was did not bring that row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from spark_jobs.sources import Source
from spark_jobs.sources.drops import drop_of, line_of
from spark_jobs.sources.extracts import place_in_topic
from spark_jobs.storage.descriptions.tables import FILES, LANDINGS, chunks
from spark_jobs.storage.lakes.lake import TableReader

Row = dict[str, Any]
_OF_ROW = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids"}


def with_landings(lake: TableReader, source: Source, updates: Sequence[Row], read: Sequence[str]) -> list[Row]:
    """The updates, each with the `file`, `line`, `run_id` and `landing` that brought it, in place of its `token`.

    An update has `row_id`, `entity`, `event_time`, `delta_id`, `token` (of the attempt that wrote it to the trace,
    later than its landing), and `diff` if that may be below zero. It may have the columns `read`, which distinguish
    versions of a row.
    """
    if not updates:
        return []
    brought: dict[tuple[int, bool], list[Row]] = {}
    ledger = sorted(lake.records(FILES, pc.field("source") == source.name), key=lambda row: row["landing"])
    runs = {row["landing"]: row["run_id"] for row in ledger}
    for row in _of_chunks(lake, source, updates, read, {*runs}):
        brought.setdefault((row["row_id"], row["diff"] > 0), []).append(row)
    files = _Files(ledger)

    def add_place(update: Row) -> Row:
        came = update.get("diff", 1) > 0
        versions = brought.get((update["row_id"], came), [])
        landing = landing_of(update, versions, read)
        # a row that was taken back belongs to the files as they were before this landing
        until = (landing or 0) if came else (landing or 0) - 1
        if not versions:
            # no chunk has the row any more (`trace.expiry`): the ledger has its file all the same
            until = update["token"] - 1
        path, line = files.place_of(update["row_id"], until)
        columns = {name: value for name, value in update.items() if name != "token"}
        offset = place_in_topic(path or "", line or 0) if source.landing.kind == "topic" else {}
        return {"file": path, "line": line, **offset, "run_id": runs.get(landing or 0), "landing": landing, **columns}

    return [add_place(update) for update in updates]


class _Files:
    """The files of a source by their row ids.

    An older version of Tidemark gave the ids of a file that it took back to the next file. So the file of a row id
    depends on the landing.
    """

    def __init__(self, ledger: Sequence[Row]) -> None:
        self._rows: dict[int, list[Row]] = {}
        for row in ledger:
            if row["first_row_id"] is not None:
                self._rows.setdefault(row["first_row_id"], []).append(row)
        self._firsts = sorted(self._rows)

    def place_of(self, row_id: int, landing: int) -> tuple[str | None, int | None]:
        """The file that had the row id when `landing` was done, and the line; None for both if the ledger has none."""
        before = bisect_right(self._firsts, row_id)
        if not before:
            return None, None
        first = self._firsts[before - 1]
        until = [row for row in self._rows[first] if row["landing"] <= landing and row_id <= row["last_row_id"]]
        return (until[-1]["path"], line_of(row_id, first)) if until else (None, None)


def landing_of(update: Row, brought: Sequence[Mapping[str, Any]], read: Sequence[str]) -> int | None:
    """The last landing that brought the update before it was written to the trace; None if there is none.

    Landings that brought the update's own values take precedence: the row in the trace may be older than the row that
    its file has now.
    """
    columns = [column for column in ("event_time", "delta_id", *read) if column in update]
    values = [repr(update[column]) for column in columns]
    before = [row for row in brought if row["landing"] < update["token"]]
    same = [row for row in before if [repr(row[column]) for column in columns] == values]
    return max((row["landing"] for row in same or before), default=None)


def _of_chunks(
    lake: TableReader, source: Source, updates: Sequence[Row], read: Sequence[str], ledger: set[int]
) -> list[Row]:
    """The versions of the updates' rows that landings of the ledger brought, each with the `diff` of its chunk."""
    wanted = {update["row_id"] for update in updates}
    arrays = _OF_ROW | {column: f"c_{column}" for column in read}
    # a merged chunk has the `seq_no` of its last row
    near = pc.field("seq_no") >= min(drop_of(row_id) for row_id in wanted)
    near = near & pc.field("entity").isin(sorted({update["entity"] for update in updates}))
    columns = ["diff", "landing", LANDINGS.name, *arrays.values()]
    rows = []
    for chunk in lake.stored(chunks(source), columns, near).whole().to_pylist():
        if chunk["landing"] not in ledger:
            continue
        for place, row_id in enumerate(chunk["row_ids"]):
            if row_id in wanted:
                # a chunk has no array for a column in which none of its rows has a value
                row = {name: (chunk[array] or {place: None})[place] for name, array in arrays.items()}
                landing = (chunk[LANDINGS.name] or {place: chunk["landing"]})[place]
                rows.append({"diff": chunk["diff"], **row, "landing": landing})
    return rows
