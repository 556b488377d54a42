"""The batcher for whole Arrow tables: rows of many entities in, one row per chunk out, no Python loop over rows.

Input: sorted by entity, then ascending row id. Output, one row per chunk, lists in row-id order:

    entity                     as in the input
    num_rows                   int32
    row_ids                    list<int64>
    time_T                     list of the timeline's type, per timeline T; null if the chunk's rows are not on T
    min_T, max_T, sorted_T     its tight bounds, and true if it never decreases in row-id order; null likewise
    data_C                     list of the component's type, per component C; null if no row has a value

The cuts are those of `ChunkBatcher` with `keep_sparse_rows`: a column has one datatype, rows that lack a component stay
with the others, and no row is left out. Cost: O(rows * columns), and one sort if rows differ in their timelines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks.checks import INT64_MAX
from spark_jobs.engine.chunks.config import BatcherConfig
from spark_jobs.engine.chunks.cuts import NO_LIMIT, flush_segments, piece_starts
from spark_jobs.engine.chunks.errors import UnsortedRows
from spark_jobs.errors import ParameterError

_MAX_TIMELINES = 62
"""The greatest number of timelines: the set of a row's timelines is an int64 with one bit per timeline."""

_BYTE_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """The names of the columns of the input.

    Args:
        entity: column of the entity, never null.
        row_id: int64 column, never null, ascending within an entity.
        timelines: integer or timestamp columns; null = the row is not on this timeline.
        components: columns of any type; null = no value.
    """

    entity: str
    row_id: str
    timelines: Sequence[str]
    components: Sequence[str]


def chunk_columns(
    table: pa.Table,
    *,
    entity: str,
    row_id: str,
    timelines: Sequence[str],
    components: Sequence[str],
    config: BatcherConfig,
) -> pa.Table:
    """The chunks of a sorted table; see the module for input and output, and `ChunkLayout` for the names.

    Raises:
        UnsortedRows: row ids don't ascend within an entity.
        ParameterError: an entity or row id is null, a timeline is neither integer nor timestamp, row ids are no
            integers, one of them needs more than 64 signed bits, or there are too many timelines.
    """
    layout = ChunkLayout(entity=entity, row_id=row_id, timelines=timelines, components=components)
    _check_layout(table, layout)
    table = table.select([entity, row_id, *timelines, *components]).combine_chunks()
    runs = _entity_runs(table, layout)
    segments = _segments(table, layout, runs, config)
    table, groups = _group(table, timelines, segments)
    times = _time_matrix(table, timelines)
    starts = piece_starts(groups, times, config.max_rows_if_unsorted, config.split_before_unsorting)
    return _chunk_rows(table, layout, times, np.flatnonzero(starts))


def chunks_at(table: pa.Table, starts: np.ndarray, layout: ChunkLayout) -> pa.Table:
    """The chunks that begin at the rows `starts` of a table, which are cut already; see the module for the output."""
    table = table.combine_chunks()
    return _chunk_rows(table, layout, _time_matrix(table, layout.timelines), starts)


def chunk_batches(
    batches: Iterable[pa.RecordBatch | pa.Table], *, layout: ChunkLayout, config: BatcherConfig
) -> Iterator[pa.Table]:
    """The chunks that `chunk_columns` makes of all batches together; the sorted rows may come in any batches.

    Only the rows of the last, unfinished flush of the last entity wait for the next batch. So memory depends on the
    batch size and the flush limits, not on the number of rows.
    """
    waiting: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        rows = rows if waiting is None else pa.concat_tables([waiting, rows])
        if rows.num_rows == 0:
            continue
        _check_layout(rows, layout)
        segments = _segments(rows, layout, _entity_runs(rows, layout), config)
        last_flush = int(np.searchsorted(segments, segments[-1]))
        waiting = rows.slice(last_flush)
        if last_flush:
            yield _chunk_table(rows.slice(0, last_flush), layout, config)
    if waiting is not None:
        yield _chunk_table(waiting, layout, config)


def _chunk_table(table: pa.Table, layout: ChunkLayout, config: BatcherConfig) -> pa.Table:
    return chunk_columns(
        table,
        entity=layout.entity,
        row_id=layout.row_id,
        timelines=layout.timelines,
        components=layout.components,
        config=config,
    )


def _check_layout(table: pa.Table, layout: ChunkLayout) -> None:
    for name in (layout.entity, layout.row_id):
        if table[name].null_count:
            raise ParameterError(
                expected=f"a value of {name!r} in every row",
                found=f"{table[name].null_count} null",
                next_step="quarantine rows without it",
            )
    for name in layout.timelines:
        datatype = table.schema.field(name).type
        if not (pa.types.is_integer(datatype) or pa.types.is_timestamp(datatype)):
            raise ParameterError(
                expected=f"an integer or timestamp column {name!r}",
                found=str(datatype),
                next_step="coerce the timeline before chunking",
            )
    if not pa.types.is_integer(table.schema.field(layout.row_id).type):
        raise ParameterError(
            expected=f"an integer column {layout.row_id!r}",
            found=str(table.schema.field(layout.row_id).type),
            next_step="number the rows",
        )
    for name in (layout.row_id, *layout.timelines):
        if pa.types.is_uint64(table.schema.field(name).type) and (pc.max(table[name]).as_py() or 0) > INT64_MAX:
            raise ParameterError(
                expected=f"64 signed bits in column {name!r}",
                found=str(pc.max(table[name])),
                next_step="quarantine rows beyond it",
            )
    if len(layout.timelines) > _MAX_TIMELINES:
        raise ParameterError(
            expected=f"at most {_MAX_TIMELINES} timelines", found=str(len(layout.timelines)), next_step="declare fewer"
        )


