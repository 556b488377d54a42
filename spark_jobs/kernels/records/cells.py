"""Blocks of bytes become batches of cells: the streaming half of the reader, independent of the file's size.

A batch holds whole records; what is left of a block waits for the next one. Where blocks are cut changes no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from spark_jobs.errors import TidemarkError
from spark_jobs.kernels.records import slow, tokens
from spark_jobs.kernels.records.delimiters import likely_delimiter
from spark_jobs.kernels.records.rules import NUMBER
from spark_jobs.kernels.records.spec import RecordSpec

MAX_RECORDS = 1 << 16
"""Records of a batch. With 20 columns their cells take 12 MB; larger batches were no faster."""
_MAX_CELLS = 1 << 22
_BOM = b"\xef\xbb\xbf"
_MARKS = np.zeros(6, np.int16)
_MARKS[tokens.TOO_LONG], _MARKS[tokens.UNCLOSED] = NUMBER["too_long"], NUMBER["unclosed_quote"]
_MARKS[tokens.BAD_QUOTE], _MARKS[tokens.COUNT] = NUMBER["bad_quote"], NUMBER["wrong_column_count"]


class FileRejectedError(TidemarkError):
    """A file that cannot be read as a whole: no row of it counts. Fact `rule`: one of `rules.FILE_RULES`."""

    code = "file_rejected"
    rule: str

    def __init__(self, rule: str, *, expected: str, found: str) -> None:
        super().__init__(expected=expected, found=found, consequence="the file is in quarantine as a whole", rule=rule)

    @property
    def reason(self) -> str:
        """The sentence for `bronze.quarantine`."""
        return f"expected {self.expected}, found {self.found}"


@dataclass
class Cells:
    """Records of one batch and their cells: row `j` of the cells is declared column `j`, then the undeclared ones.

    `rules` holds what is wrong with a record as a whole (0: nothing), `arguments` the rule's own number (a count, a
    column). `extra_names` are the undeclared columns of a CSV header; `extras` what undeclared keys of JSON objects
    hold, by record.
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
    """The records that `slow` reads."""

    def __len__(self) -> int:
        return len(self.lines)

    def record(self, index: int) -> bytes:
        """The bytes of a record, without its line end."""
        return self.data[self.bounds[index, 0] : self.bounds[index, 1]].tobytes()

    def text(self, row: int, index: int) -> str:
        """The text of a cell."""
        return self.data[self.starts[row, index] : self.ends[row, index]].tobytes().decode()


_Scan = Callable[["_Room", np.ndarray, int, bool, int], tuple[int, int, int, int]]


