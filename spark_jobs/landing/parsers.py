"""Files of a format that a plugin reads. Their records become lines of NDJSON, which are read like those of any
source."""

from __future__ import annotations

import json
from collections.abc import Iterator

from spark_jobs.landing.opened import UnusableFileError
from spark_jobs.plugins.code import Parser

_BLOCK_BYTES = 1 << 20


def parse(parser: Parser, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The records of a file's blocks, as blocks of lines with one record each.

    Raises:
        UnusableFileError: the parser raises, or returns something other than records.
    """
    ready = bytearray()
    number = 0
    try:
        for record in parser.function(blocks):
            number += 1
            ready += _line(record) + b"\n"
            if len(ready) >= _BLOCK_BYTES:
                yield bytes(ready)
                ready.clear()
    except UnusableFileError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        expected = f"expected format {parser.name} of {parser.plugin.file} to read the file"
        raise UnusableFileError("parser_failed", f"{expected}, found after record {number}: {text}"[:1000]) from error
    yield bytes(ready)


def _line(record: object) -> bytes:
    if isinstance(record, dict):
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    if isinstance(record, str):
        # in quotes it is no record of NDJSON, so it is rejected unchanged
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    raise TypeError(f"expected a dict or the text of a record that can't be read, found {type(record).__name__}")
