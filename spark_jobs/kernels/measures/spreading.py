"""Things spread over shares, so that a task need hold but one: all rows of a thing are in one share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .sums import Flags

_ODD = np.uint64(0x9E3779B97F4A7C15)
_BYTES = 8


def in_share(column: pa.ChunkedArray, share: int, shares: int) -> Flags:
    """Which rows are in this one of the shares; equal values are in one, null in some one."""
    array = column.combine_chunks()
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_string(kind)):
        array = array.cast(pa.string())
    whole = _last_bytes(array) if pa.types.is_string(array.type) else _ticks(array)
    mixed = whole * _ODD
    return ((mixed ^ (mixed >> np.uint64(32))) * _ODD >> np.uint64(32)) % np.uint64(shares) == np.uint64(share)


def _ticks(array: pa.Array) -> np.ndarray:
    narrow = pa.int32() if array.type.bit_width == 32 else pa.int64()
    whole = array if pa.types.is_integer(array.type) else array.cast(narrow)
    return pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)


def _last_bytes(array: pa.Array) -> np.ndarray:
    """The end of each text as a number: that is where the names of many things differ."""
    filled = pc.fill_null(array, "").cast(pa.large_string())
    offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = filled.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    whole = np.zeros(len(filled), np.uint64)
    for distance in range(1, _BYTES + 1):
        at = offsets[1:] - distance
        within = at >= offsets[:-1]
        whole = (whole << np.uint64(8)) | np.where(within, text[np.where(within, at, 0)], 0).astype(np.uint64)
    return whole
