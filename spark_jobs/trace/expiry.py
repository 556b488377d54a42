"""The expiry of landed rows: `retention.bronze` lets rows leave the chunks of bronze that no result needs any more.

A row expires once its drop has ended, and all its times lie, before the time `rows_from` of the frontiers. That time is
never beyond since or the horizon, so an expired row can't change what is published. The ledger keeps its entries. What
would need an expired row is refused (`rows_expired`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from spark_jobs.engine.chunks import chunk_rows
from spark_jobs.engine.columns import Flags, numbers
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers

STEPS = 16
"""The number of steps in which `rows_from` moves by the length of the retention: each step rewrites files."""
SHOWN_DROPS = 5
"""The most drops that a refusal's sentence names; its facts list all of them."""


class RowsExpired(TidemarkError):
    """An answer or a landing needs rows that `retention.bronze` has let go. Facts: `source`, `rows_from_us`; of a
    landing `drops`."""

    code = "rows_expired"


def due_rows_from(source: Source, frontiers: SourceFrontiers, publication: Publication) -> int:
    """The time, in microseconds, to which `rows_from` moves now: where it is, or on by at least a step."""
    retention_us, now_us = source.retention.bronze_us, frontiers.rows_from_us
    if retention_us is None or not publication.published_us:
        return now_us
    since_us = frontiers.arrangement.since.time or 0
    due_us = min(publication.reached_us - retention_us, frontiers.horizon_us, since_us)
    is_due = first_whole_drop(source, due_us) > 0 and due_us >= now_us + max(retention_us // STEPS, 1)
    return due_us if is_due else now_us


def first_whole_drop(source: Source, rows_from_us: int) -> int:
    """The number of the first drop that ends after `rows_from_us`: all rows of it and of later drops are there."""
    return 0 if rows_from_us == NO_HORIZON_US else max(source.drops.number_at(rows_from_us), 0)


def expiry_columns(source: Source) -> list[str]:
    """The columns of a chunk by which `flag_expired` decides."""
    return ["rows", "row_ids", "event_times", *(f"t_{timeline}" for timeline in source.timelines)]


def flag_expired(source: Source, stored: pa.Table, rows_from_us: int) -> Flags:
    """A flag for each row of chunks with `expiry_columns`, one chunk after the other: True if the row expires."""
    times = {"event_time": "event_times", **{f"t_{t}": f"t_{t}" for t in source.timelines}}
    rows = chunk_rows(stored, rows="rows", arrays={"row_id": "row_ids", **times}, same=())
    expired: Flags = numbers(rows["row_id"]) >> PLACE_BITS < first_whole_drop(source, rows_from_us)
    for name in times:
        # a time that a row lacks does not keep the row
        expired &= numbers(rows[name], null=NO_HORIZON_US) < rows_from_us
    return expired


def check_whole(source: Source, frontiers: SourceFrontiers, drops: Collection[int]) -> None:
    """Raise RowsExpired for a landing that concerns files of these drops, if rows of one may have expired."""
    first = first_whole_drop(source, frontiers.rows_from_us)
    labels = [source.drops.label(n) for n in sorted({*drops}) if n < first]
    if not labels:
        return
    more = ", …" if len(labels) > SHOWN_DROPS else ""
    raise RowsExpired(
        expected=f"files of drops of {source.name} that end after {instant(frontiers.rows_from_us).isoformat()}: rows"
        " of earlier drops have left bronze",
        found=f"new, changed or taken back files of {', '.join(labels[:SHOWN_DROPS])}{more}",
        consequence="nothing was landed",
        next_step="put the files back as they landed, or run later drops only; `retention.bronze` in the source file"
        " says how long rows stay",
        source=source.name,
        rows_from_us=frontiers.rows_from_us,
        drops=labels,
    )


def check_still_declared(source: Source, frontiers: SourceFrontiers) -> None:
    """Raise RowsExpired if rows have expired and the source file no longer has `retention.bronze`: by that key every
    reader looks for the time from which on all rows are there."""
    if frontiers.rows_from_us == NO_HORIZON_US or source.retention.bronze_us is not None:
        return
    raise RowsExpired(
        expected=f"`retention.bronze` in {source.name}.yml: rows before"
        f" {instant(frontiers.rows_from_us).isoformat()} have left bronze by it",
        found="no such key",
        consequence="nothing was run: queries would pass over the missing rows in silence",
        next_step="put the key back; a longer one keeps rows for longer from now on",
        source=source.name,
        rows_from_us=frontiers.rows_from_us,
    )


def check_query(source: Source, rows_from_us: int, least_us: int | None) -> None:
    """Raise RowsExpired for a query of landed rows whose answer may need rows before `rows_from_us`.

    `least_us`: the least time of rows that the answer depends on; None: it depends on all.
    """
    if rows_from_us == NO_HORIZON_US or (least_us is not None and least_us >= rows_from_us):
        return
    raise RowsExpired(
        expected=f"an answer from rows of {source.name} at or after {instant(rows_from_us).isoformat()}: earlier ones"
        " may have left bronze",
        found="earlier rows may be part of it"
        if least_us is None
        else f"rows from {_text(least_us)} on are part of it",
        consequence="no answer was given",
        next_step="ask for a range from that time on, or for components with a later value; `retention.bronze` in the"
        " source file says how long rows stay",
        source=source.name,
        rows_from_us=rows_from_us,
    )


def _text(time_us: int) -> str:
    try:
        return instant(time_us).isoformat()
    except OverflowError:
        return f"{np.int64(time_us)} µs"
