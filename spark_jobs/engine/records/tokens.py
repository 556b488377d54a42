"""From bytes to cells: compiled scanners that find records and, in them, the values of the columns.

A *cell* is a value's place in the buffer (`start`, `end`) and its `kind`. A scanner marks records that it does not
understand fully (escapes, nesting, unknown or repeated keys) as `SLOW`; `slow.py` reads them with the standard library.
The grammar is that of `engine.twins`; tests compare the scanners with it.

CSV: records end at a newline outside quotes; a carriage return before the newline is part of the line end. A field is
quoted if its first byte is a quote. In a quoted field, two quotes are one, and so are the declared escape (-1: none)
and a quote, or two escapes. Empty lines are no records. A record that has not ended `max_record` bytes after its start
is rejected. If it has several lines, its first line is rejected as `unclosed_quote`, so that a stray quote costs one
line; else the record is `too_long`, up to the next newline.
"""

from __future__ import annotations

import numba
import numpy as np

from spark_jobs.engine.records.numbers import Bytes, Ints

Records = tuple[Ints, Ints, Bytes, Ints]
"""Arrays with one element per record: start and end (two columns), line, mark, and (CSV) the number of fields."""
CellBounds = tuple[Ints, Ints, Bytes]
"""Arrays of the cells' starts, ends and kinds, in shape (columns, records)."""

ABSENT, NULL, TEXT, LITERAL, NESTED = 0, 1, 2, 3, 4
"""Kinds of a cell: no such column, JSON's null, text, another JSON literal (a number, true, false), an object or
array.
"""
OK, SLOW, TOO_LONG, UNCLOSED, BAD_QUOTE, COUNT = 0, 1, 2, 3, 4, 5
"""Marks of a record; `COUNT`: it has another number of fields than the header."""
NEED_MORE, FULL, SKIPPING = 0, 1, 2
"""The reasons for which a scanner returns: the rest is not a whole record, the room for records is used up, or the
buffer ends inside a record that is too long.
"""

