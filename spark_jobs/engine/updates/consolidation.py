"""Consolidation: the sum of diffs per (data, time), zeros dropped, sorted by (data, time).

Updates are an Arrow table: any number of data columns, then in any place `time` (an integer column, signed or not)
and `diff` (int64). Data is compared column by column in schema order; strings by code point, floats in their total
order, nulls are equal and come last. Guarantee: the result has strictly ascending (data, time), no zero diff, and for
each (data, time) the exact sum, or the call is refused (`diff_overflow`). Cost: O(n log n), and O(distinct log
distinct) comparisons of values; the rest is on integers. The naive twin is `consolidate_naive`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.updates.refusals import DiffOverflow

TIME = "time"
"""Name of the column with the time at which an update becomes visible."""

DIFF = "diff"
"""Name of the column with the number of copies that an update adds (negative: takes back)."""

_INT64_MAX = 2**63 - 1


def data_columns(schema: pa.Schema) -> list[str]:
    """Names of the data columns, in the order in which they are compared."""
    return [name for name in schema.names if name not in (TIME, DIFF)]


def dense_ranks(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """int64 ranks of a column's values: equal iff the values are equal, in the values' order; nulls last.

    Floats are in their total order: -0.0 is before 0.0 and not equal to it; all NaNs are equal, and after all numbers.
    Sorts only the distinct values, so a column of few values costs little more than hashing it.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        # a dictionary from elsewhere may have a value twice, and may have a null in addition to nulls in the column
        values = pa.concat_arrays([array.dictionary, pa.nulls(1, array.type.value_type)])
        return _ranks_of_codes(array.indices, dense_ranks(values))
    encoded = (_in_total_order(array) if pa.types.is_floating(array.type) else array).dictionary_encode()
    n_distinct = len(encoded.dictionary)
    rank_of_code = np.empty(n_distinct + 1, dtype=np.int64)
    rank_of_code[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(n_distinct)
    rank_of_code[n_distinct] = n_distinct
    return _ranks_of_codes(encoded.indices, rank_of_code)


def _ranks_of_codes(codes: pa.Array, rank_of_code: np.ndarray) -> np.ndarray:
    """The rank of each code; a null gets the last element of `rank_of_code`."""
    filled = pc.fill_null(codes.cast(pa.int64()), len(rank_of_code) - 1)
    return rank_of_code[filled.to_numpy(zero_copy_only=False)]


def _in_total_order(floats: pa.Array) -> pa.Array:
    """int64 numbers that are equal and ordered as the floats are in their total order; all NaNs get one number."""
    doubles = floats.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
    # the bits of negative floats ascend with their magnitude
    ordered = bits ^ ((bits >> 63) & np.int64(_INT64_MAX))
    return pa.array(ordered, mask=floats.is_null().to_numpy(zero_copy_only=False))


def forward(updates: pa.Table, since: int | None) -> pa.Table:
    """The updates with each time replaced by the greater of itself and `since`. None, the empty frontier, leaves times
    unchanged."""
    if since is None or updates.num_rows == 0:
        return updates
    column = updates.column(TIME)
    forwarded = pc.max_element_wise(column, pa.scalar(since, type=column.type))
    return updates.set_column(updates.schema.get_field_index(TIME), updates.schema.field(TIME), forwarded)


def consolidate(updates: pa.Table) -> pa.Table:
    """Sum diffs per (data, time); same schema. Raises DiffOverflow where a sum does not fit int64."""
    return _consolidate(updates, [*data_columns(updates.schema), TIME])


def accumulate(updates: pa.Table) -> pa.Table:
    """Sum diffs per data over all times: the bag of (data, diff), without the time column. Raises DiffOverflow."""
    return _consolidate(updates.drop_columns([TIME]), data_columns(updates.schema))


def _consolidate(updates: pa.Table, by: list[str]) -> pa.Table:
    if updates.num_rows == 0:
        return updates
    keys = [_sort_key(updates, name) for name in by]
    if not keys:
        keys = [np.zeros(updates.num_rows, dtype=np.int64)]
    # lexsort takes the most significant key last
    order = np.lexsort(keys[::-1])
    starts = np.zeros(len(order), dtype=bool)
    starts[0] = True
    for key in keys:
        ordered = key[order]
        starts[1:] |= ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(starts)
    sums = _exact_sums(updates.column(DIFF).to_numpy()[order], firsts)
    kept = sums != 0
    result = updates.take(pa.array(order[firsts[kept]]))
    return result.set_column(
        updates.schema.get_field_index(DIFF), updates.schema.field(DIFF), pa.array(sums[kept], type=pa.int64())
    )


def _sort_key(updates: pa.Table, name: str) -> np.ndarray:
    column = updates.column(name)
    return column.to_numpy() if name == TIME else dense_ranks(column)


def _exact_sums(diffs: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """int64 sums of the runs of `diffs` that start at `firsts`. Raises DiffOverflow where a sum does not fit int64."""
    largest = max(abs(int(diffs.max())), abs(int(diffs.min())))
    if largest * len(diffs) <= _INT64_MAX:
        return np.add.reduceat(diffs, firsts)
    exact = np.add.reduceat(diffs.astype(object), firsts)
    if any(not -_INT64_MAX - 1 <= total <= _INT64_MAX for total in exact):
        raise DiffOverflow
    return exact.astype(np.int64)
