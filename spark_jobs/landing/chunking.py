"""Landed rows as dense chunks: Spark brings each entity's rows of a drop together in row-id order, and the kernel cuts
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import BatcherConfig, ChunkLayout, chunk_batches, chunk_rows, chunks_at
from spark_jobs.engine.columns import Flags, Ints, numbers
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.descriptions.tables import chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOGETHER = ("seq_no", "diff")
"""The columns in which the rows of a chunk agree, besides their entity: a chunk's age ends with its drop, and its rows
came or went together."""


def as_chunks(rows: DataFrame, source: Source, landing: int) -> DataFrame:
    """The rows (columns of `tables.row_columns`, and `diff`) as rows of the source's chunk table. It takes one shuffle,
    and the memory of a batch and a flush."""
    ordered = rows.repartition("seq_no", "entity").sortWithinPartitions(*TOGETHER, "entity", "row_id")
    return ordered.mapInArrow(_Chunker(source, landing), chunks(source).schema())


def chunks_here(rows: pa.Table, source: Source, landing: int) -> pa.Table:
    """The rows as chunks of the source's chunk table, as `as_chunks` makes them, in the order of a file of chunks."""
    order = [*((name, "ascending") for name in TOGETHER), ("entity", "ascending"), ("row_id", "ascending")]
    ordered = rows.sort_by(order).combine_chunks()
    made = pa.Table.from_batches([*_Chunker(source, landing)(iter(ordered.to_batches()))])
    first = pc.list_element(made["row_ids"], 0)
    keys = [(name, "ascending") for name in ("entity", "seq_no", "first")]
    return made.append_column("first", first).sort_by(keys).drop_columns(["first"])


@dataclass(frozen=True)
class _Chunker:
    """The function that runs in the Python workers: rows, grouped by `TOGETHER`, to chunks."""

    source: Source
    landing: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = (part for batch in batches for part in _cut(batch))
        for (seq_no, diff), drop_parts in groupby(parts, key=_first):
            for made in chunk_batches(drop_parts, layout=row_layout(self.source), config=chunk_limits(self.source)):
                named = named_chunks(self.source, made, seq_no=seq_no, diff=diff, landing=self.landing)
                yield from named.to_batches()


def chunk_limits(source: Source) -> BatcherConfig:
    """The limits at which the source's file has rows cut into chunks: no row is left out, and large sorted chunks stay
    sorted."""
    return BatcherConfig(
        flush_num_rows=source.chunks.rows,
        flush_num_bytes=source.chunks.max_bytes,
        max_rows_if_unsorted=source.chunks.unsorted,
        split_before_unsorting=True,
        keep_sparse_rows=True,
    )


def row_layout(source: Source) -> ChunkLayout:
    """The columns of a row in the form that the chunk kernel takes."""
    return ChunkLayout(
        entity="entity",
        row_id="row_id",
        timelines=["event_time", *(f"t_{t}" for t in source.timelines)],
        components=["delta_id", *(f"c_{c}" for c in source.columns), "extra"],
    )


def named_chunks(source: Source, made: pa.Table, *, seq_no: int, diff: int, landing: int) -> pa.Table:
    """The chunks of one drop and diff, which the kernel made by `row_layout`, with the columns of the chunk table."""
    same = {"seq_no": seq_no, "diff": diff, "landing": landing}
    columns = {name: pa.repeat(pa.scalar(value, pa.int64()), made.num_rows) for name, value in same.items()}
    columns["landings"] = pa.nulls(made.num_rows, pa.list_(pa.int64()))
    columns["chunk_id"] = _names(made, f"{landing}-back" if diff < 0 else str(landing))
    return _table_columns(source, made, columns)


