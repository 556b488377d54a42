"""Faults of chunks: those of a chunk by itself, and row ids that several chunks have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns.lists import Lists, lengths
from spark_jobs.engine.columns.plain import Flags, numbers, present, repeated_values
from spark_jobs.engine.measures.sums import Adds

CHUNK = ("chunk_id", "entity", "seq_no", "landing")
"""The columns by which a reader recognises a chunk."""


def judge_chunks(chunks: pa.Table, *, timelines: Sequence[str], arrays: Sequence[str], place_bits: int) -> Adds:
    """The amount that each chunk adds to the measures of bronze.

    Args:
        chunks: rows of a table of chunks.
        timelines: names of the columns `t_`, `min_`, `max_`, `sorted_`.
        arrays: columns of lists; a list has one element per row of its chunk, or is null.
        place_bits: the number of bits of a row id below the number of its drop.
    """
    counted, has_count = numbers(chunks["rows"]), present(chunks["rows"])
    row_ids, times = Lists.of(chunks["row_ids"]), Lists.of(chunks["event_times"])
    least, greatest, any_id = row_ids.bounds()
    drop, has_drop = numbers(chunks["seq_no"]), present(chunks["seq_no"])
    foreign = any_id & has_drop & (((least >> place_bits) != drop) | ((greatest >> place_bits) != drop))
    uneven = ~row_ids.present | ~times.present
    for column in ("row_ids", "event_times", *arrays):
        uneven |= has_count & present(chunks[column]) & (lengths(chunks[column]) != counted)
    loose = _loose(chunks, "event_min", "event_max", times)
    unsorted = np.zeros(len(counted), np.bool_)
    for timeline in timelines:
        of_timeline = Lists.of(chunks[f"t_{timeline}"])
        loose |= _loose(chunks, f"min_{timeline}", f"max_{timeline}", of_timeline)
        claims = numbers(chunks[f"sorted_{timeline}"], 1) != 0
        unsorted |= claims & of_timeline.falls()
    return {
        "chunk_rows": np.where(has_count, counted, 1),
        "chunks_with_unordered_row_ids": row_ids.falls(or_stays=True) | (row_ids.count(~row_ids.given) > 0),
        "chunks_with_foreign_row_ids": foreign,
        "chunks_with_uneven_arrays": uneven,
        "chunks_with_loose_bounds": loose,
        "chunks_falsely_sorted": unsorted,
        "chunks_without_entity": ~present(chunks["entity"]),
        # a list that is missing hides at least one row
        "rows_without_event_time": np.where(times.present, times.count(~times.given), 1),
    }


def _loose(chunks: pa.Table, lo: str, hi: str, times: Lists) -> Flags:
    """Flags of the chunks with a bound that is missing, is not that of the times, or is given without times."""
    least, greatest, any_time = times.bounds()
    flags = np.zeros(len(any_time), np.bool_)
    for column, bound in ((lo, least), (hi, greatest)):
        given = present(chunks[column])
        flags |= (given != any_time) | (given & (numbers(chunks[column]) != bound))
    return flags


def repeated_row_ids(tables: Iterable[pa.Table]) -> pa.Table:
    """The row ids that come more than once in one landing, or go more than once in one landing.

    The columns are `row_id`, `times`, and CHUNK of one of the chunks. A later landing may take back a row that an
    earlier one brought, so ids of different landings are no repeats.

    Args:
        tables: the columns CHUNK, `diff` and `row_ids` of chunks, some chunks at a time. They are read a second time
            if an id occurs several times.
    """
    met_again = repeated_values(np.concatenate([Lists.of(table["row_ids"]).values for table in tables]))
    chunks = pa.concat_tables(tables if met_again.size else islice(tables, 0, 1))
    ids = Lists.of(chunks["row_ids"])
    owners = ids.owners
    landing, diff = numbers(chunks["landing"])[owners], numbers(chunks["diff"])[owners]
    order = np.lexsort((landing, diff, ids.values))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (landing, diff, ids.values):
        placed = column[order]
        same &= placed[1:] == placed[:-1]
    starts = np.flatnonzero(np.concatenate(([True], ~same))) if len(order) else np.zeros(0, np.int64)
    times = np.diff(np.append(starts, len(order)))
    first = order[starts[times > 1]]
    repeats = chunks.select(list(CHUNK)).take(pa.array(owners[first]))
    repeats = repeats.add_column(0, "times", pa.array(times[times > 1]))
    return repeats.add_column(0, "row_id", pa.array(ids.values[first]))


def judge_repeated_rows(repeats: pa.Table) -> Adds:
    """The number of copies of each row id beyond the first one."""
    return {"repeated_row_ids": numbers(repeats["times"]) - 1}
