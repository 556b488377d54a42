"""A file of a landing directory, opened for reading: on this machine, or on any file system that Arrow knows.

A landing directory is a local path, or a URI: `s3a://bucket/folder` (or `s3://`), `hdfs://`, `gs://`, `abfss://`.
Workers read remote files themselves, block by block, so that no file has to fit into memory. Credentials and endpoints
come from the environment, as the file system's own clients take them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), or
from the URI's query (`s3a://bucket/folder?endpoint_override=…&scheme=http`).

A file system that does not answer fails the run, so that a retry finds its files. It never puts a file into quarantine.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.places import remote_files

_NO_BLOCKING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its writer


class UnusableFileError(Exception):
    """A file that cannot be read, with the rule that it breaks; becomes a row of the quarantine."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


class LandingUnreachable(TidemarkError):
    """The file system of a landing directory refuses, or does not answer. Fact: `place`, without credentials."""

    code = "landing_unreachable"


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open, seekable file. `status()` gives its present size in bytes and the time of its last change in
    nanoseconds; it raises UnusableFileError if the file is no longer there."""

    raw: IO[bytes]
    status: Callable[[], tuple[int, int]]


def is_remote(place: str | Path) -> bool:
    """True if a landing directory or file is a URI of another file system. `file:` is not, since a folder of this
    machine has its own checks."""
    return "://" in str(place) and not str(place).startswith("file:")


def local_path(place: str | Path) -> Path:
    """The local path of a place that is not remote."""
    text = str(place)
    return Path(urlsplit(text).path) if text.startswith("file:") else Path(text)


@contextmanager
def open_file(location: str | Path) -> Iterator[OpenedFile]:
    """The file at `location`, open for reading; see `LandingFile.location`. Raises UnusableFileError."""
    with _open_remote(str(location)) if is_remote(location) else _open_local(location) as opened:
        yield opened


def remote_folder(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it.

    Raises:
        LandingUnreachable: no file system of Arrow's takes the URI.
    """
    with reaching(uri):
        return remote_files(uri)


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Turn the errors of a remote file system in the block into LandingUnreachable."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        place = urlsplit(uri)
        address = urlunsplit(place._replace(netloc=place.netloc.rpartition("@")[2], query=""))
        raise LandingUnreachable(
            expected=f"an answer from {address}",
            found=" ".join(str(error).split())[:300],
            consequence="nothing was landed",
            next_step="check TIDEMARK_LANDING, the network and the credentials in the environment, then run again",
            place=address,
        ) from None


@contextmanager
def _open_local(place: str | Path) -> Iterator[OpenedFile]:
    """The regular file at a place, links not followed."""
    try:
        descriptor = os.open(place, _NO_BLOCKING)
    except OSError as error:
        raise UnusableFileError("unreadable_file", f"expected a readable file, found: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableFileError("not_a_file", "expected a file, found a directory or a device")
    with os.fdopen(descriptor, "rb", buffering=0) as raw:
        yield OpenedFile(raw, lambda: _local_status(descriptor))


def _local_status(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


@contextmanager
def _open_remote(uri: str) -> Iterator[OpenedFile]:
    system, path = remote_folder(uri)
    _remote_status(system, path, uri)
    with reaching(uri):
        raw = system.open_input_file(path)
    with raw:
        yield OpenedFile(cast("IO[bytes]", _Remote(raw, uri)), lambda: _remote_status(system, path, uri))


def _remote_status(system: fs.FileSystem, path: str, uri: str) -> tuple[int, int]:
    with reaching(uri):
        status = system.get_file_info(path)
    if status.type != fs.FileType.File:
        raise UnusableFileError("not_a_file", f"expected a file, found: {status.type.name}")
    return status.size, status.mtime_ns or 0


class _Remote(io.RawIOBase):
    """A remote file that raises no OSError if its file system fails: an OSError would mean that the file itself can't
    be read."""

    def __init__(self, raw: pa.NativeFile, uri: str) -> None:
        self._raw, self._uri = raw, uri

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with reaching(self._uri):
            return self._raw.read(None if size < 0 else size)

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()
