"""Records that the scanners pass over, read one by one with the standard library, their values put where cells can
point.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_jobs.kernels.records.rules import NUMBER
from spark_jobs.kernels.records.spec import RecordSpec
from spark_jobs.kernels.records.tokens import LITERAL, NESTED, NULL, TEXT

if TYPE_CHECKING:
    from spark_jobs.kernels.records.cells import Cells

Cell = tuple[int, str]
"""`(kind, text)` of a JSON value."""


class _Literal(str):
    """A JSON number, true or false as it is written; also NaN and Infinity, which are refused where they are read."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object's members as they come, so that a repeated key can be told."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal, strict=True
)


def split_csv(record: bytes, delimiter: str) -> list[bytes]:
    """The values of a well-formed CSV record, quotes taken off and doubled ones undone."""
    separator = delimiter.encode()
    values, pos = [], 0
    while True:
        if record[pos : pos + 1] == b'"':
            close = pos + 1
            while record[close : close + 2] == b'""' or record[close : close + 1] != b'"':
                close += 2 if record[close : close + 1] == b'"' else 1
            values.append(record[pos + 1 : close].replace(b'""', b'"'))
            pos = close + 1
        else:
            stop = record.find(separator, pos)
            stop = len(record) if stop < 0 else stop
            values.append(record[pos:stop])
            pos = stop
        if pos >= len(record):
            return values
        pos += 1


def parse_object(text: str) -> dict[str, Cell] | str:
    """The members of the JSON object `text` as cells, or the rule that it breaks."""
    try:
        members = _DECODER.decode(text)
        json.dumps(members, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        # lone surrogates, which no UTF-8 text can hold, are a UnicodeEncodeError and so a ValueError
        return "bad_json"
    if not isinstance(members, _Pairs):
        return "bad_json"
    cells = {key: _cell(value) for key, value in members}
    return cells if len(cells) == len(members) else "duplicate_column"


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
    """A nested value as JSON text, its numbers as they were written."""
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_compact(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    if isinstance(value, _Literal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


class _Side:
    """Bytes appended to a batch's data, for values that stand nowhere in it as they read."""

    def __init__(self, cells: Cells) -> None:
        self._cells, self._added = cells, bytearray()

    def put(self, row: int, index: int, kind: int, value: bytes) -> None:
        cells = self._cells
        start = len(cells.data) + len(self._added)
        self._added += value
        cells.starts[row, index], cells.ends[row, index], cells.kinds[row, index] = start, start + len(value), kind

    def flush(self) -> None:
        if self._added:
            data = np.concatenate([self._cells.data, np.frombuffer(self._added, np.uint8)])
            data.setflags(write=False)  # as every batch: another type would be compiled anew
            self._cells.data = data


def patch_csv(cells: Cells, place: np.ndarray, delimiter: str) -> None:
    """Put the values of the records with doubled quotes beside the batch's data."""
    side = _Side(cells)
    for index in cells.slow:
        for row, value in zip(place, split_csv(cells.record(index), delimiter), strict=True):
            side.put(row, index, TEXT, value)
    side.flush()


def patch_ndjson(cells: Cells, spec: RecordSpec) -> None:
    """Put the values of the objects that the scanner passed over beside the batch's data, undeclared ones in
    `extras`.
    """
    side = _Side(cells)
    places = {column.header: place for place, column in enumerate(spec.columns)}
    for index in cells.slow:
        members = parse_object(cells.record(index).decode())
        if isinstance(members, str):
            cells.rules[index] = NUMBER[members]
            continue
        for key, (kind, text) in members.items():
            if key in places:
                side.put(places[key], index, kind, text.encode())
            else:
                cells.extras.setdefault(int(index), []).append((key, None if kind == NULL else text))
    side.flush()
