"""Stored chunks as rows of a table, and back: the form in which a persistent store keeps chunks.

One Arrow row per chunk. Columns, for the timelines T and components C that the table declares:

    entity, chunk_id       text
    first_row_id           int64, the least row id, which identifies the chunk, as row ids are unique in a store
    rows                   int32
    size_bytes             int64, the sum of `row_bytes`
    sources                list<text>: ids under which the rows were inserted
    from_split             bool: a piece of a chunk that was split on insert
    row_ids, row_bytes     list<int64>, in row-id order
    t_T                    list<int64>; null if the chunk is not on T
    min_T, max_T, sorted_T the tight bounds of the times, and true if they never decrease; null likewise
    c_C                    list of the component's type; null if no row has a value

A chunk that is on no timeline is static.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.model import Chunk, ComponentColumn
from spark_jobs.engine.chunks.tables import component_column
from spark_jobs.errors import ParameterError

_ID = pa.int64()


@dataclass(frozen=True)
class StoredLayout:
    """The layout of a table of stored chunks: its timelines, and the Arrow type of each component."""

    timelines: tuple[str, ...]
    components: Mapping[str, pa.DataType]

    def schema(self) -> pa.Schema:
        """The table's columns, in order."""
        fields = [
            pa.field("entity", pa.string()),
            pa.field("chunk_id", pa.string()),
            pa.field("first_row_id", _ID),
            pa.field("rows", pa.int32()),
            pa.field("size_bytes", pa.int64()),
            pa.field("sources", pa.list_(pa.string())),
            pa.field("from_split", pa.bool_()),
            pa.field("row_ids", pa.list_(_ID)),
            pa.field("row_bytes", pa.list_(pa.int64())),
        ]
        for name in self.timelines:
            fields += [pa.field(f"t_{name}", pa.list_(pa.int64()))]
            fields += [pa.field(f"{bound}_{name}", pa.int64()) for bound in ("min", "max")]
            fields += [pa.field(f"sorted_{name}", pa.bool_())]
        return pa.schema([*fields, *(pa.field(f"c_{name}", pa.list_(kind)) for name, kind in self.components.items())])


