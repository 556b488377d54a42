"""Hashes of texts, and filters of hashes, against the plain way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.columns import repeated_values
from spark_jobs.engine.hashes import BloomFilter, hashes_of

MASK = (1 << 64) - 1


def slow_hash(text: str) -> int:
    """FNV-1a and the end of MurmurHash3, as their authors write them."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return h ^ (h >> 33)


TEXTS = ["", "a", "A", "ab", "ba", "größe", "雪", "x" * 1000, "a\x00", "a\x00\x00"]


def test_hashes_are_those_of_the_definition() -> None:
    assert hashes_of(pa.array(TEXTS)).tolist() == [slow_hash(text) for text in TEXTS]


def test_hashes_do_not_depend_on_how_the_texts_lie() -> None:
    wanted = [slow_hash(text) for text in TEXTS]
    assert hashes_of(pa.chunked_array([TEXTS[:3], [], TEXTS[3:]], pa.string())).tolist() == wanted
    assert hashes_of(pa.array(["before", *TEXTS, "after"]).slice(1, len(TEXTS))).tolist() == wanted
    assert hashes_of(pa.array(TEXTS, pa.large_string())).tolist() == wanted
    assert hashes_of(pa.array([], pa.string())).tolist() == []
    assert hashes_of(pa.array(["", ""])).tolist() == [slow_hash("")] * 2


def test_a_missing_text_is_refused() -> None:
    with pytest.raises(ValueError, match="1 nulls among 2"):
        hashes_of(pa.array(["a", None]))


def test_what_stands_more_than_once() -> None:
    ascending = np.array([1, 2, 2, 3, 5, 5, 5, 9], np.uint64)
    assert repeated_values(ascending).tolist() == [2, 5]
    assert repeated_values(ascending[:1]).tolist() == repeated_values(ascending[:0]).tolist() == []


@pytest.mark.parametrize("size", [0, 1, 2, 1000, 100_000])
def test_a_filter_lets_all_of_its_own_pass_and_few_others(size: int) -> None:
    own = hashes_of(pa.array([f"own-{i}" for i in range(size)], pa.string()))
    others = hashes_of(pa.array([f"other-{i}" for i in range(100_000)]))
    wanted = BloomFilter.of(own)
    assert wanted.may_contain(own).all()
    # half a percent is what 12 bits a hash promise; a filter that does not filter lets all pass
    assert np.count_nonzero(wanted.may_contain(others)) < 1_500
    assert wanted.words.nbytes <= max(32, size * 12 / 8 + 32)
