"""Things told apart by a hash of 64 bits of what identifies them, and spread over shares by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..plain import Flags

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)


def hashes(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Per row a hash of the columns' values together; nulls are equal. Two things share one once in 10^19."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = _mixed(found * np.uint64(3) + _of_values(column.combine_chunks()))
    return found


def in_share(column: pa.ChunkedArray, share: int, shares: int) -> Flags:
    """Which rows are in this one of the shares; equal values are in one, null in some one."""
    return hashes([column]) % np.uint64(shares) == np.uint64(share)


def _mixed(numbers: Hashes) -> Hashes:
    """Numbers whose bits all depend on all bits of these, one to one (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _of_values(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        narrow = array.cast(pa.int32()) if not pa.types.is_integer(kind) and kind.bit_width == 32 else array
        whole = pc.fill_null(narrow.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, _mixed(whole.view(np.uint64)))
    encoded = (array if pa.types.is_string(kind) else array.cast(pa.string())).dictionary_encode()
    of_distinct = np.append(_of_texts(encoded.dictionary), _NULL)
    return of_distinct[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)]


def _of_texts(texts: pa.Array) -> Hashes:
    """Sums of the texts' bytes, each times a number of its place."""
    wide = texts.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
    lengths = np.diff(offsets)
    found = _mixed(lengths.astype(np.uint64))
    if not lengths.sum():
        return found
    places = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], lengths)
    letters = np.frombuffer(wide.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    weights = _mixed(np.arange(1, lengths.max() + 1, dtype=np.uint64)) | np.uint64(1)
    filled = lengths > 0
    found[filled] ^= np.add.reduceat(letters * weights[places], (offsets[:-1] - offsets[0])[filled])
    return _mixed(found)
