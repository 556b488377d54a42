"""Hashes of 64 bits, by which things are told apart and spread over shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import Flags
from spark_jobs.engine.hashes.identities import Hashes, hashes_of

_NULL = np.uint64(0x9E3779B97F4A7C15)


def hashes(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Per row, one hash of the values of all columns; nulls are equal. Two things share a hash once in 10^19."""
    together = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        together = _mix(together * np.uint64(3) + _of_values(column.combine_chunks()))
    return together


def in_share(column: pa.ChunkedArray, share: int, shares: int) -> Flags:
    """Flags of the rows in the share numbered `share` of `shares`; rows of equal values (or null) share one."""
    return hashes([column]) % np.uint64(shares) == np.uint64(share)


def _mix(numbers: Hashes) -> Hashes:
    """The numbers with their bits mixed, one to one: each bit depends on all (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _of_values(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        narrow = array.cast(pa.int32()) if not pa.types.is_integer(kind) and kind.bit_width == 32 else array
        whole = pc.fill_null(narrow.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, _mix(whole.view(np.uint64)))
    if pa.types.is_floating(kind):
        values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.uint64)
        return np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, _mix(bits))
    encoded = (array if pa.types.is_string(kind) else array.cast(pa.string())).dictionary_encode()
    of_distinct = np.append(hashes_of(encoded.dictionary), _NULL)
    return of_distinct[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)]


def bag(table: pa.Table) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes modulo 2^64: equal for the same rows in any order.

    A row counts as often as it occurs. Lists and structs are hashed by their elements, floating point numbers by their
    bits; all NaNs are equal."""
    return (table.num_rows, int(row_hashes(table).sum(dtype=np.uint64))) if table.num_rows else (0, 0)


def row_hashes(table: pa.Table) -> Hashes:
    """Per row, a hash of all columns, in the order of their names. The table must have rows."""
    together = np.zeros(table.num_rows, np.uint64)
    for name in sorted(table.column_names):
        together = _mix(together * np.uint64(3) + _of_any(table[name].combine_chunks()))
    return together


def _of_any(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_map(kind):
        # a map is a list of pairs here, whose order is as it was written
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        kind = array.type
    if pa.types.is_struct(kind):
        fields = np.zeros(len(array), np.uint64)
        for place in range(kind.num_fields):
            fields = _mix(fields * np.uint64(3) + _of_any(pc.struct_field(array, place)))
        return np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, fields)
    if not pa.types.is_list(kind):
        return _of_values(array)
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(sizes)
    places = np.arange(int(ends[-1])) - np.repeat(ends - sizes, sizes)
    elements = _of_any(array.flatten())
    placed = np.concatenate(([np.uint64(0)], np.cumsum(_mix(elements + places.astype(np.uint64)), dtype=np.uint64)))
    whole = _mix(placed[ends] - placed[ends - sizes] + sizes.astype(np.uint64))
    return np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, whole)
