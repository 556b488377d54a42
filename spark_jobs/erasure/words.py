"""The search for a value as a word: its forms in texts, and files that have it.

Texts are compared by whole words: the value `N1` is not in `N14EH`. A very short value, or a small number, is looked
for in tables only: as a word it is in half of every log for other reasons.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.landing.worker import GZIP, ZSTD

SHORTEST, SHORTEST_NUMBER = 3, 6
"""The least letters of a value that is looked for in texts, and the least digits of one that is a number."""
BLACK = b"*"
PARQUET = b"PAR1"
"""The first bytes of a Parquet file, whatever its name."""
_BLOCK = 1 << 20
_WORD = r"[A-Za-z0-9_]"


def is_distinct(value: str) -> bool:
    """True if the value is long enough: a text that has it as a word is then likely about it."""
    digits = value.removeprefix("-")
    return len(digits) >= SHORTEST_NUMBER if digits.isdecimal() else len(value) >= SHORTEST


def pattern_of(value: str) -> re.Pattern[bytes]:
    """A pattern for the value as a whole word, in the forms that plain texts, JSON, HTML and URLs have of it."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value)}
    forms |= {quote(value), quote(value, safe="")}
    listed = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(f"(?<!{_WORD})(?:{listed})(?!{_WORD})".encode())


def blacked_out(text: str, pattern: re.Pattern[bytes]) -> str:
    """The text with a mark in place of each byte of the value."""
    return pattern.sub(lambda word: BLACK * len(word[0]), text.encode()).decode()


def json_without(value: Any, pattern: re.Pattern[bytes]) -> Any:
    """A JSON document with the value blacked out in its texts; names and numbers stay, so that readers still work."""
    if isinstance(value, dict):
        return {name: json_without(each, pattern) for name, each in value.items()}
    if isinstance(value, list):
        return [json_without(each, pattern) for each in value]
    return blacked_out(value, pattern) if isinstance(value, str) else value


def names_value(file: IO[bytes], value: str) -> bool:
    """True if a file, open at its start, has the value, as a word of its text or in a column of Parquet.

    Raises:
        OSError: the file can't be read to its end.
    """
    start = file.read(len(PARQUET))
    file.seek(0)
    try:
        if start == PARQUET:
            return in_parquet(file, value)
        with _expanded(file, start) as text:
            return _in_blocks(iter(lambda: text.read(_BLOCK), b""), pattern_of(value), len(value))
    except (EOFError, pa.ArrowException) as error:
        raise OSError(f"it can't be read to its end: {error}") from error


@contextmanager
def _expanded(file: IO[bytes], start: bytes) -> Iterator[IO[bytes]]:
    """The content of a file with its first bytes `start`; one that is compressed with gzip or zstd is expanded."""
    if start.startswith(GZIP):
        with gzip.open(file) as expanded:
            yield cast(IO[bytes], expanded)
    elif start.startswith(ZSTD):
        with pa.CompressedInputStream(file, "zstd") as expanded:
            yield expanded
    else:
        yield file


def _in_blocks(blocks: Iterator[bytes], pattern: re.Pattern[bytes], width: int) -> bool:
    before = b""
    for block in blocks:
        text = before + block
        if pattern.search(text):
            return True
        before = text[-8 * width - 2 :]
    return False


def in_parquet(file: IO[bytes] | pa.NativeFile | pa.Buffer, value: str) -> bool:
    """True if a text in a Parquet file has the value."""
    return any(_in_column(column, value) for batch in pq.ParquetFile(file).iter_batches() for column in batch.columns)


def _in_column(column: pa.Array, value: str) -> bool:
    """True if a text of the column has the value, however deep in lists, maps and structs.

    A short value has to be the whole text, a distinct one a word of it.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _in_column(column.dictionary, value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _in_column(column.flatten(), value)
    if pa.types.is_map(kind):
        return _in_column(column.keys, value) or _in_column(column.items, value)
    if pa.types.is_struct(kind):
        return any(_in_column(part, value) for part in column.flatten())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    if not is_distinct(value):
        return bool(pc.any(pc.equal(column, value)).as_py())
    near = column.filter(pc.fill_null(pc.match_substring(column, value), False))
    pattern = pattern_of(value)
    return any(pattern.search(text.encode()) for text in near.to_pylist())
