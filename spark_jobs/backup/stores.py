"""Places that store files by name: a folder of this machine or a bucket, read and written in pieces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from spark_jobs.failures import NO_ROOM, DiskFull, StoreUnreachable
from spark_jobs.s3 import environment_options, with_scheme
from spark_jobs.storage.delta.places import LakeFolder, TableHandle, remote_files, sizes_below

PIECE_BYTES = 4 << 20
"""The bytes that are read at once; a smaller file is read by one request."""


@dataclass(frozen=True)
class Store:
    """The files below a place, by their paths in it. Credentials of S3 come from the environment (`AWS_…`)."""

    place: str

    @classmethod
    def at(cls, place: str | Path) -> Store:
        """The store at a place: a folder, or a URI such as s3a://bucket/folder."""
        text = str(place).rstrip("/")
        if "://" in text:
            return cls(with_scheme(text, "s3"))
        return cls(os.path.abspath(Path(text.removeprefix("file:")).expanduser()))  # noqa: PTH100

    @property
    def is_local(self) -> bool:
        """True if the place is a folder of this machine."""
        return "://" not in self.place

    @property
    def folder(self) -> LakeFolder:
        """The place as the folder of a lake."""
        return LakeFolder(self.place, environment_options(self.place))

    def table(self, path: str) -> TableHandle:
        """The handle of the table whose folder has this path."""
        return TableHandle(f"{self.place}/{path}", self.folder.options)

    def has_table(self, path: str) -> bool:
        """True if the folder of this path has a table."""
        return DeltaTable.is_deltatable(f"{self.place}/{path}", dict(self.folder.options) or None)

    @cached_property
    def files(self) -> fs.FileSystem:
        """The place as a file system of Arrow, with paths relative to it."""
        system, path = (fs.LocalFileSystem(), self.place) if self.is_local else remote_files(self.place)
        return fs.SubTreeFileSystem(path, system)

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of all files below a folder, by path; empty if the folder does not exist."""
        with self._reaching():
            return sizes_below(self.files, folder)

    def read(self, path: str) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        return b"".join(self.pieces(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces. Raises FileNotFoundError."""
        with self._reaching(), self.files.open_input_stream(path, compression=None) as opened:
            while piece := opened.read(PIECE_BYTES):
                yield piece

    def checksum(self, path: str) -> str:
        """The SHA-256 of a file. Raises FileNotFoundError."""
        digest = hashlib.sha256()
        for piece in self.pieces(path):
            digest.update(piece)
        return digest.hexdigest()

    def write(self, path: str, pieces: Iterator[bytes]) -> str:
        """Write a file; returns its SHA-256. A failed write leaves no partial file under this name."""
        digest = hashlib.sha256()
        with self._reaching():
            if self.is_local:
                Path(self.place, path).parent.mkdir(parents=True, exist_ok=True)
            part = f"{path}.part" if self.is_local else path
            with self.files.open_output_stream(part, compression=None) as out:
                for piece in pieces:
                    digest.update(piece)
                    out.write(piece)
            if self.is_local:
                Path(self.place, part).replace(Path(self.place, path))
        return digest.hexdigest()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            if self.is_local and isinstance(error, OSError) and error.errno in NO_ROOM:
                raise DiskFull(
                    expected=f"room at {self.place}",
                    found="a full disk",
                    consequence="the copy is not whole; what was copied stays, and is not copied again",
                    next_step="free some space, then the same command again",
                    place=self.place,
                ) from None
            raise StoreUnreachable(
                expected=f"to read and write {self.place}",
                found=" ".join(str(error).split())[:300],
                consequence="the set is not whole; what was copied stays, and is not copied again",
                next_step="check the place and the credentials (AWS_…), then the same command again",
                place=self.place,
            ) from None


def as_pieces(content: bytes) -> Iterator[bytes]:
    """Yield content that is in memory as one piece, for `Store.write`."""
    yield content


def plain(value: Any) -> Any:
    """A value of a record as a JSON value: times as ISO texts."""
    return value.isoformat() if hasattr(value, "isoformat") else value
