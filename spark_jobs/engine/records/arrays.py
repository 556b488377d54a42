"""An array of JSON objects as lines of NDJSON: one line an element, whatever lines the file has.

So the line of a row is its element's number. An element longer than the limit of a record is cut, and then rejected as
too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from spark_jobs.engine.records.headers import FileRejectedError, empty_file

_MARKS = re.compile(rb'["\\\[\]{},\n\r]')
_BLANK = b" \t\r\n"


def array_lines(blocks: Iterable[bytes], max_record: int) -> Iterator[bytes]:
    """The elements of the array in `blocks`, each with a line end, in pieces of whole lines.

    Raises:
        FileRejectedError: `empty_file`, `unreadable_file` (no array, or something after it), `truncated_file`.
    """
    splitter = _Splitter(max_record)
    for block in blocks:
        lines = splitter.take(block)
        if lines:
            yield lines
    splitter.finish()


class _Splitter:
    """The state between two blocks: the depth of brackets, True inside a string, and the element so far."""

    def __init__(self, max_record: int) -> None:
        self._most = max_record + 1
        self._depth, self._in_string, self._escaped, self._ended = 0, False, False, False
        self._element, self._elements = bytearray(), 0
        self._started = False

    def take(self, block: bytes) -> bytes:
        """The lines of the elements that end in this block."""
        block = self._begin(block)
        lines = bytearray()
        at = 0
        if self._escaped and block:
            self._keep(block[:1])
            at, self._escaped = 1, False
        while at < len(block):
            match = _MARKS.search(block, at)
            self._keep(block[at : match.start() if match else None])
            if match is None:
                break
            mark, at = match.group(), match.end()
            if mark == b"\\" and self._in_string:
                self._keep(mark + block[at : at + 1])
                self._escaped = at == len(block)
                at += 1
            elif mark in (b"\n", b"\r"):
                # inside a string a line end is not JSON; as a carriage return it stays so
                self._keep(b"\r" if self._in_string else b" ")
            elif mark == b'"' or self._in_string:
                self._in_string ^= mark == b'"'
                self._keep(mark)
            elif self._depth == 1 and mark in (b",", b"]"):
                lines += self._line(last=mark == b"]")
            else:
                self._depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
                self._keep(mark)
        return bytes(lines)

    def finish(self) -> None:
        """Raise FileRejectedError if the array has not ended, or has no element."""
        if not self._started:
            raise empty_file()
        if not self._ended:
            raise FileRejectedError("truncated_file", expected="an array of JSON to its end", found="its end missing")
        if not self._elements:
            raise empty_file()

    def _begin(self, block: bytes) -> bytes:
        if self._started:
            return block
        block = block.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
        if block and not block.startswith(b"["):
            raise FileRejectedError("unreadable_file", expected="an array of JSON objects", found="no opening bracket")
        self._started, self._depth = bool(block), int(bool(block))
        return block[1:]

    def _keep(self, piece: bytes) -> None:
        if self._ended:
            if piece.strip(_BLANK):
                raise FileRejectedError("unreadable_file", expected="one array of JSON objects", found="text behind it")
        elif len(self._element) < self._most:
            self._element += piece[: self._most]

    def _line(self, *, last: bool) -> bytes:
        element = bytes(self._element.strip(_BLANK))
        self._element.clear()
        self._ended = last
        self._depth -= last
        if last and not element and not self._elements:
            return b""
        self._elements += 1
        return (element or b",") + b"\n"
