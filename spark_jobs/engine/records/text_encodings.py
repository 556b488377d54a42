"""Text of other encodings as UTF-8, block by block, so that the readers need to support UTF-8 only.

A byte order mark of UTF-16 or UTF-8 at the beginning of a file overrides the declared encoding. A byte that is invalid
in the encoding becomes bytes that are invalid UTF-8, so that only its record is rejected (`bad_utf8`).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

UTF8 = "utf-8"
ENCODINGS = (
    UTF8, "utf-16-le", "utf-16-be", "ascii", "latin-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9",
    "iso8859-15",
    *(f"cp{n}" for n in (437, 850, 852, 866, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
    "koi8-r", "mac-roman", "shift_jis", "cp932", "euc-jp", "euc-kr", "gb18030", "big5",
)  # fmt: skip
"""Encodings of text files, by their names in Python."""
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF8: UTF8}
_ESCAPE = "tidemark-escape"
_ESCAPED = 0xDC00
"""An undecodable byte b becomes the lone surrogate U+DC00 + b, which no valid UTF-8 text contains."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError), "registered for decoding alone"
    return "".join(chr(_ESCAPED + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_ESCAPE, _escape)


def as_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The blocks of a file, converted to UTF-8."""
    left = iter(blocks)
    start = b""
    while len(start) < len(codecs.BOM_UTF8) and (block := next(left, None)) is not None:
        start += block
    mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding)
    if encoding == UTF8:
        yield start
        yield from left
        return
    decoder = codecs.getincrementaldecoder(encoding)(_ESCAPE)
    yield _encode(decoder.decode(start[len(mark) :]))
    for block in left:
        yield _encode(decoder.decode(block))
    yield _encode(decoder.decode(b"", final=True))


def _encode(text: str) -> bytes:
    return text.encode(UTF8, "surrogatepass")
