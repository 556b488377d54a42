"""Chunks from chunk rows: what `columns` wrote as one Arrow row per chunk becomes a `Chunk` to query.

Columns are sliced without a copy where Arrow allows it (numbers without nulls); times become int64 in the timeline's
own unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.chunks.model import Chunk, ComponentColumn


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


def component_column(values: pa.Array) -> ComponentColumn:
    """An Arrow array as a component's column, with the Arrow type's name as datatype."""
    valid = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        filled = values if valid is None else pc.fill_null(values, 0)
        return ComponentColumn.of(str(values.type), filled.to_numpy(zero_copy_only=False), valid)
    held = np.empty(len(values), dtype=object)
    for index, value in enumerate(values.to_pylist()):
        held[index] = value
    return ComponentColumn.of(str(values.type), held, valid)


def _flat_lists(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """All lists' values one after another, and the bounds of each list in them; a null list is empty."""
    lists = column.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.append(0, np.cumsum(lengths))
