"""Entities that were erased: known by salted hashes alone, so that what lands again of them is counted and not kept.

Where only a hash is known, a text can be asked about but not searched for. A record that could not be read as a row is
therefore taken apart at the marks that CSV and JSON put between values, and each part is asked about.
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
    """The salted hash by which an erased entity is known: BLAKE2b of its UTF-8 bytes, keyed, 32 hexadecimal digits."""
    return hashlib.blake2b(entity.encode("utf-8", "surrogatepass"), key=bytes.fromhex(salt), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Erasures:
    """The erased entities of a source: the salt (hexadecimal, of 16 to 64 bytes) that all of its hashes share."""

    salt: str
    hashes: frozenset[str]

    def __contains__(self, entity: str) -> bool:
        return erased_hash(entity, self.salt) in self.hashes

    def flags(self, entities: pa.Array) -> np.ndarray:
        """Which of the texts (nulls among them) are erased entities, as booleans; each different one is hashed once."""
        coded = entities.dictionary_encode()
        erased = np.array([text in self for text in coded.dictionary.to_pylist()] + [False], np.bool_)
        return erased[coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)]

    def mentioned_in(self, raw: str) -> bool:
        """Whether a part of a record is an erased entity."""
        parts = {part.strip().strip("'").strip() for part in _MARKS.split(raw)}
        words = {word for part in parts for word in _BLANKS.split(part)}
        return any(text in self for text in (parts | words) - {""})


__all__ = ["ERASED", "Erasures", "erased_hash"]