_NEWLINE, _RETURN, _QUOTE, _BACKSLASH = 10, 13, 34, 92
_NULL, _TRUE, _FALSE = (np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false"))
_SPACE, _TAB, _COMMA, _COLON, _OPEN, _CLOSE = 32, 9, 44, 58, 123, 125


@numba.njit(cache=True, nogil=True)
def _next_newline(buf: Bytes, pos: int) -> int:
    while pos < len(buf) and buf[pos] != _NEWLINE:
        pos += 1
    return pos


@numba.njit(cache=True, nogil=True)
def scan_csv(
    buf: Bytes,
    begin: int,
    final: bool,
    line: int,
    delimiter: int,
    escape: int,
    place: Ints,
    max_record: int,
    records: Records,
    cells: CellBounds,
) -> tuple[int, int, int, int]:
    """Scan CSV records from `begin`; fills `records` and `cells`.

    `place[f]` is the row of field `f` in the cells. Returns `(records, position, line, why)`: the number of records,
    and the place at which scanning continues. `position` is the start of line `line` (or, with `SKIPPING`, inside it).
    """
    rec, lines, marks, counts = records
    n, length, pos = 0, len(buf), begin
    while pos < length:
        if _is_line_end(buf, pos, final):
            pos = _next_newline(buf, pos) + 1
            line += 1
            continue
        if n == len(lines):
            return n, pos, line, FULL
        lines[n] = line
        end, after, newlines, first_newline, mark = _scan_csv_record(
            buf, pos, final, delimiter, escape, place, max_record, n, counts, cells
        )
        if end < 0:
            return n, pos, line, NEED_MORE
        if mark == TOO_LONG and first_newline >= 0:
            mark, end, after, newlines = UNCLOSED, first_newline, first_newline + 1, 1
        elif mark == TOO_LONG:
            after = _next_newline(buf, after) + 1
            newlines = 1
        rec[n, 0], rec[n, 1], marks[n] = pos, end, mark
        n += 1
        if after > length and not (final and mark != TOO_LONG):
            return n, length, line, SKIPPING
        pos = after
        line += newlines
    return n, pos, line, NEED_MORE


@numba.njit(cache=True, nogil=True)
def _is_line_end(buf: Bytes, pos: int, final: bool) -> bool:
    if buf[pos] == _RETURN:
        return buf[pos + 1] == _NEWLINE if pos + 1 < len(buf) else final
    return buf[pos] == _NEWLINE


@numba.njit(cache=True, nogil=True)
def _scan_csv_record(
    buf: Bytes,
    start: int,
    final: bool,
    delimiter: int,
    escape: int,
    place: Ints,
    max_record: int,
    n: int,
    counts: Ints,
    cells: CellBounds,
) -> tuple[int, int, int, int, int]:
    """Scan one record: `(end, position after it, newlines passed, its first newline inside quotes, mark)`. End -1: the
    buffer ends before the record. First newline -1: there is none.
    """
    starts, ends, kinds = cells
    length, pos = len(buf), start
    field, field_start, value_end, newlines, first_newline = 0, start, -1, 0, -1
    quoted, escaped, bad = False, False, False
    while (pos < length or (final and pos == length and not quoted)) and pos - start <= max_record:
        byte = buf[pos] if pos < length else _NEWLINE
        if byte == _QUOTE and pos == field_start:
            quoted = True
        elif quoted and pos + 1 < length and _is_pair(byte, buf[pos + 1], escape):
            escaped = True
            pos += 1
        elif quoted and byte == _QUOTE:
            quoted, value_end = False, pos
        elif quoted and byte == _NEWLINE:
            newlines += 1
            first_newline = pos if first_newline < 0 else first_newline
        elif not quoted and byte in (delimiter, _NEWLINE):
            stop = pos
            if byte == _NEWLINE and stop > field_start and buf[stop - 1] == _RETURN:
                stop -= 1
            bad = bad or (value_end >= 0 and value_end + 1 != stop)
            if field < len(place):
                row = place[field]
                starts[row, n] = field_start + 1 if value_end >= 0 else field_start
                ends[row, n] = value_end if value_end >= 0 else stop
                kinds[row, n] = TEXT
            field += 1
            if byte == _NEWLINE:
                counts[n] = field
                mark = BAD_QUOTE if bad else (COUNT if field != len(place) else (SLOW if escaped else OK))
                return stop, pos + 1, newlines + 1, first_newline, mark
            field_start, value_end = pos + 1, -1
        pos += 1
    if pos - start > max_record:
        return start + max_record, pos, newlines, first_newline, TOO_LONG
    if not final:
        return -1, start, 0, -1, OK
    if first_newline >= 0:
        return first_newline, first_newline + 1, 1, first_newline, UNCLOSED
    return length, length + 1, 1, -1, UNCLOSED


@numba.njit(cache=True, nogil=True)
def _is_pair(byte: int, following: int, escape: int) -> bool:
    """True if the two bytes, in a quoted field, stand for one: a doubled quote, or an escape before a quote or an
    escape."""
    if byte == escape:
        return following in (_QUOTE, escape)
    return byte == _QUOTE and following == _QUOTE


@numba.njit(cache=True, nogil=True)
def scan_ndjson(
    buf: Bytes,
    begin: int,
    final: bool,
    line: int,
    key_bytes: Bytes,
    key_bounds: Ints,
    max_record: int,
    records: Records,
    cells: CellBounds,
) -> tuple[int, int, int, int]:
    """Scan JSON objects, one a line; like `scan_csv`. Column `j` has the key
    `key_bytes[key_bounds[j]:key_bounds[j + 1]]`."""
    rec, lines, marks, _ = records
    n, length, pos = 0, len(buf), begin
    while pos < length:
        newline = _next_newline(buf, pos)
        too_long = newline - pos > max_record
        if newline == length and not final and not too_long:
            return n, pos, line, NEED_MORE
        start = _skip_blanks(buf, pos, newline)
        if start == newline and not too_long:
            pos = newline + 1
            line += 1
            continue
        if n == len(lines):
            return n, pos, line, FULL
        lines[n] = line
        if too_long:
            rec[n, 0], rec[n, 1], marks[n] = pos, pos + max_record, TOO_LONG
        else:
            rec[n, 0], rec[n, 1] = pos, newline - 1 if buf[newline - 1] == _RETURN else newline
            is_plain = _scan_object(buf, start, newline, key_bytes, key_bounds, n, cells)
            marks[n] = OK if is_plain else SLOW
        n += 1
        if newline == length and not final:
            return n, length, line, SKIPPING
        pos = newline + 1
        line += 1
    return n, pos, line, NEED_MORE


@numba.njit(cache=True, nogil=True)
def _skip_blanks(buf: Bytes, pos: int, stop: int) -> int:
    while pos < stop and (buf[pos] == _SPACE or buf[pos] == _TAB or buf[pos] == _RETURN):
        pos += 1
    return pos


@numba.njit(cache=True, nogil=True)
def _scan_object(
    buf: Bytes, pos: int, stop: int, key_bytes: Bytes, key_bounds: Ints, n: int, cells: CellBounds
) -> bool:
    """Fill the cells of the object in `[pos, stop)`. Returns False if it is not a flat object of declared keys, each at
    most once, without escapes; cells are then filled in part."""
    starts, ends, kinds = cells
    if buf[pos] != _OPEN:
        return False
    pos = _skip_blanks(buf, pos + 1, stop)
    if pos < stop and buf[pos] == _CLOSE:
        return _skip_blanks(buf, pos + 1, stop) == stop
    guess = 0
    while True:
        key_end = _end_of_string(buf, pos, stop)
        if key_end < 0:
            return False
        key = _find_key(buf, pos + 1, key_end, key_bytes, key_bounds, guess)
        if key < 0 or kinds[key, n] != ABSENT:
            return False
        guess = key + 1
        pos = _skip_blanks(buf, key_end + 1, stop)
        if pos >= stop or buf[pos] != _COLON:
            return False
        pos = _skip_blanks(buf, pos + 1, stop)
        if pos < stop and buf[pos] == _QUOTE:
            end = _end_of_string(buf, pos, stop)
            starts[key, n], ends[key, n], kinds[key, n] = pos + 1, end, TEXT
            pos = end + 1
        else:
            end, kind = _end_of_literal(buf, pos, stop)
            starts[key, n], ends[key, n], kinds[key, n] = pos, end, kind
            pos = end
        if end < 0:
            return False
        pos = _skip_blanks(buf, pos, stop)
        if pos < stop and buf[pos] == _CLOSE:
            return _skip_blanks(buf, pos + 1, stop) == stop
        if pos >= stop or buf[pos] != _COMMA:
            return False
        pos = _skip_blanks(buf, pos + 1, stop)


@numba.njit(cache=True, nogil=True)
def _end_of_string(buf: Bytes, pos: int, stop: int) -> int:
    """The position of the closing quote of the string that opens at `pos`. -1 if no string opens or closes, or if it
    has an escape or a control character."""
    if pos >= stop or buf[pos] != _QUOTE:
        return -1
    pos += 1
    while pos < stop and buf[pos] != _QUOTE and buf[pos] != _BACKSLASH and buf[pos] >= _SPACE:
        pos += 1
    return pos if pos < stop and buf[pos] == _QUOTE else -1


@numba.njit(cache=True, nogil=True)
def _find_key(buf: Bytes, start: int, end: int, key_bytes: Bytes, key_bounds: Ints, guess: int) -> int:
    keys = len(key_bounds) - 1
    for offset in range(keys):
        key = (guess + offset) % keys
        first = key_bounds[key]
        if key_bounds[key + 1] - first != end - start:
            continue
        same = True
        for index in range(end - start):
            if buf[start + index] != key_bytes[first + index]:
                same = False
                break
        if same:
            return key
    return -1


@numba.njit(cache=True, nogil=True)
def _end_of_literal(buf: Bytes, pos: int, stop: int) -> tuple[int, int]:
    """`(end, kind)` of the number, true, false or null at `pos`; end -1 if there is no such literal."""
    if _has_word(buf, pos, stop, _NULL):
        return pos + 4, NULL
    if _has_word(buf, pos, stop, _TRUE):
        return pos + 4, LITERAL
    if _has_word(buf, pos, stop, _FALSE):
        return pos + 5, LITERAL
    if pos < stop and buf[pos] == 45:
        pos += 1
    whole = pos
    pos = _skip_digits(buf, pos, stop)
    if pos == whole or (buf[whole] == 48 and pos > whole + 1):
        return -1, LITERAL
    if pos < stop and buf[pos] == 46:
        fraction = pos + 1
        pos = _skip_digits(buf, fraction, stop)
        if pos == fraction:
            return -1, LITERAL
    if pos < stop and (buf[pos] == 101 or buf[pos] == 69):
        pos += 1
        if pos < stop and (buf[pos] == 43 or buf[pos] == 45):
            pos += 1
        exponent = pos
        pos = _skip_digits(buf, exponent, stop)
        if pos == exponent:
            return -1, LITERAL
    return pos, LITERAL


@numba.njit(cache=True, nogil=True)
def _has_word(buf: Bytes, pos: int, stop: int, word: Bytes) -> bool:
    if stop - pos < len(word):
        return False
    same = True
    for index, byte in enumerate(word):
        same = same and buf[pos + index] == byte
    return same


@numba.njit(cache=True, nogil=True)
def _skip_digits(buf: Bytes, pos: int, stop: int) -> int:
    while pos < stop and 48 <= buf[pos] <= 57:
        pos += 1
    return pos
