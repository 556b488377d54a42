"""The removal of expired rows from chunks, under the source's lease: see `trace.expiry`.

The frontiers record first from when on rows are there, and then one commit removes the earlier ones. A kill in between
leaves rows that nobody reads any more, and the next removal takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.jobs.in_force import in_force
from spark_jobs.landing import ledger
from spark_jobs.landing.chunking import chunks_without
from spark_jobs.landing.indexing import index_chunks
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.dense_files import dense_layout, page_rows
from spark_jobs.storage.delta.rewriting import Change
from spark_jobs.storage.descriptions.tables import chunks
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.expiry import due_rows_from, expiry_columns, flag_expired
from spark_jobs.trace.frontiers import NO_HORIZON_US


@dataclass(frozen=True, slots=True)
class Expiry:
    """The outcome: the numbers of rows and of chunks that left, and the time from which on all rows are there (None: no
    row ever left). `waits`: a run has not published what it has landed, so nothing was done."""

    rows: int = 0
    chunks: int = 0
    rows_from_us: int | None = None
    waits: bool = False

    @property
    def in_words(self) -> str:
        """The outcome as the result of a maintenance step."""
        if self.waits:
            return "a run is between its stages: expired rows wait for the next maintenance"
        if not self.rows or self.rows_from_us is None:
            return "no row has expired"
        return f"{self.rows} rows left; all rows are there from {instant(self.rows_from_us).isoformat()} on"


def expire_rows(lake: RunLake, source: Source, lease: Lease) -> Expiry:
    """Remove the rows that have expired by the publication in force; a repeat changes nothing."""
    current, publication = in_force(lake, source, near=lease.fence.token)
    rows_from_us = due_rows_from(source, current, publication)
    if rows_from_us == NO_HORIZON_US:
        return Expiry()
    if not Scope(source, current, publication).nothing_to_do() or ledger.pending_landings(
        lake, source, current.landed_through
    ):
        return Expiry(waits=True)
    if rows_from_us != current.rows_from_us:
        moved = replace(current, rows_from_us=rows_from_us)
        frontiers.commit(lake, source, lease.fence, "maintain", moved)
    table, looked_at = chunks(source), expiry_columns(source)
    stored = lake.stored(table, ["rows"])
    before = _count_rows(stored)
    rewritten = lake.rewrite(
        table,
        _without_expired(source, rows_from_us),
        looked_at,
        below=("event_min", instant(rows_from_us)),
        layout=dense_layout(page_rows(before, stored.n_rows)),
    )
    if not rewritten.files:
        return Expiry(rows_from_us=rows_from_us)
    index_chunks(lake, source)
    after = _count_rows(lake.stored(table, ["rows"]))
    return Expiry(before - after, rewritten.removed, rows_from_us)


def _count_rows(chunks_stored: StoredRows) -> int:
    return sum(int(pc.sum(part["rows"]).as_py() or 0) for part in chunks_stored.tables())


def _without_expired(source: Source, rows_from_us: int) -> Change:
    """The change that takes the expired rows out of chunks; the other rows of their chunks stay."""
    declared = {*chunks(source).column_names}

    def change(stored: pa.Table) -> pa.Table | None:
        going = flag_expired(source, stored, rows_from_us)
        if not going.any():
            return None
        is_whole = declared <= {*stored.column_names}
        return chunks_without(source, stored, going) if is_whole else stored

    return change
