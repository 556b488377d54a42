"""Equality of Arrow columns for published tables: null equals null, and floats are compared bit by bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags = npt.NDArray[np.bool_]


def same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Flags:
    """Per row, True if both columns (of one type) have the same value; lists and structs are compared part by part."""
    return _same(left.combine_chunks(), right.combine_chunks())


def _same(left: pa.Array, right: pa.Array) -> Flags:
    valid, other = (side.is_valid().to_numpy(zero_copy_only=False) for side in (left, right))
    same: Flags = valid == other
    both = valid & other
    if pa.types.is_struct(left.type):
        for place in range(left.type.num_fields):
            same &= ~both | _same(pc.struct_field(left, [place]), pc.struct_field(right, [place]))
        return same
    if pa.types.is_list(left.type):
        return same & (~both | _same_lists(left, right))
    if pa.types.is_floating(left.type):
        left, right = _bits(left), _bits(right)
    return same & (~both | pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False))


def _same_lists(left: pa.Array, right: pa.Array) -> Flags:
    lengths, others = (pc.fill_null(pc.list_value_length(side), 0).to_numpy() for side in (left, right))
    same: Flags = lengths == others
    if not same.all():
        # only lists of one length have elements to compare in pairs
        kept = pa.array(same)
        left, right, lengths = left.filter(kept), right.filter(kept), lengths[same]
    elements = np.concatenate(([0], np.cumsum(~_same(pc.list_flatten(left), pc.list_flatten(right)))))
    ends = np.cumsum(lengths)
    same[same] = elements[ends] == elements[ends - lengths]
    return same


def _bits(column: pa.Array) -> pa.Array:
    doubles = column.cast(pa.float64())
    bits = doubles.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(bits, mask=doubles.is_null().to_numpy(zero_copy_only=False))
