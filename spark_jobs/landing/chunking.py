"""Landed rows as dense chunks: Spark brings each entity's rows of a drop together in row-id order, the kernel cuts
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.chunks.columns import ChunkLayout, chunk_batches
from spark_jobs.kernels.chunks.config import BatcherConfig
from spark_jobs.sources import Source
from spark_jobs.storage.tables import chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOGETHER = ("seq_no", "diff")
"""What the rows of a chunk have in common besides their entity: a chunk's age ends with its drop, and its rows came or
went together."""


def as_chunks(rows: DataFrame, source: Source, landing: int, config: BatcherConfig) -> DataFrame:
    """Rows (columns of `tables.row_columns`, and `diff`) to rows of the source's chunk table. One shuffle; memory is a
    batch and a flush."""
    ordered = rows.repartition("seq_no", "entity").sortWithinPartitions(*TOGETHER, "entity", "row_id")
    return ordered.mapInArrow(_Chunker(source, landing, config), chunks(source).schema())


@dataclass(frozen=True)
class _Chunker:
    """What runs in the Python workers."""

    source: Source
    landing: int
    config: BatcherConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = (part for batch in batches for part in _cut(batch))
        for (seq_no, diff), own in groupby(parts, key=_first):
            for made in chunk_batches(own, layout=row_layout(self.source), config=self.config):
                named = named_chunks(self.source, made, seq_no=seq_no, diff=diff, landing=self.landing)
                yield from named.to_batches()


def row_layout(source: Source) -> ChunkLayout:
    """The columns of a row as the chunk kernel takes them."""
    return ChunkLayout(
        entity="entity",
        row_id="row_id",
        timelines=["event_time", *(f"t_{t}" for t in source.timelines)],
        components=["delta_id", *(f"c_{c}" for c in source.columns), "extra"],
    )


def named_chunks(source: Source, made: pa.Table, *, seq_no: int, diff: int, landing: int) -> pa.Table:
    """Chunks of one drop and diff, as the kernel makes them of `row_layout`, with the columns of the chunk table."""
    first = pc.cast(pc.list_element(made.column("row_ids"), 0), pa.string())
    writer = f"{landing}-back" if diff < 0 else str(landing)
    same = {"seq_no": seq_no, "diff": diff, "landing": landing}
    columns = {
        **{name: pa.repeat(pa.scalar(value, pa.int64()), made.num_rows) for name, value in same.items()},
        "chunk_id": pc.binary_join_element_wise(first, writer, "-"),
        "entity": made.column("entity"),
        "rows": made.column("num_rows"),
        "row_ids": made.column("row_ids"),
        "event_times": made.column("time_event_time"),
        "event_min": made.column("min_event_time"),
        "event_max": made.column("max_event_time"),
        "delta_ids": made.column("data_delta_id"),
        "extra": made.column("data_extra"),
    }
    for timeline in source.timelines:
        columns[f"t_{timeline}"] = made.column(f"time_t_{timeline}")
        columns |= {f"{bound}_{timeline}": made.column(f"{bound}_t_{timeline}") for bound in ("min", "max", "sorted")}
    columns |= {f"c_{c}": made.column(f"data_c_{c}") for c in source.columns}
    names = chunks(source).column_names
    return pa.table([columns[name] for name in names], names=names)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose rows are equal in `TOGETHER`."""
    changes = [np.flatnonzero(np.diff(batch.column(name).to_numpy())) + 1 for name in TOGETHER]
    cuts = [0, *np.unique(np.concatenate(changes)).tolist(), batch.num_rows]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield batch.slice(start, stop - start)


def _first(part: pa.RecordBatch) -> tuple[int, ...]:
    return tuple(part.column(name)[0].as_py() for name in TOGETHER)