def merged_chunks(source: Source, made: pa.Table, *, diff: int, landing: int, writer: str) -> pa.Table:
    """The chunks of rows of several drops and landings up to `landing`, with the columns of the chunk table. The kernel
    made them by `row_layout` and the component `landing`. `writer` makes their ids differ from those of other chunks of
    these rows.
    """
    landings = made.column("data_landing").combine_chunks()
    ends = np.cumsum(pc.list_value_length(landings).to_numpy())
    least = np.minimum.reduceat(landings.flatten().to_numpy(), np.append(0, ends[:-1]))
    columns = {
        "seq_no": pa.array(_last(made) >> PLACE_BITS),
        "diff": pa.repeat(pa.scalar(diff, pa.int64()), made.num_rows),
        "landing": pa.repeat(pa.scalar(landing, pa.int64()), made.num_rows),
        "landings": pc.if_else(pa.array(least == landing), pa.scalar(None, landings.type), landings),
        "chunk_id": _names(made, f"{writer}-back" if diff < 0 else writer),
    }
    return _table_columns(source, made, columns)


ARRAYS = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids", "landing": "landings"}
"""Columns of a row -> the names of their lists in a chunk, where these differ."""


def chunks_without(source: Source, stored: pa.Table, going: Flags) -> pa.Table:
    """Chunks with the columns of the chunk table, without some of their rows: each is as it was, but for what follows
    from the rows that it has left. A chunk that has none left is left out.

    Args:
        going: a flag for each row of each chunk, one chunk after the other; True if the row is removed.
    """
    layout, declared = row_layout(source), {*chunks(source).column_names}
    undeclared = [field for field in stored.schema if field.name not in declared]
    lists = [field.name for field in undeclared if pa.types.is_list(field.type)]
    layout = replace(layout, components=[*layout.components, "landing", *lists])
    of_chunk = np.repeat(np.arange(stored.num_rows), numbers(stored["rows"]))
    losing = np.isin(np.arange(stored.num_rows), of_chunk[going])
    names = {layout.row_id, *layout.timelines, *layout.components}
    arrays = {name: ARRAYS.get(name, name) for name in names}
    losers, unchanged = stored.filter(pa.array(losing)), stored.filter(pa.array(~losing))
    stays = ~going[losing[of_chunk]]
    rows = chunk_rows(losers, rows="rows", arrays=arrays, same=("entity",)).filter(pa.array(stays))
    left = of_chunk[losing[of_chunk]][stays]
    starts = np.flatnonzero(np.diff(left, prepend=-1))
    made = chunks_at(rows, starts, layout)
    as_before = ["chunk_id", "diff", "landing", *(field.name for field in undeclared if field.name not in lists)]
    same = stored.select(as_before).take(pa.array(left[starts]))
    columns = {name: same[name] for name in as_before} | {name: made[f"data_{name}"] for name in lists}
    columns |= {"seq_no": pa.array(_last(made) >> PLACE_BITS), "landings": made["data_landing"]}
    of_table = _table_columns(source, made, columns)
    cut = {name: of_table[name] if name in declared else columns[name] for name in unchanged.column_names}
    places = np.concatenate((np.flatnonzero(~losing), left[starts]))
    whole = pa.concat_tables([unchanged, pa.table(cut).cast(unchanged.schema)])
    return whole.take(pa.array(np.argsort(places, kind="stable")))


def _last(made: pa.Table) -> Ints:
    """The last row id of each chunk."""
    ids = made["row_ids"].combine_chunks()
    return ids.flatten().to_numpy()[np.cumsum(pc.list_value_length(ids).to_numpy()) - 1]


def _names(made: pa.Table, writer: str) -> pa.Array:
    """The identities of chunks; `writer` makes them differ from those of other chunks of these rows."""
    first = pc.cast(pc.list_element(made.column("row_ids"), 0), pa.string())
    return pc.binary_join_element_wise(first, writer, "-")


def _table_columns(source: Source, made: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    """The columns of the chunk table: those in `columns`, and those that the kernel made."""
    columns = {
        **columns,
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
    """The parts of the batch whose rows are equal in `TOGETHER`."""
    changes = [np.flatnonzero(np.diff(batch.column(name).to_numpy())) + 1 for name in TOGETHER]
    cuts = [0, *np.unique(np.concatenate(changes)).tolist(), batch.num_rows]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield batch.slice(start, stop - start)


def _first(part: pa.RecordBatch) -> tuple[int, ...]:
    return tuple(part.column(name)[0].as_py() for name in TOGETHER)
