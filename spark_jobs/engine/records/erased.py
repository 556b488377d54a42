"""Erased values, of which only salted hashes are kept. Records that land with them again are counted but not kept.

A value is an entity, or the value of another declared column. With a hash, a given text can be tested, but a record
can't be searched for the value. So a record that could not be read as a row is split at the marks that CSV and JSON put
between values, and each part is tested.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.model import ERASED

_MARKS = re.compile(r"[,;|\t\r\n{}\[\]:\"]+")
_BLANKS = re.compile(r"\s+")


def erased_hash(value: str, salt: str, column: str | None = None) -> str:
    """The salted hash of an erased value: BLAKE2b of UTF-8 bytes, keyed by the salt, as 32 hexadecimal digits.

    `column`: the declared column of the value; None for an entity.
    """
    text = value if column is None else f"{column}\0{value}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def texts_of(values: pa.Array) -> pa.Array:
    """The values of a declared column as texts, in which they are compared with erased ones. Instants are in ISO-8601
    UTC, with microseconds only if they are not zero."""
    texts = values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        texts = pc.replace_substring(texts, " ", "T")
        texts = pc.replace_substring(texts, ".000000Z", "Z")
    return texts


@dataclass(frozen=True, slots=True)
class Erasures:
    """The erased values of a source: the hashes of entities (`hashes`), the hashes of values of other columns, each
    with its column (`of_columns`), and the salt of all (16 to 64 bytes, hexadecimal)."""

    salt: str
    hashes: frozenset[str] = frozenset()
    of_columns: frozenset[tuple[str, str]] = frozenset()

    @property
    def columns(self) -> list[str]:
        """The declared columns, other than the entity, that have erased values."""
        return sorted({column for column, _ in self.of_columns})

    def has(self, text: str, column: str | None = None) -> bool:
        """True if the text is an erased value of the column; without a column, if it is an erased entity."""
        hashed = erased_hash(text, self.salt, column)
        return hashed in self.hashes if column is None else (column, hashed) in self.of_columns

    def flags(self, texts: pa.Array, column: str | None = None) -> np.ndarray:
        """Flags of the texts that are erased, as `has` says; False for a null. Each distinct text is hashed once."""
        coded = texts.dictionary_encode()
        erased = np.array([self.has(text, column) for text in coded.dictionary.to_pylist()] + [False], np.bool_)
        return erased[coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)]

    def mentioned_in(self, raw: str) -> bool:
        """True if a part of the record's text `raw` is an erased value of any column."""
        parts = {part.strip().strip("'").strip() for part in _MARKS.split(raw)}
        words = {word for part in parts for word in _BLANKS.split(part)}
        columns = [*([None] if self.hashes else []), *self.columns]
        return any(self.has(text, column) for text in (parts | words) - {""} for column in columns)


__all__ = ["ERASED", "Erasures", "erased_hash", "texts_of"]
