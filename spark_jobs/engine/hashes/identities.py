"""64-bit hashes of texts, and Bloom filters of hashes, which find the texts that may have been seen before.

A Bloom filter (Bloom 1970) is split into blocks of half a cache line, as in Putze, Sanders and Singler 2007 and in
Parquet. It answers "may be there" or "is not there": it never misses a hash that it was made of, and lets about one in
200 others pass. It takes 12 bits a hash and is sent to tasks in place of the hashes. Equal texts have equal hashes;
texts with equal hashes must still be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

Hashes = npt.NDArray[np.uint64]

BITS_A_HASH = 12
_BLOCK_BITS = 256
_WORDS = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
"""One odd factor for each word of a block: the factors of Parquet's filters."""
_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def hashes_of(texts: pa.Array | pa.ChunkedArray) -> Hashes:
    """A hash of 64 bits for each text: FNV-1a of its UTF-8 bytes, its bits mixed by the last step of MurmurHash3.

    Raises:
        ValueError: a text is missing.
    """
    if isinstance(texts, pa.ChunkedArray):
        parts = [hashes_of(chunk) for chunk in texts.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    if texts.null_count:
        raise ValueError(f"expected texts, found {texts.null_count} nulls among {len(texts)}")
    if not len(texts):
        return np.zeros(0, np.uint64)
    large = texts.cast(pa.large_string())
    _, offsets, data = large.buffers()
    bounds = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    return _hash_texts(bounds, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8))


def ranges_of(hashes: Hashes, count: int) -> list[Hashes]:
    """The hashes, ascending, in `count` ranges of equal width. The ranges depend on `count` alone, so a hash is in the
    same range in every call."""
    ascending = np.sort(hashes)
    width = (1 << 64) // count
    bounds = np.searchsorted(ascending, np.array([width * i for i in range(1, count)], np.uint64))
    return np.split(ascending, bounds)


@dataclass(frozen=True)
class BloomFilter:
    """A Bloom filter of some hashes. `words` has shape (blocks, 8)."""

    words: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, hashes: Hashes) -> BloomFilter:
        """A filter that lets all of these hashes pass."""
        blocks = max(1, -(-len(hashes) * BITS_A_HASH // _BLOCK_BITS))
        words = np.zeros((blocks, _WORDS), np.uint32)
        _insert(words, hashes, _SALTS)
        return cls(words)

    def may_contain(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """For each hash, True if it may be among the hashes that the filter was made of."""
        return _test(self.words, hashes, _SALTS)


@njit(cache=True, nogil=True)
def _hash_texts(bounds: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Hashes:
    hashes = np.empty(len(bounds) - 1, np.uint64)
    for i in range(len(hashes)):
        h = _FNV_OFFSET
        for place in range(bounds[i], bounds[i + 1]):
            h = (h ^ np.uint64(data[place])) * _FNV_PRIME
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        hashes[i] = h ^ (h >> np.uint64(33))
    return hashes


@njit(cache=True, nogil=True)
def _block(h: np.uint64, blocks: int) -> np.uint64:
    """The block of a hash, chosen by the hash's upper half; the lower half chooses the bits in the block."""
    return ((h >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)


@njit(cache=True, nogil=True)
def _insert(words: npt.NDArray[np.uint32], hashes: Hashes, salts: npt.NDArray[np.uint32]) -> None:
    for h in hashes:
        block, low = _block(h, len(words)), np.uint32(h & np.uint64(0xFFFFFFFF))
        for word in range(_WORDS):
            words[block, word] |= np.uint32(1) << (np.uint32(low * salts[word]) >> np.uint32(27))


@njit(cache=True, nogil=True)
def _test(words: npt.NDArray[np.uint32], hashes: Hashes, salts: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    passing = np.ones(len(hashes), np.bool_)
    for i in range(len(hashes)):
        h = hashes[i]
        block, low = _block(h, len(words)), np.uint32(h & np.uint64(0xFFFFFFFF))
        for word in range(_WORDS):
            bit = np.uint32(1) << (np.uint32(low * salts[word]) >> np.uint32(27))
            if words[block, word] & bit == 0:
                passing[i] = False
                break
    return passing
