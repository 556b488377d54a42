"""Reading one file in a Python worker: once, in bounded memory, into its rows or its rejection.

A file that can't be read to its end gives a single row, without a line. So its rows wait (in memory, then on disk)
until the last one is read and the checksum is that of the listing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from spark_jobs.engine.records import (
    FileRejectedError,
    RecordSpec,
    as_utf8,
    read_csv,
    read_json,
    read_ndjson,
    read_parquet,
)
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.opened import UnusableFileError, open_file
from spark_jobs.landing.parsers import parse
from spark_jobs.plugins.code import Format, Parser

BLOCK_BYTES = 1 << 22
"""Bytes that are read at a time. 4 MiB have some 40,000 records: smaller blocks cost calls, larger ones only memory."""
WAITING_BYTES = 64 << 20
"""Bytes of a file's rows that wait in memory; further rows wait on the worker's disk."""
EXPANDED_BYTES = 256 << 20
"""Bytes that any file may take once decompressed, however small it is."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The first bytes of files that are compressed with gzip and zstd, whatever their names are."""
FILE_FIELDS = (
    pa.field("seq_no", pa.int64()),
    pa.field("file", pa.string()),
    pa.field("line", pa.int64()),
    pa.field("row_id", pa.int64()),
)


def output_schema(spec: RecordSpec) -> pa.Schema:
    """The schema of the rows of a file: its place, the row's id, then the columns of `spec.schema()`."""
    return pa.schema([*FILE_FIELDS, *(field for field in spec.schema() if field.name != "line")])


def read_listed_files(
    batches: Iterable[pa.RecordBatch], *, files: tuple[LandingFile, ...], form: Format, spec: RecordSpec
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the rows of the files whose places in `files` are the column `id` of `batches`."""
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield from read_file(files[place], form, spec)


def read_file(file: LandingFile, form: Format, spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The rows of one file as batches of `output_schema(spec)`, or the single row that rejects it."""
    with _Waiting(spec.schema()) as waiting:
        try:
            if file.problem:
                raise UnusableFileError(file.problem, file.reason)
            for batch in _batches(file, form, spec):
                waiting.add(batch)
        except (FileRejectedError, UnusableFileError) as refused:
            yield _add_places(_rejection(spec, refused.rule, refused.reason), file)
            return
        for batch in waiting:
            yield _add_places(batch, file)


def first_rows(file: LandingFile, form: Format, spec: RecordSpec) -> pa.RecordBatch | None:
    """Some of a file's first records, even if the file is rejected later; None if there are none."""
    try:
        return None if file.problem else next(iter(_batches(file, form, spec)), None)
    except (FileRejectedError, UnusableFileError):
        return None


def _batches(file: LandingFile, form: Format, spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    spec = spec.of_drop(file.seq_no)
    with open_file(file.location) as opened:
        if opened.status() != (file.size, file.modified_ns):
            raise _changed_file_error()
        if form == "parquet":
            expansion = Expansion(file.size, spec.max_expansion)
            for batch in read_parquet(opened.raw, spec):
                expansion.add(batch.nbytes)
                yield batch
            checksum = _checksum(opened.raw)
        else:
            hashed = Hashed(opened.raw)
            blocks = plain_blocks(hashed, Expansion(file.size, spec.max_expansion))
            blocks = parse(form, blocks) if isinstance(form, Parser) else as_utf8(blocks, spec.encoding)
            read = {"csv": read_csv, "json": read_json}.get(str(form), read_ndjson)
            try:
                yield from read(blocks, spec)
            except FileRejectedError as refused:
                if refused.rule != "empty_file" or not spec.may_be_empty:
                    raise
            checksum = hashed.finish()
    if checksum != file.checksum:
        raise _changed_file_error()


def _changed_file_error() -> UnusableFileError:
    return UnusableFileError("changed_file", "expected the file as it was listed, found it changed while it was read")


class Hashed(io.RawIOBase):
    """A file that is hashed by SHA-256 while its bytes are read."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._digest = raw, hashlib.sha256()
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """The next bytes, at most `size`, which `read` gives again."""
        self._ahead = self.read(size)
        return self._ahead

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`."""
        if self._ahead:
            block, self._ahead = self._ahead[:size], self._ahead[size:]
            return block
        block = self._raw.read(size)
        self._digest.update(block)
        return block

    def finish(self) -> str:
        """The checksum of all bytes, also of those that nobody read."""
        while self.read(BLOCK_BYTES):
            pass
        return self._digest.hexdigest()


class Expansion:
    """A count of a file's bytes once decompressed, with a limit that follows from the file's size."""

    def __init__(self, size: int, times: int) -> None:
        self._most, self._times, self._bytes = max(EXPANDED_BYTES, size * times), times, 0

    def add(self, count: int) -> None:
        """Count more bytes. Raises UnusableFileError if they are too many."""
        self._bytes += count
        if self._bytes > self._most:
            expected = f"at most {self._most} bytes once decompressed: {EXPANDED_BYTES}, or {self._times} times the"
            raise UnusableFileError(
                "expands_too_far", f"expected {expected} file's size (`landing.max_expansion`), found more"
            )


def plain_blocks(file: Hashed, expansion: Expansion) -> Iterator[bytes]:
    """The file's bytes, decompressed if it begins like gzip or zstd."""
    start = file.peek(4)
    codec = "gzip" if start.startswith(GZIP) else "zstd" if start == ZSTD else None
    source: Any = file
    if codec == "gzip":
        # Python's gzip, like gzip(1), takes zeros behind the last member for padding; Arrow does not
        source = gzip.GzipFile(fileobj=file)
    elif codec == "zstd":
        source = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    while True:
        try:
            block = source.read(BLOCK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            short = isinstance(error, EOFError) or "runcated" in str(error)
            rule = "truncated_file" if short else "unreadable_file"
            damage = "its end missing" if short else "bytes that are none"
            raise UnusableFileError(rule, f"expected a whole {codec} file, found {damage}") from None
        if not block:
            return
        if codec:
            expansion.add(len(block))
        yield block


def _checksum(raw: IO[bytes]) -> str:
    raw.seek(0)
    hashed = Hashed(raw)
    return hashed.finish()


def _rejection(spec: RecordSpec, rule: str, reason: str) -> pa.RecordBatch:
    schema = spec.schema()
    values = {"rule": rule, "reason": reason}
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(field.name)], field.type) for field in schema], schema=schema
    )


def _add_places(batch: pa.RecordBatch, file: LandingFile) -> pa.RecordBatch:
    """The batch with its file's place and its rows' ids in front."""
    count, lines = batch.num_rows, batch.column(0)
    front = [
        pa.repeat(pa.scalar(file.seq_no, pa.int64()), count),
        pa.repeat(pa.scalar(file.path, pa.string()), count),
        lines,
        pa.compute.add(lines, pa.scalar(file.first_row_id - 1, pa.int64())),
    ]
    schema = pa.schema([*FILE_FIELDS, *list(batch.schema)[1:]])
    return pa.RecordBatch.from_arrays([*front, *batch.columns[1:]], schema=schema)


class _Waiting:
    """Batches in their order; beyond `WAITING_BYTES` they are written to a temporary file, which is removed on exit."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._in_memory, self._bytes = schema, list[pa.RecordBatch](), 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep one more batch."""
        self._bytes += batch.nbytes
        if self._writer is None and self._bytes <= WAITING_BYTES:
            self._in_memory.append(batch)
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._in_memory
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
