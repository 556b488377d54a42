"""Erased entities, of which only salted hashes are kept. Records that land for them again are counted but not kept.

With a hash, a given text can be tested, but a record can't be searched for the entity. So a record that could not be
read as a row is split at the marks that CSV and JSON put between values, and each part is tested.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.model import ERASED

_MARKS = re.compile(r"[,;|\t\r\n{}\[\]:\"]+")
_BLANKS = re.compile(r"\s+")


def erased_hash(entity: str, salt: str) -> str:
    """The salted hash of an erased entity: BLAKE2b of its UTF-8 bytes, keyed by the salt, as 32 hexadecimal digits."""
    return hashlib.blake2b(entity.encode("utf-8", "surrogatepass"), key=bytes.fromhex(salt), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Erasures:
    """The erased entities of a source: their hashes, and the salt of these (16 to 64 bytes, hexadecimal)."""

    salt: str
    hashes: frozenset[str]

    def __contains__(self, entity: str) -> bool:
        return erased_hash(entity, self.salt) in self.hashes

    def flags(self, entities: pa.Array) -> np.ndarray:
        """Flags of the texts that are erased entities; False for a null. Each distinct text is hashed once."""
        coded = entities.dictionary_encode()
        erased = np.array([text in self for text in coded.dictionary.to_pylist()] + [False], np.bool_)
        return erased[coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)]

    def mentioned_in(self, raw: str) -> bool:
        """True if a part of the record's text `raw` is an erased entity."""
        parts = {part.strip().strip("'").strip() for part in _MARKS.split(raw)}
        words = {word for part in parts for word in _BLANKS.split(part)}
        return any(text in self for text in (parts | words) - {""})


__all__ = ["ERASED", "Erasures", "erased_hash"]
