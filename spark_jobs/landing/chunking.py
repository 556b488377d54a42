"""Landed rows as dense chunks: Spark brings each entity's rows of a drop together in row-id order, the kernel cuts
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.chunks.columns import ChunkLayout, chunk_batches
from spark_jobs.kernels.chunks.config import BatcherConfig
from spark_jobs.sources import Source
from spark_jobs.storage.tables import chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "_group"
"""Drop and entity in one column: a chunk is of one entity and, as a chunk's age ends with its drop, of one drop."""
_SEPARATOR = "\x1f"


def as_chunks(rows: DataFrame, source: Source, landing: int, config: BatcherConfig) -> DataFrame:
    """Rows (columns of `tables.row_columns`) to rows of the source's chunk table. One shuffle; memory is a batch and
    a flush."""
    grouped = rows.withColumn(GROUP, F.concat_ws(_SEPARATOR, F.col("seq_no").cast("string"), "entity"))
    ordered = grouped.repartition("seq_no", "entity").sortWithinPartitions("seq_no", "entity", "row_id")
    return ordered.mapInArrow(_Chunker(source, landing, config), chunks(source).schema())


@dataclass(frozen=True)
class _Chunker:
    """What runs in the Python workers."""

    source: Source
    landing: int
    config: BatcherConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timelines = [f"t_{t}" for t in self.source.timelines]
        values = [f"c_{c}" for c in self.source.columns]
        layout = ChunkLayout(
            entity=GROUP,
            row_id="row_id",
            timelines=["event_time", *timelines],
            components=["delta_id", *values, "extra"],
        )
        for made in chunk_batches(batches, layout=layout, config=self.config):
            yield from self._named(made).to_batches()

    def _named(self, made: pa.Table) -> pa.Table:
        group = pc.split_pattern(made.column("entity"), _SEPARATOR, max_splits=1)
        first = pc.list_element(made.column("row_ids"), 0)
        columns = {
            "chunk_id": pc.binary_join_element_wise(pc.cast(first, pa.string()), str(self.landing), "-"),
            "entity": pc.list_element(group, 1),
            "seq_no": pc.cast(pc.list_element(group, 0), pa.int64()),
            "rows": made.column("num_rows"),
            "row_ids": made.column("row_ids"),
            "event_times": made.column("time_event_time"),
            "event_min": made.column("min_event_time"),
            "event_max": made.column("max_event_time"),
            "delta_ids": made.column("data_delta_id"),
            "extra": made.column("data_extra"),
            "landing": pa.array([self.landing] * made.num_rows, pa.int64()),
        }
        for timeline in self.source.timelines:
            columns[f"t_{timeline}"] = made.column(f"time_t_{timeline}")
            columns |= {
                f"{bound}_{timeline}": made.column(f"{bound}_t_{timeline}") for bound in ("min", "max", "sorted")
            }
        columns |= {f"c_{c}": made.column(f"data_c_{c}") for c in self.source.columns}
        return pa.table(
            [columns[name] for name in chunks(self.source).column_names], names=chunks(self.source).column_names
        )