class _Room:
    """The arrays that a scanner fills: of at most `size` records, with a row of cells per column."""

    def __init__(self, rows: int, size: int = MAX_RECORDS) -> None:
        size = max(1, min(size, _MAX_CELLS // max(rows, 1)))
        self.bounds, self.lines = np.empty((size, 2), np.int64), np.empty(size, np.int64)
        self.marks, self.counts = np.empty(size, np.uint8), np.zeros(size, np.int64)
        self.starts, self.ends = np.empty((rows, size), np.int32), np.empty((rows, size), np.int32)
        self.kinds = np.zeros((rows, size), np.uint8)

    @property
    def records(self) -> tokens.Records:
        """What the scanners call records."""
        return self.bounds, self.lines, self.marks, self.counts

    @property
    def cells(self) -> tokens.CellBounds:
        """What the scanners call cells."""
        return self.starts, self.ends, self.kinds


def csv_cells(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[Cells]:
    """Batches of the CSV file in `blocks`, whose first record is the header. Raises FileRejectedError."""
    stream = _Stream(blocks)
    header = _read_header(stream, spec)
    declared = {column.header: place for place, column in enumerate(spec.columns)}
    extra_names = tuple(name for name in header if name not in declared)
    rows = {**declared, **{name: len(declared) + index for index, name in enumerate(extra_names)}}
    place = np.array([rows[name] for name in header], np.int64)
    delimiter = ord(spec.delimiter)

    def scan(room: _Room, data: np.ndarray, begin: int, final: bool, line: int) -> tuple[int, int, int, int]:
        return tokens.scan_csv(
            data, begin, final, line, delimiter, place, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip

    for cells in _batches(stream, scan, len(rows)):
        cells.width, cells.extra_names = len(header), extra_names
        slow.patch_csv(cells, place, spec.delimiter)
        yield cells


def ndjson_cells(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[Cells]:
    """Batches of the NDJSON file in `blocks`. Raises FileRejectedError if it holds no record."""
    keys = [column.header.encode() for column in spec.columns]
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    key_bounds = np.cumsum([0, *map(len, keys)])

    def scan(room: _Room, data: np.ndarray, begin: int, final: bool, line: int) -> tuple[int, int, int, int]:
        return tokens.scan_ndjson(
            data, begin, final, line, key_bytes, key_bounds, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip

    empty = True
    for cells in _batches(_Stream(blocks), scan, len(keys)):
        empty = False
        slow.patch_ndjson(cells, spec)
        yield cells
    if empty:
        raise empty_file()


class _Stream:
    """What is left of the blocks: `data[position:]`, then the rest; a byte order mark at the beginning is skipped."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self.data, self.position, self.line, self.final = b"", 0, 1, False
        while len(self.data) < len(_BOM) and not self.final:
            self.more()
        if self.data.startswith(_BOM):
            self.position = len(_BOM)

    def more(self) -> None:
        """Add the next block, or learn that there is none (`final`)."""
        block = next(self._blocks, None)
        if block is None:
            self.final = True
        else:
            self.data, self.position = self.data[self.position :] + block, 0

    def skip_line(self) -> None:
        """Drop what is left of a line, however long it is."""
        self.position = len(self.data)
        while not self.final:
            self.more()
            newline = self.data.find(b"\n", self.position)
            if newline >= 0:
                self.position = newline + 1
                self.line += 1
                return
            self.position = len(self.data)


def _batches(stream: _Stream, scan: _Scan, rows: int) -> Iterator[Cells]:
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


def _cells_of(room: _Room, data: np.ndarray, count: int) -> Cells:
    marks = room.marks[:count]
    cells = Cells(
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


def _check_utf8(cells: Cells) -> None:
    """Mark the records that are no UTF-8, other than those already known as too long or unclosed."""
    try:
        cells.data[cells.bounds[0, 0] : cells.bounds[-1, 1]].tobytes().decode()
    except UnicodeDecodeError:
        for index in np.flatnonzero(~np.isin(cells.rules, (NUMBER["too_long"], NUMBER["unclosed_quote"]))):
            try:
                cells.record(int(index)).decode()
            except UnicodeDecodeError:
                cells.rules[index] = NUMBER["bad_utf8"]


def _read_header(stream: _Stream, spec: RecordSpec) -> list[str]:
    room, none = _Room(0, size=1), np.empty(0, np.int64)
    while True:
        data = np.frombuffer(stream.data, np.uint8)
        count, position, stream.line, _ = tokens.scan_csv(
            data, stream.position, stream.final, stream.line, ord(spec.delimiter), none, spec.max_record_bytes,
            room.records, room.cells,
        )  # fmt: skip
        stream.position = min(position, len(data))
        if count:
            break
        if stream.final:
            raise empty_file()
        stream.more()
    start, end = (int(bound) for bound in room.bounds[0])
    if room.marks[0] == tokens.BAD_QUOTE:
        # quoted names look so where another delimiter stands between them
        _check_delimiter(data[start:end].tobytes(), (), spec)
    if room.marks[0] not in (tokens.COUNT, tokens.OK, tokens.SLOW):
        raise FileRejectedError("bad_header", expected="a header of column names", found="a first record that is none")
    return _header_names(data[start:end].tobytes(), spec)


def _header_names(record: bytes, spec: RecordSpec) -> list[str]:
    if b"\r" in record.replace(b"\r\n", b""):
        # the whole file would be one header, and none of its records told
        expected = "lines that end in a newline, with or without a carriage return before it"
        raise FileRejectedError("bad_header", expected=expected, found="carriage returns alone")
    try:
        names = [name.decode().strip() for name in slow.split_csv(record, spec.delimiter)]
    except UnicodeDecodeError:
        raise FileRejectedError("bad_header", expected="a header of UTF-8 text", found="other bytes") from None
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FileRejectedError(
            "duplicate_header",
            expected="each column once in the header",
            found=f"{', '.join(map(repr, repeated))} again",
        )
    _check_delimiter(record, names, spec)
    return names


def _check_delimiter(record: bytes, names: Iterable[str], spec: RecordSpec) -> None:
    """Refuse a header none of whose names is declared, and in which another delimiter would give declared ones."""
    declared = {column.header for column in spec.columns}
    other = None if declared.intersection(names) else likely_delimiter(record, declared, spec.delimiter)
    if other is not None:
        raise wrong_delimiter(spec.delimiter, other)


def wrong_delimiter(declared: str, seeming: str) -> FileRejectedError:
    """The error of a file whose header fits another delimiter than the declared one."""
    return FileRejectedError(
        "wrong_delimiter",
        expected=f"columns separated by {declared!r}, as declared",
        found=f"a header that seems to be separated by {seeming!r}",
    )


def empty_file() -> FileRejectedError:
    """The error of a file without a record."""
    return FileRejectedError("empty_file", expected="a file with records", found="an empty one")


def check_lines(last_line: int, spec: RecordSpec) -> None:
    """Refuse a file that goes on beyond its greatest line."""
    if last_line > spec.max_lines:
        expected = f"at most {spec.max_lines} lines (`landing.max_lines`)"
        raise FileRejectedError("too_many_lines", expected=expected, found="more")