def _entity_runs(table: pa.Table, layout: ChunkLayout) -> np.ndarray:
    """A number per row that changes with the entity. Raises UnsortedRows if row ids don't ascend within an entity."""
    codes = table[layout.entity].combine_chunks().dictionary_encode().indices.to_numpy()
    row_ids = table[layout.row_id].to_numpy()
    if ((codes[1:] == codes[:-1]) & (row_ids[1:] <= row_ids[:-1])).any():
        raise UnsortedRows(
            expected=f"rows by {layout.entity!r}, then ascending {layout.row_id!r}",
            found="a row id that is not greater than the one before it",
            next_step="sort the table by entity and row id",
        )
    return codes


def _segments(table: pa.Table, layout: ChunkLayout, runs: np.ndarray, config: BatcherConfig) -> np.ndarray:
    max_rows = NO_LIMIT if config.flush_num_rows is None else config.flush_num_rows
    if config.flush_num_bytes is None:
        return flush_segments(runs, np.zeros(len(runs), np.int64), max_rows, NO_LIMIT)
    return flush_segments(runs, row_sizes(table, layout), max_rows, config.flush_num_bytes)


def row_sizes(table: pa.Table, layout: ChunkLayout) -> np.ndarray:
    """Bytes per row: 8 for the row id, 8 per time, the width or length of each component's value, 0 for null."""
    sizes = np.full(table.num_rows, 8, dtype=np.int64)
    for name in (*layout.timelines, *layout.components):
        column = table[name]
        sizes += np.where(column.is_valid().to_numpy(), _value_sizes(column), 0)
    return sizes


def _value_sizes(column: pa.ChunkedArray) -> np.ndarray | int:
    if pa.types.is_boolean(column.type):
        return 1
    if pa.types.is_primitive(column.type):
        return max(column.type.bit_width // 8, 1)
    if any(is_bytes(column.type) for is_bytes in _BYTE_TYPES):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return column.nbytes // max(len(column), 1)


def _group(table: pa.Table, timelines: Sequence[str], segments: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """The table with the rows of the same segment and timelines side by side, and the number of its group per row."""
    if not any(table[name].null_count for name in timelines):
        return table, segments
    sets = np.zeros(table.num_rows, dtype=np.int64)
    for bit, name in enumerate(timelines):
        sets |= table[name].is_valid().to_numpy().astype(np.int64) << bit
    order = np.lexsort((sets, segments))
    segments, sets = segments[order], sets[order]
    changes = np.zeros(len(order), dtype=np.int64)
    changes[1:] = (segments[1:] != segments[:-1]) | (sets[1:] != sets[:-1])
    return table.take(pa.array(order)), np.cumsum(changes)


def _time_matrix(table: pa.Table, timelines: Sequence[str]) -> np.ndarray:
    times = np.zeros((len(timelines), table.num_rows), dtype=np.int64)
    for index, name in enumerate(timelines):
        times[index] = pc.fill_null(table[name].cast(pa.int64()), 0).to_numpy()
    return times


def _chunk_rows(table: pa.Table, layout: ChunkLayout, times: np.ndarray, starts: np.ndarray) -> pa.Table:
    """One row per chunk; `starts` are the indices of the chunks' first rows."""
    offsets = np.append(starts, table.num_rows).astype(np.int32)
    columns: dict[str, pa.Array] = {
        "entity": _flat(table[layout.entity]).take(pa.array(starts)),
        "num_rows": pa.array(np.diff(offsets)),
        "row_ids": _lists(_flat(table[layout.row_id]).cast(pa.int64()), offsets),
    }
    for index, name in enumerate(layout.timelines):
        column = _flat(table[name])
        columns |= _timeline_columns(name, column, times[index], offsets)
    for name in layout.components:
        columns[f"data_{name}"] = _lists(_flat(table[name]), offsets)
    return pa.table(columns)


def _timeline_columns(name: str, column: pa.Array, times: np.ndarray, offsets: np.ndarray) -> dict[str, pa.Array]:
    starts = offsets[:-1]
    lists = _lists(column, offsets)
    absent = ~lists.is_valid().to_numpy(zero_copy_only=False)
    decreases = np.zeros(len(times), dtype=bool)
    decreases[1:] = times[1:] < times[:-1]
    decreases[starts] = False
    return {
        f"time_{name}": lists,
        f"min_{name}": pa.array(_reduce(np.minimum, times, starts), mask=absent).cast(column.type),
        f"max_{name}": pa.array(_reduce(np.maximum, times, starts), mask=absent).cast(column.type),
        f"sorted_{name}": pa.array(~_reduce(np.logical_or, decreases, starts), mask=absent),
    }


def _reduce(reduce: np.ufunc, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return reduce.reduceat(values, starts) if len(starts) else values[:0]


def _lists(values: pa.Array, offsets: np.ndarray) -> pa.Array:
    """One list per chunk; null where every value is null."""
    if values.null_count == 0:
        return pa.ListArray.from_arrays(pa.array(offsets), values)
    valid = np.append(0, np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)))
    absent = valid[offsets[1:]] == valid[offsets[:-1]]
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
