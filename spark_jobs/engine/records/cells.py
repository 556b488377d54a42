"""Blocks of bytes become batches of cells: the streaming half of the reader, independent of the file's size.

A batch has whole records; the rest of a block waits for the next block. The places where blocks are cut change no
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from spark_jobs.engine.records import slow, tokens
from spark_jobs.engine.records.headers import (
    DELIMITER_LINE,
    FileRejectedError,
    Header,
    check_delimiter,
    check_delimiter_line,
    check_present,
    empty_file,
    header_of,
)
from spark_jobs.engine.records.rules import NUMBER
from spark_jobs.engine.records.spec import RecordSpec

MAX_RECORDS = 1 << 16
"""The most records of a batch. With 20 columns their cells take 12 MB; larger batches were no faster."""
_MAX_CELLS = 1 << 22
_MOST_NAMES = 1_000
"""Undeclared keys of a file that are remembered, about so many, to suggest the one nearest to a missing column."""
_BOM = b"\xef\xbb\xbf"
_MARKS = np.zeros(6, np.int16)
_MARKS[tokens.TOO_LONG], _MARKS[tokens.UNCLOSED] = NUMBER["too_long"], NUMBER["unclosed_quote"]
_MARKS[tokens.BAD_QUOTE], _MARKS[tokens.COUNT] = NUMBER["bad_quote"], NUMBER["wrong_column_count"]


@dataclass
class RecordCells:
    """The records of one batch and their cells: row `j` of the cells is declared column `j`; undeclared columns follow.

    `rules` has the rule that each record breaks as a whole (0: none), `arguments` that rule's own number (a count, a
    column). `extra_names` are the undeclared columns of a CSV header. `extras` has, by record, the values of undeclared
    keys of JSON objects, and of CSV columns without a name.
    """

    data: np.ndarray
    bounds: np.ndarray
    lines: np.ndarray
    rules: np.ndarray
    arguments: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray
    width: int = 0
    extra_names: tuple[str, ...] = ()
    extras: dict[int, list[tuple[str, str | None]]] = field(default_factory=dict)
    slow: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The numbers of the records that the module `slow` reads."""

    def __len__(self) -> int:
        return len(self.lines)

    def only(self, kept: np.ndarray) -> RecordCells:
        """The cells of the records that `kept` flags; the module `slow` must have read its records before."""
        if kept.all():
            return self
        places = {int(old): new for new, old in enumerate(np.flatnonzero(kept))}
        of_records = {name: getattr(self, name)[kept] for name in ("bounds", "lines", "rules", "arguments")}
        of_cells = {name: getattr(self, name)[:, kept] for name in ("starts", "ends", "kinds")}
        extras = {places[index]: members for index, members in self.extras.items() if index in places}
        return replace(self, **of_records, **of_cells, extras=extras, slow=self.slow[:0])

    def record(self, index: int) -> bytes:
        """The bytes of a record, without its line end."""
        return self.data[self.bounds[index, 0] : self.bounds[index, 1]].tobytes()

    def text(self, row: int, index: int) -> str:
        """The text of a cell, by its row (column) and its record."""
        return self.data[self.starts[row, index] : self.ends[row, index]].tobytes().decode()


_Scan = Callable[["_Room", np.ndarray, int, bool, int], tuple[int, int, int, int]]