def stored_table(stored: Iterable[StoredChunk], layout: StoredLayout) -> pa.Table:
    """Stored chunks as a table of `layout.schema()`, in the order given.

    Raises:
        ParameterError: a chunk has a timeline or component that the layout lacks, a value that its component's type
            can't represent exactly, or a row id of more than 64 signed bits.
    """
    rows = [_row(chunk, layout) for chunk in stored]
    schema = layout.schema()
    columns = [_column([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def stored_chunks(table: pa.Table, layout: StoredLayout) -> list[StoredChunk]:
    """The chunks of a table of `layout.schema()`, by least row id.

    The table may lack `row_bytes`, timelines and components. If it lacks `sources`, a chunk descends from its own id
    only."""
    present = set(table.column_names)
    timelines = [name for name in layout.timelines if f"t_{name}" in present]
    components = [name for name in layout.components if f"c_{name}" in present]
    order = np.argsort(table["first_row_id"].to_numpy(), kind="stable")
    table = table.take(pa.array(order))
    return [_stored_chunk(table, index, timelines, components) for index in range(table.num_rows)]


def standing_chunks(table: pa.Table, layout: StoredLayout) -> list[StoredChunk]:
    """The chunks of a table of changes, without the rows that a later landing took away.

    `diff` is 1 for a chunk whose rows came and -1 for one whose rows went. `landing` is the landing of the chunk;
    `landings`, if given, is the landing of each row."""
    went = pc.less(table["diff"], 0)
    gone, came = table.filter(went), table.filter(pc.invert(went))
    came = came.take(pa.array(np.argsort(came["first_row_id"].to_numpy(), kind="stable")))
    gone_ids = gone["row_ids"].combine_chunks().flatten().to_numpy()
    gone_by = np.concatenate([np.zeros(0, np.int64), *_landings(gone)])
    order = np.lexsort((gone_by, gone_ids))
    gone_ids, gone_by = gone_ids[order], gone_by[order]
    current = []
    for stored, landings in zip(stored_chunks(came, layout), _landings(came), strict=True):
        # the last landing by which each row went, if there is one
        last = np.searchsorted(gone_ids, stored.chunk.row_ids, side="right") - 1
        went_at = last.clip(0)
        stays = np.ones(landings.size, np.bool_)
        if gone_ids.size:
            stays = (last < 0) | (gone_ids[went_at] != stored.chunk.row_ids) | (gone_by[went_at] <= landings)
        if stays.any():
            current.append(stored if stays.all() else replace(stored, chunk=stored.chunk.take(stays, stored.chunk.id)))
    return current


def _landings(table: pa.Table) -> list[npt.NDArray[np.int64]]:
    """Per chunk, the landing of every row."""
    lists = table["landings"] if "landings" in table.column_names else pa.nulls(table.num_rows, pa.list_(_ID))
    lengths = pc.list_value_length(table["row_ids"]).to_pylist()
    return [
        row_lists.values.to_numpy() if row_lists.is_valid else np.full(length, landing, np.int64)
        for row_lists, length, landing in zip(lists, lengths, table["landing"].to_pylist(), strict=True)
    ]


def _column(cells: list[Any], kind: pa.DataType) -> pa.Array:
    """A column with one cell per chunk; a list is given as a numpy array, an Arrow array or a Python list."""
    if not pa.types.is_list(kind):
        return pa.array(cells, kind)
    lists = [pa.array([] if cell is None else cell, kind.value_type) for cell in cells]
    offsets = np.append(0, np.cumsum([len(values) for values in lists])).astype(np.int32)
    flat = pa.concat_arrays(lists) if lists else pa.array([], kind.value_type)
    absent = pa.array([cell is None for cell in cells], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=kind, mask=absent)


def _row(stored: StoredChunk, layout: StoredLayout) -> dict[str, Any]:
    chunk = stored.chunk
    _check_declared(chunk, layout)
    row: dict[str, Any] = {
        "entity": chunk.entity,
        "chunk_id": chunk.id,
        "first_row_id": chunk.first_row_id,
        "rows": chunk.num_rows,
        "size_bytes": chunk.size_bytes,
        "sources": sorted(stored.sources),
        "from_split": stored.from_split,
        "row_ids": chunk.row_ids,
        "row_bytes": chunk.row_bytes,
    }
    for name in layout.timelines:
        column = chunk.timelines.get(name)
        row[f"t_{name}"] = None if column is None else column.times
        row[f"min_{name}"] = None if column is None else column.min
        row[f"max_{name}"] = None if column is None else column.max
        row[f"sorted_{name}"] = None if column is None else column.is_sorted
    for name, kind in layout.components.items():
        values = chunk.components.get(name)
        row[f"c_{name}"] = None if values is None else _cast(name, values, kind)
    return row


def _check_declared(chunk: Chunk, layout: StoredLayout) -> None:
    for what, found, declared in (
        ("timelines", chunk.timelines, layout.timelines),
        ("components", chunk.components, layout.components),
    ):
        unknown = sorted(set(found) - set(declared))
        if unknown:
            raise ParameterError(
                expected=f"{what} {', '.join(declared)} in chunk {chunk.id!r}",
                found=", ".join(unknown),
                next_step=f"declare the {what} when the store is made",
            )
    if chunk.row_ids.dtype != np.int64:
        raise ParameterError(
            expected=f"row ids of 64 signed bits in chunk {chunk.id!r}",
            found=str(int(chunk.row_ids[-1])),
            next_step="keep such rows in memory, or number them anew",
        )


def _cast(name: str, column: ComponentColumn, kind: pa.DataType) -> pa.Array:
    """The values of the column in the declared type; raises ParameterError for one that it can't represent exactly."""
    try:
        return pa.array(column.values, mask=None if column.all_valid else ~column.valid).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as refused:
        raise ParameterError(
            expected=f"values of {name!r} that {kind} holds exactly",
            found=str(refused),
            next_step="declare the component with the type of its values",
        ) from None


def _stored_chunk(table: pa.Table, index: int, timelines: list[str], components: list[str]) -> StoredChunk:
    def flat(name: str) -> pa.Array:
        return table[name][index].values

    chunk_id = table["chunk_id"][index].as_py()
    sizes = flat("row_bytes").to_numpy() if "row_bytes" in table.column_names else None
    chunk = Chunk.from_columns(
        chunk_id,
        table["entity"][index].as_py(),
        row_ids=flat("row_ids").to_numpy(),
        times={n: flat(f"t_{n}").cast(pa.int64()).to_numpy() for n in timelines if table[f"t_{n}"][index].is_valid},
        components={
            name: component_column(flat(f"c_{name}")) for name in components if table[f"c_{name}"][index].is_valid
        },
        row_bytes=sizes,
    )
    sources = table["sources"][index].as_py() if "sources" in table.column_names else [chunk_id]
    from_split = table["from_split"][index].as_py() if "from_split" in table.column_names else False
    return StoredChunk(chunk, set(sources), bool(from_split))
