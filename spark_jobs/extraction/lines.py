"""Lines of extracts in workers: writing them, reading them, and leaving some out. An extract is a gzip of lines of
NDJSON. An empty line is in the place of a row that is gone: so the lines after it keep their numbers, and their row
ids.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from spark_jobs.extraction.folder import LandingFolder
from spark_jobs.landing.opened import open_file
from spark_jobs.sources.extracts import ENDING

LINES_PER_FILE = 1_000_000
"""The most lines of a file, since one task lands a whole file."""
WRITTEN = "path STRING, hidden STRING, rows BIGINT, bytes BIGINT, checksum STRING"
"""The columns that describe a written file."""
_WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("hidden", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("checksum", pa.string()),
    ]
)
LINES = "path STRING, line BIGINT, text STRING"
_BATCH = 10_000


class _Counted(io.RawIOBase):
    """A file whose bytes are counted and hashed as they are written."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self.digest, self.bytes = raw, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, block: bytes) -> int:  # type: ignore[override]
        self._raw.write(block)
        self.digest.update(block)
        self.bytes += len(block)
        return len(block)


class WrittenExtract:
    """A file of an extract while it is written: hidden, until a commit makes it count."""

    def __init__(self, path: str, raw: IO[bytes], hidden: str) -> None:
        self.path, self.hidden, self.rows, self.lines = path, hidden, 0, 0
        self._counted = _Counted(raw)
        # level 1: faster than a database gives rows; no name and no time in the head: equal rows give equal bytes
        self._packed = gzip.GzipFile("", "wb", 1, self._counted, mtime=0)

    def add(self, line: bytes) -> None:
        """Add a row, which must have no line end in it."""
        self._packed.write(line)
        self._packed.write(b"\n")
        self.rows += 1
        self.lines += 1

    def skip(self, lines: int) -> None:
        """Add empty lines, without a row."""
        self._packed.write(b"\n" * lines)
        self.lines += lines

    def finish(self) -> pa.RecordBatch:
        """Close the compressed stream; returns the description of the file, with the columns `WRITTEN`."""
        self._packed.close()
        values = [self.path, self.hidden, self.rows, self._counted.bytes, self._counted.digest.hexdigest()]
        return pa.RecordBatch.from_arrays(
            [pa.array([v], f.type) for v, f in zip(values, _WRITTEN, strict=True)], schema=_WRITTEN
        )


@contextmanager
def writing(folder: LandingFolder, path: str) -> Iterator[WrittenExtract]:
    """A context with a file that will be at `path`. Each attempt writes it under a hidden name of its own."""
    parent, _, name = path.rpartition("/")
    hidden = f"{parent}/.{name}.{uuid.uuid4().hex[:16]}"
    with folder.new_file(hidden) as raw:
        yield WrittenExtract(path, raw, hidden)


def write_lines(
    batches: Iterable[pa.RecordBatch], *, folder: LandingFolder, prefix: str, most: int = LINES_PER_FILE
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over one partition: write the texts of the first column to files `<prefix>-00000…`, and describe
    them."""
    texts = (text for batch in batches for text in batch.column(0).to_pylist())
    number, text = 0, next(texts, None)
    while text is not None:
        with writing(folder, f"{prefix}-{number:05}{ENDING}") as file:
            while text is not None and file.lines < most:
                file.add(text.encode())
                text = next(texts, None)
            description = file.finish()
        yield description
        number += 1


def read_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the rows of the files in the columns `path` and `location`, without empty lines."""
    schema = pa.schema([("path", pa.string()), ("line", pa.int64()), ("text", pa.string())])
    for batch in batches:
        for path, location in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            numbers: list[int] = []
            texts: list[str] = []
            for number, line in _number_lines(location):
                if line:
                    numbers.append(number)
                    texts.append(line.decode("utf-8", "replace"))
                if len(texts) == _BATCH:
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([path] * len(texts)), pa.array(numbers), pa.array(texts)], schema=schema
                    )
                    numbers, texts = [], []
            arrays = [
                pa.array([path] * len(texts), pa.string()),
                pa.array(numbers, pa.int64()),
                pa.array(texts, pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def leave_out(batches: Iterable[pa.RecordBatch], *, folder: LandingFolder) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rewrite the files in the columns `path` and `location` with the lines in `lines` emptied, and
    describe them."""
    for batch in batches:
        for path, location, gone in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            going = set(gone)
            with writing(folder, path) as file:
                for number, line in _number_lines(location):
                    if line and number not in going:
                        file.add(line)
                    else:
                        file.skip(1)
                description = file.finish()
            yield description


def _number_lines(location: str) -> Iterator[tuple[int, bytes]]:
    with open_file(location) as opened, gzip.open(opened.raw) as lines:
        for number, line in enumerate(lines, 1):
            yield number, line.rstrip(b"\n")
