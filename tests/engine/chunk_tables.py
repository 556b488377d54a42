"""What `chunk_columns` gives, as chunks to ask, and the limits that a landing cuts by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import BatcherConfig, Chunk
from spark_jobs.engine.chunks.tables import component_column

LANDING = BatcherConfig(
    flush_num_rows=65_536,
    flush_num_bytes=2 << 20,
    max_rows_if_unsorted=8_192,
    split_before_unsorting=True,
    keep_sparse_rows=True,
)


def chunks_from_table(table: pa.Table, *, timelines: Sequence[str], components: Sequence[str]) -> list[Chunk]:
    """The chunks of a table in the form that `chunk_columns` gives.

    A chunk's id is `entity#first-last/rows`, the name that a batcher gives to the same rows.
    """
    table = table.combine_chunks()
    entities = table["entity"].to_pylist()
    row_ids, offsets = _flat_lists(table["row_ids"])
    ids = row_ids.to_numpy()
    times = {name: _flat_lists(table[f"time_{name}"]) for name in timelines}
    values = {name: _flat_lists(table[f"data_{name}"]) for name in components}
    chunks = []
    for index, entity in enumerate(entities):
        rows = ids[offsets[index] : offsets[index + 1]]
        chunks.append(
            Chunk.from_columns(
                f"{entity}#{rows[0]}-{rows[-1]}/{len(rows)}",
                entity,
                row_ids=rows,
                times={
                    name: flat[bounds[index] : bounds[index + 1]].cast(pa.int64()).to_numpy()
                    for name, (flat, bounds) in times.items()
                    if bounds[index] < bounds[index + 1]
                },
                components={
                    name: component_column(flat[bounds[index] : bounds[index + 1]])
                    for name, (flat, bounds) in values.items()
                    if bounds[index] < bounds[index + 1]
                },
            )
        )
    return chunks


def _flat_lists(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """All lists' values one after another, and the bounds of each list in them; a null list is empty."""
    lists = column.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.append(0, np.cumsum(lengths))
