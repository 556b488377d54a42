"""The landing directory as extraction writes it: on this machine, or on any file system that Arrow knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote, urlsplit, urlunsplit

from pyarrow import fs

from spark_jobs.landing.opened import is_remote, local_path, reaching, remote_folder


@dataclass(frozen=True)
class LandingFolder:
    """A landing directory by its path or URI; all paths are relative to it."""

    root: str

    def below(self, path: str) -> LandingFolder:
        """A folder in this one, as a landing directory of its own."""
        return LandingFolder(self.location(path))

    def location(self, path: str) -> str:
        """The place from which a file is read: a path or a URI."""
        if not is_remote(self.root):
            return str(local_path(self.root) / path)
        parts = urlsplit(self.root)
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(path)}"))

    @contextmanager
    def new_file(self, path: str) -> Iterator[IO[bytes]]:
        """A new file, open for writing; on a local disk it is synced when the block ends."""
        if is_remote(self.root):
            system, place = self._remote(path)
            with reaching(self.root), system.open_output_stream(place) as stream:
                yield cast("IO[bytes]", stream)
            return
        local = Path(self.location(path))
        local.parent.mkdir(parents=True, exist_ok=True)
        with local.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def move(self, path: str, to: str) -> bool:
        """Give a file another name, and replace any file of that name; returns false if there is no such file."""
        if is_remote(self.root):
            system, place = self._remote(path)
            with reaching(self.root):
                if system.get_file_info(place).type != fs.FileType.File:
                    return False
                system.move(place, self._remote(to)[1])
            return True
        try:
            Path(self.location(path)).replace(self.location(to))
        except FileNotFoundError:
            return False
        _sync(Path(self.location(to)).parent)
        return True

    def has(self, path: str) -> bool:
        """True if there is such a file."""
        system, place = self._any(path)
        with reaching(self.root):
            return bool(system.get_file_info(place).type == fs.FileType.File)

    def hidden_files(self, folder: str) -> list[str]:
        """The paths of the files in a folder whose names begin with a dot: files that were being written."""
        system, place = self._any(folder)
        with reaching(self.root):
            entries = system.get_file_info(fs.FileSelector(place, allow_not_found=True))
        names = [e.base_name for e in entries if e.type == fs.FileType.File and e.base_name.startswith(".")]
        return [f"{folder}/{name}" for name in names]

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""
        system, place = self._any(path)
        with reaching(self.root):
            kind = system.get_file_info(place).type
            if kind == fs.FileType.Directory:
                system.delete_dir(place)
            elif kind == fs.FileType.File:
                system.delete_file(place)

    def _any(self, path: str) -> tuple[Any, str]:
        return self._remote(path) if is_remote(self.root) else (fs.LocalFileSystem(), self.location(path))

    def _remote(self, path: str) -> tuple[Any, str]:
        system, place = remote_folder(self.root)
        return system, f"{place.rstrip('/')}/{path}"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
