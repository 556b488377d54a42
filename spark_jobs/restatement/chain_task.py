"""A task of a run of chains: the rows, states and segments of whole entities to written files of corrections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.meaning import chain_inputs
from spark_jobs.engine.columns import are, numbers
from spark_jobs.engine.deltas import NO_DELTA
from spark_jobs.engine.hashes import hashes
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.engine.spark.checkpoints import BUCKET, BUCKETS, PART_BYTES, PLACE
from spark_jobs.engine.spark.windows import RunFiles
from spark_jobs.engine.windows import MemoryBudget, RowSorter
from spark_jobs.exchange import Labelled
from spark_jobs.restatement.by_entity import stamp
from spark_jobs.restatement.chain_stretches import IDENTITY, ROW, SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_worker import ChainWorker
from spark_jobs.restatement.pressure import metrics_of
from spark_jobs.sources import Source
from spark_jobs.storage.delta.chain_files import ROW_GROUP_BYTES
from spark_jobs.storage.delta.written_files import Destination, Layout, as_plain
from spark_jobs.storage.descriptions.chain_tables import COMPACTION, METRICS

COMPACTED = ("checkpoints", "merged", "dropped", "bytes_before", "bytes_after")
"""The counts in rows of the era compaction that a run sums up."""
_START = IDENTITY[1:]
"""The columns of the place where a segment begins; null in a chain's first segment."""


def segment_columns(schema: pa.Schema) -> list[str]:
    """The columns of `schema`, the worker's output, that are read of segments: all but `part` and the metrics."""
    metrics = {column.name for column in METRICS}
    return [name for name in schema.names if name not in metrics | {"part"}]


@dataclass(frozen=True)
class ChainTask:
    """The work of one task, see `exchange`.

    Args:
        known_us: updates that were visible before count as visible from then on.
        row_schema: the columns of `chain_inputs`.
        states, segments: the tables to which corrections are written.
        written_from_us: the `known_from` of the rows that are written; None: that of the worker.
    """

    worker: ChainWorker
    source: Source
    known_us: int
    row_schema: pa.Schema
    states: Destination
    segments: Destination
    token: int
    written_from_us: int | None = None

    def __call__(self, _: int, blocks: Labelled) -> bytes:
        """The written files of states and segments, the counts of the work done and the memory used, as JSON."""
        written: dict[str, list[dict[str, Any]]] = {STATE_PART: [], SEGMENT_PART: []}
        counts = Counter[str]()
        with RunFiles() as store:
            memory = self.source.memory
            budget = MemoryBudget(memory.max_bytes, high_water=memory.high_water, emergency=memory.emergency)
            sorter = RowSorter(key=[BUCKET], time=PLACE, budget=budget, store=store)
            for label, table in blocks:
                sorter.add(self._add_places(self._as_worker_input(label, table)))
            rows = min(max(PART_BYTES // 8 // sorter.row_bytes(), 1), 1 << 16)
            batches = (batch for chunk in sorter.chunks(rows) for batch in chunk.to_batches())
            for result in _gather(self.worker(batches)):
                self._write(result, written, counts)
        return json.dumps({**written, "counts": counts, "memory": metrics_of(budget.use)}).encode()

    def _as_worker_input(self, label: str, table: pa.Table) -> pa.Table:
        """Stored rows as the worker takes them: the columns of all parts, times as whole numbers."""
        if label == ROW:
            table = chain_inputs(table, self.source, self.known_us)
        kinds = {name: self.worker.schema.field(name).type for name in segment_columns(self.worker.schema)}
        kinds |= {field.name: field.type for field in self.row_schema}
        columns = {name: _column(table, name, kind, part=label) for name, kind in kinds.items()}
        return pa.table({"part": pa.repeat(pa.scalar(label), table.num_rows), **columns})

    def _add_places(self, table: pa.Table) -> pa.Table:
        """The table with two more columns: the bucket of each row's entity, and the event time from which on the row
        changes its chain."""
        buckets = (hashes([table["entity"]]) % np.uint64(BUCKETS)).astype(np.int64)
        place = pc.coalesce(table["event_time"], table["start_time"], pa.scalar(NO_DELTA, pa.int64()))
        return table.append_column(BUCKET, pa.array(buckets)).append_column(PLACE, place)

    def _set_written_time(self, table: pa.Table) -> pa.Table:
        if self.written_from_us is None:
            return table
        place, times = table.schema.get_field_index("known_from"), table["known_from"]
        is_own = pc.equal(times, self.worker.known_from_us)
        return table.set_column(place, "known_from", pc.if_else(is_own, pa.scalar(self.written_from_us), times))

    def _write(self, table: pa.Table, written: dict[str, list[dict[str, Any]]], counts: Counter[str]) -> None:
        table = stamp(self._set_written_time(table), self.source, self.token)
        states, segments = (table.filter(pc.equal(table["part"], part)) for part in (STATE_PART, SEGMENT_PART))
        written[STATE_PART] += as_plain(self.states.write([states.sort_by("entity")]))
        # update, since += drops counts that are not positive
        counts.update(_count_corrections(segments))
        if segments.num_rows:
            order = [(name, "ascending") for name in IDENTITY]
            rows = max(ROW_GROUP_BYTES * segments.num_rows // max(segments.nbytes, 1), 1)
            to = replace(self.segments, layout=replace(Layout(), rows_a_group=rows))
            written[SEGMENT_PART] += as_plain(to.write([segments.sort_by(order)]))


def _column(table: pa.Table, name: str, kind: pa.DataType, *, part: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    column = table[name].cast(kind)
    # a chain's first segment has no start: null is replaced by a number, by which places can be compared
    return pc.fill_null(column, NO_DELTA) if part == SEGMENT_PART and name in _START else column


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the corrections in tables of about `PART_BYTES`, which are sorted and written together."""
    waiting: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in batches:
        waiting.append(batch)
        n_bytes += batch.nbytes
        if n_bytes >= PART_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _count_corrections(segments: pa.Table) -> Counter[str]:
    """The counts of the corrections: `segments` and `checkpoints` written, segments `closed`, deltas `merged` into
    newest checkpoints, deltas `dropped` behind both frontiers, `bytes_before` and `bytes_after`."""
    compactions = segments.filter(pc.equal(segments["era"], COMPACTION))
    counts = {name: int(numbers(compactions[name]).sum()) for name in COMPACTED}
    eras = {"segments": LIVE, "closed": CLOSING}
    return Counter({name: int(are(segments["era"], era).sum()) for name, era in eras.items()} | counts)
