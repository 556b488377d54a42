"""The reader of records that the scanners mark as `SLOW`: one by one, with the standard library. The values are
appended to the batch's data, so that cells can refer to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_jobs.engine.records.envelopes import Pairs, row_of_event
from spark_jobs.engine.records.rules import NUMBER
from spark_jobs.engine.records.spec import RecordSpec
from spark_jobs.engine.records.tokens import ABSENT, LITERAL, NESTED, NULL, TEXT

if TYPE_CHECKING:
    from spark_jobs.engine.records.cells import RecordCells

Cell = tuple[int, str]
"""`(kind, text)` of a JSON value."""


class _Literal(str):
    """A JSON number as it is written; also NaN and Infinity, which the readers of values refuse."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object's members in their order, with repeated keys, so that these can be found."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal, strict=True
)


def split_csv(record: bytes, delimiter: str, escape: str = "") -> list[bytes]:
    """The values of a well-formed CSV record, without the quotes around them and with doubled quotes and escapes
    undone."""
    separator, mark = delimiter.encode(), escape.encode()
    pairs = (b'""', mark + b'"', mark * 2) if mark else (b'""',)
    values, pos = [], 0
    while True:
        if record[pos : pos + 1] == b'"':
            value, at = bytearray(), pos + 1
            while record[at : at + 2] in pairs or record[at : at + 1] != b'"':
                at += record[at : at + 2] in pairs
                value += record[at : at + 1]
                at += 1
            values.append(bytes(value))
            pos = at + 1
        else:
            stop = record.find(separator, pos)
            stop = len(record) if stop < 0 else stop
            values.append(record[pos:stop])
            pos = stop
        if pos >= len(record):
            return values
        pos += 1


def parse_object(text: str, spec: RecordSpec) -> dict[str, Cell] | str:
    """The members of the JSON object `text` as cells, or the rule that it breaks.

    An object that contains declared columns (`spec.opened`) is replaced by its members, with its name and a dot before
    their names; if it is null, it has no members.
    """
    try:
        members = _DECODER.decode(text)
        json.dumps(members, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        # lone surrogates, which UTF-8 can't encode, raise a UnicodeEncodeError, which is a ValueError
        return "bad_json"
    if members is None and spec.envelope is not None:
        return "tombstone"
    if not isinstance(members, _Pairs):
        return "bad_json"
    row = members if spec.envelope is None else row_of_event(members, spec.envelope)
    if isinstance(row, str):
        return row
    flat = list(_open_structures(row, spec.opened, ""))
    cells = {name: _cell(value) for name, value in flat}
    return cells if len(cells) == len(flat) else "duplicate_column"


def _open_structures(members: Pairs, opened: frozenset[str], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in members:
        name = prefix + key
        if name not in opened or not (value is None or isinstance(value, _Pairs)):
            yield name, value
        elif value is not None:
            yield from _open_structures(value, opened, f"{name}.")


def _cell(value: Any) -> Cell:
    if value is None:
        return NULL, ""
    if isinstance(value, bool):
        return LITERAL, "true" if value else "false"
    if isinstance(value, _Literal):
        return LITERAL, str(value)
    if isinstance(value, str):
        return TEXT, value
    return NESTED, _compact(value)


def _compact(value: Any) -> str:
    """A nested value as JSON text, with its numbers as they were written."""
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_compact(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    if isinstance(value, _Literal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


class _Side:
    """Bytes to append to a batch's data: values that are not in the data in the form in which they are read."""

    def __init__(self, cells: RecordCells) -> None:
        self._cells, self._added = cells, bytearray()

    def put(self, row: int, index: int, kind: int, value: bytes) -> None:
        cells = self._cells
        start = len(cells.data) + len(self._added)
        self._added += value
        cells.starts[row, index], cells.ends[row, index], cells.kinds[row, index] = start, start + len(value), kind

    def flush(self) -> None:
        if self._added:
            data = np.concatenate([self._cells.data, np.frombuffer(self._added, np.uint8)])
            data.setflags(write=False)  # read-only as every batch: a writable array would be compiled for anew
            self._cells.data = data


def patch_csv(cells: RecordCells, place: np.ndarray, delimiter: str, escape: str) -> None:
    """Append the values of the records with doubled or escaped quotes to the batch's data."""
    side = _Side(cells)
    for index in cells.slow:
        for row, value in zip(place, split_csv(cells.record(index), delimiter, escape), strict=True):
            side.put(row, index, TEXT, value)
    side.flush()


def patch_ndjson(cells: RecordCells, spec: RecordSpec) -> None:
    """Append the values of the objects that the scanner marked as `SLOW` to the batch's data, and those of undeclared
    keys to `extras`.
    """
    side = _Side(cells)
    places = {column.header: place for place, column in enumerate(spec.columns)}
    for index in cells.slow:
        members = parse_object(cells.record(index).decode(), spec)
        cells.kinds[:, index] = ABSENT
        if isinstance(members, str):
            cells.rules[index] = NUMBER[members]
            continue
        for key, (kind, text) in members.items():
            if key in places:
                side.put(places[key], index, kind, text.encode())
            else:
                cells.extras.setdefault(int(index), []).append((key, None if kind == NULL else text))
    side.flush()