class _Room:
    """The arrays that a scanner fills, for at most `size` records, with a row of cells per column."""

    def __init__(self, rows: int, size: int = MAX_RECORDS) -> None:
        size = max(1, min(size, _MAX_CELLS // max(rows, 1)))
        self.bounds, self.lines = np.empty((size, 2), np.int64), np.empty(size, np.int64)
        self.marks, self.counts = np.empty(size, np.uint8), np.zeros(size, np.int64)
        self.starts, self.ends = np.empty((rows, size), np.int32), np.empty((rows, size), np.int32)
        self.kinds = np.zeros((rows, size), np.uint8)

    @property
    def records(self) -> tokens.Records:
        """The arrays that the scanners take as `records`."""
        return self.bounds, self.lines, self.marks, self.counts

    @property
    def cells(self) -> tokens.CellBounds:
        """The arrays that the scanners take as `cells`."""
        return self.starts, self.ends, self.kinds


def csv_cells(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[RecordCells]:
    """Batches of the CSV file in `blocks`, whose first record is the header. Raises FileRejectedError."""
    stream = Stream(blocks)
    header = _read_header(stream, spec)
    declared = {column.header: place for place, column in enumerate(spec.columns)}
    extra_names = tuple(name for name in header.names if name not in declared)
    rows = {**declared, **{name: len(declared) + index for index, name in enumerate((*extra_names, *header.unnamed))}}
    place = np.array([rows[name] for name in (*header.names, *header.unnamed)], np.int64)
    delimiter, escape = ord(spec.delimiter), ord(spec.escape) if spec.escape else -1

    def scan(room: _Room, data: np.ndarray, begin: int, final: bool, line: int) -> tuple[int, int, int, int]:
        return tokens.scan_csv(
            data, begin, final, line, delimiter, escape, place, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip

    for cells in _batches(stream, scan, len(rows)):
        cells.width, cells.extra_names = len(place), extra_names
        slow.patch_csv(cells, place, spec.delimiter, spec.escape)
        _keep_unnamed(cells, len(rows) - len(header.unnamed), header.unnamed)
        yield cells


def _keep_unnamed(cells: RecordCells, first: int, names: tuple[str, ...]) -> None:
    """Add the values of columns without a name, from row `first` of the cells on, to the records' `extras`."""
    for row, name in enumerate(names, first):
        filled = (cells.rules == 0) & (cells.ends[row] > cells.starts[row])
        for index in np.flatnonzero(filled).tolist():
            cells.extras.setdefault(index, []).append((name, cells.text(row, index)))


def ndjson_cells(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[RecordCells]:
    """Batches of the NDJSON file in `blocks`.

    Raises:
        FileRejectedError: `empty_file`, it has no record; after all batches `columns_missing`, a column that is not
            optional is in none of its readable records.
    """
    keys = [column.header.encode() for column in spec.columns]
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    key_bounds = np.cumsum([0, *map(len, keys)])

    def scan(room: _Room, data: np.ndarray, begin: int, final: bool, line: int) -> tuple[int, int, int, int]:
        return tokens.scan_ndjson(
            data, begin, final, line, key_bytes, key_bounds, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip

    empty, readable = True, False
    present, others = np.zeros(len(keys), bool), set[str]()
    for scanned in _batches(Stream(blocks), scan, len(keys)):
        empty = False
        cells = scanned
        if spec.envelope is not None:
            cells.slow = np.flatnonzero(cells.rules == 0)
        slow.patch_ndjson(cells, spec)
        if spec.skip_tombstones:
            cells = cells.only(cells.rules != NUMBER["tombstone"])
            if not len(cells):
                continue
        good = cells.rules == 0
        readable = readable or bool(good.any())
        present |= (cells.kinds[:, good] != tokens.ABSENT).any(axis=1)
        if len(others) < _MOST_NAMES and not present.all():
            others.update(name for members in cells.extras.values() for name, _ in members)
        yield cells
    if empty:
        raise empty_file()
    if readable:
        check_present({c.header for c, here in zip(spec.columns, present, strict=True) if here} | others, spec)


class Stream:
    """The unread part of a file: `data[position:]`, then the blocks to come. A byte order mark at the beginning is
    skipped."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self.data, self.position, self.line, self.final = b"", 0, 1, False
        while len(self.data) < len(_BOM) and not self.final:
            self.more()
        if self.data.startswith(_BOM):
            self.position = len(_BOM)

    def more(self) -> None:
        """Add the next block to `data`, or set `final` if there is none."""
        block = next(self._blocks, None)
        if block is None:
            self.final = True
        else:
            self.data, self.position = self.data[self.position :] + block, 0

    def skip_line(self) -> None:
        """Skip the rest of the present line, which may extend over several blocks."""
        self.position = len(self.data)
        while not self.final:
            self.more()
            newline = self.data.find(b"\n", self.position)
            if newline >= 0:
                self.position = newline + 1
                self.line += 1
                return
            self.position = len(self.data)


def _batches(stream: Stream, scan: _Scan, rows: int) -> Iterator[RecordCells]:
    while True:
        room = _Room(rows)
        data = np.frombuffer(stream.data, np.uint8)
        count, position, stream.line, why = scan(room, data, stream.position, stream.final, stream.line)
        stream.position = min(position, len(data))
        if count:
            yield _cells_of(room, data, count)
        if why == tokens.SKIPPING:
            stream.skip_line()
        elif why == tokens.NEED_MORE and stream.final:
            return
        elif why == tokens.NEED_MORE:
            stream.more()


def _cells_of(room: _Room, data: np.ndarray, count: int) -> RecordCells:
    marks = room.marks[:count]
    cells = RecordCells(
        data=data,
        bounds=room.bounds[:count],
        lines=room.lines[:count],
        rules=_MARKS[marks],
        arguments=np.where(marks == tokens.COUNT, room.counts[:count], 0).astype(np.int32),
        starts=room.starts[:, :count],
        ends=room.ends[:, :count],
        kinds=room.kinds[:, :count],
    )
    _check_utf8(cells)
    cells.slow = np.flatnonzero((marks == tokens.SLOW) & (cells.rules == 0))
    return cells


def _check_utf8(cells: RecordCells) -> None:
    """Mark the records that are not UTF-8 as `bad_utf8`, except those already marked as too long or unclosed."""
    try:
        cells.data[cells.bounds[0, 0] : cells.bounds[-1, 1]].tobytes().decode()
    except UnicodeDecodeError:
        for index in np.flatnonzero(~np.isin(cells.rules, (NUMBER["too_long"], NUMBER["unclosed_quote"]))):
            try:
                cells.record(int(index)).decode()
            except UnicodeDecodeError:
                cells.rules[index] = NUMBER["bad_utf8"]


def _read_header(stream: Stream, spec: RecordSpec) -> Header:
    mark, record = _first_record(stream, spec)
    if record.startswith(DELIMITER_LINE):
        check_delimiter_line(record, spec)
        mark, record = _first_record(stream, spec)
    if mark == tokens.BAD_QUOTE:
        # quoted names look like this if another delimiter is between them
        check_delimiter(record, (), spec)
    if mark not in (tokens.COUNT, tokens.OK, tokens.SLOW):
        raise FileRejectedError("bad_header", expected="a header of column names", found="a first record that is none")
    return header_of(record, spec)


def _first_record(stream: Stream, spec: RecordSpec) -> tuple[int, bytes]:
    """The mark and the bytes of the next record. Raises FileRejectedError if there is none."""
    room, none = _Room(0, size=1), np.empty(0, np.int64)
    escape = ord(spec.escape) if spec.escape else -1
    while True:
        data = np.frombuffer(stream.data, np.uint8)
        count, position, stream.line, _ = tokens.scan_csv(
            data, stream.position, stream.final, stream.line, ord(spec.delimiter), escape, none, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip
        stream.position = min(position, len(data))
        if count:
            break
        if stream.final:
            raise empty_file()
        stream.more()
    start, end = (int(bound) for bound in room.bounds[0])
    return int(room.marks[0]), data[start:end].tobytes()
