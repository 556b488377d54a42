"""The files of a drop: listed by name, checked against the landing directory, with a checksum for the ledger.

A bad entry (a directory, a link that leads out of the landing directory, a name that is no text) does not stop the
others. It is listed with the rule that it breaks, and becomes a row of the quarantine.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import os
import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from pyarrow import fs

from spark_jobs.landing.opened import UnusableFileError, is_remote, local_path, open_file, reaching, remote_folder
from spark_jobs.sources import Source
from spark_jobs.sources.drops import first_row_id
from spark_jobs.threads import map_requests

_BLOCK = 1 << 20
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class LandingFile:
    """A file of a drop as it was listed.

    `path` is relative to the landing directory, `first_row_id` the row id of line 1. `checksum` is the SHA-256 of the
    bytes, `modified_ns` the time of the last change, `location` the place from which it is read. If `problem` names a
    rule, the entry can't be read at all. Then `reason` has the cause, and the checksum is that of the reason.
    """

    seq_no: int
    path: str
    first_row_id: int
    size: int
    checksum: str
    modified_ns: int
    location: str
    problem: str | None = None
    reason: str = ""


class LandingDirectory(Protocol):
    """The directory in which drops land. Both methods raise UnusableFileError."""

    def entries(self, folder: str) -> list[str]:
        """Names of all entries of a folder, which is relative to the directory; none if it is not there."""

    def location(self, path: str) -> str:
        """The place from which the file at `path`, relative to the directory, is read."""


def list_drop_files(root: str | Path, source: Source, seq_no: int) -> list[LandingFile]:
    """The files of a drop by name; none if nothing has landed. Names that start with `.` or `_` are not files of the
    drop. `root` is a local path or a URI, see `opened`.

    Raises:
        LandingUnreachable: a remote landing directory does not answer.
    """
    landing = landing_directory(root)
    folder, _, pattern = source.drops.path(source.path, seq_no).rpartition("/")
    try:
        names = names_of(landing, folder, pattern)
    except UnusableFileError as unusable:
        return [_unusable(seq_no, folder, unusable)]
    paths = (f"{folder}/{name}" if folder else name for name in names)
    # each file is read for its checksum: a store's answers are waited for together, and hashing leaves Python's lock
    return list(map_requests(lambda path: _list_file(landing, seq_no, path), paths))


def has_drop_files(root: str | Path, source: Source, seq_no: int) -> bool:
    """True if `list_drop_files` would list anything; reads no file.

    Raises:
        LandingUnreachable: a remote landing directory does not answer.
    """
    folder, _, pattern = source.drops.path(source.path, seq_no).rpartition("/")
    try:
        return bool(names_of(landing_directory(root), folder, pattern))
    except UnusableFileError:
        return True


def drops_with_files(root: str | Path, source: Source, drops: range) -> set[int]:
    """The drops of a range for which `list_drop_files` would list anything. It reads no file, and lists each folder
    once, so that drops without files cost little however many they are.

    Raises:
        LandingUnreachable: a remote landing directory does not answer.
    """
    listing = _Listing(landing_directory(root), source.path.partition("{")[0].rpartition("/")[0])
    filled = set()
    for seq_no in drops:
        folder, _, pattern = source.drops.path(source.path, seq_no).rpartition("/")
        try:
            if listing.has(folder, pattern):
                filled.add(seq_no)
        except UnusableFileError:
            filled.add(seq_no)
    return filled


class _Listing:
    """A cache of folders' entries: each folder is listed once, and never if the folder above it has no such entry.
    Folders above `top` are not listed, since they may be large or closed to us."""

    def __init__(self, landing: LandingDirectory, top: str) -> None:
        self._landing = landing
        self._top = top
        self._names: dict[str, list[str]] = {}

    def has(self, folder: str, pattern: str) -> bool:
        """True if the folder has a drop's file of this pattern."""
        names = self._entries(folder)
        begin = _WILD.split(pattern, maxsplit=1)[0]
        at = bisect_left(names, begin)
        near = itertools.takewhile(lambda name: name.startswith(begin), itertools.islice(names, at, None))
        return any(is_drop_file(name, pattern) for name in near)

    def _entries(self, folder: str) -> list[str]:
        if folder not in self._names:
            if folder != self._top and self._is_missing(folder):
                return []
            self._names[folder] = sorted(self._landing.entries(folder))
        return self._names[folder]

    def _is_missing(self, folder: str) -> bool:
        above, _, name = folder.rpartition("/")
        try:
            names = self._entries(above)
        except UnusableFileError:
            return False  # listing the folder itself raises the error
        at = bisect_left(names, name)
        return at == len(names) or names[at] != name


def landing_directory(root: str | Path) -> LandingDirectory:
    """The landing directory at a local path or a URI."""
    return RemoteDirectory(str(root)) if is_remote(root) else LocalDirectory(local_path(root))


class LocalDirectory:
    """A folder of this machine. Links are followed as long as they stay in it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def entries(self, folder: str) -> list[str]:
        """See `LandingDirectory`."""
        place = self._inside(folder)
        if not place.exists():
            return []
        if not place.is_dir():
            raise _no_directory()
        return [entry.name for entry in place.iterdir()]

    def location(self, path: str) -> str:
        """See `LandingDirectory`."""
        return str(self._inside(path))

    def _inside(self, path: str) -> Path:
        """The place that `path` leads to, with all links followed; refuses a place outside the directory."""
        place = Path(os.path.realpath(self._root / path))
        if not place.is_relative_to(self._root):
            raise UnusableFileError(
                "outside_landing", "expected a place in the landing directory, found a link out of it"
            )
        return place


class RemoteDirectory:
    """A folder of another file system, named by a URI; it has no links."""

    def __init__(self, uri: str) -> None:
        self._uri = urlsplit(uri)

    def entries(self, folder: str) -> list[str]:
        """See `LandingDirectory`."""
        uri = self.location(folder)
        system, path = remote_folder(uri)
        with reaching(uri):
            kind = system.get_file_info(path).type
            if kind == fs.FileType.NotFound:
                return []
            if kind == fs.FileType.Directory:
                return [entry.base_name for entry in system.get_file_info(fs.FileSelector(path))]
        raise _no_directory()

    def location(self, path: str) -> str:
        """See `LandingDirectory`."""
        if ".." in path.split("/"):
            raise UnusableFileError("outside_landing", "expected a place in the landing directory, found `..`")
        return urlunsplit(self._uri._replace(path=f"{self._uri.path.rstrip('/')}/{quote(path)}"))


def _no_directory() -> UnusableFileError:
    return UnusableFileError("not_a_directory", "expected a directory with the drop's files, found something else")


def names_of(landing: LandingDirectory, folder: str, pattern: str) -> list[str]:
    """Names of the matching entries of a drop's folder, in the order of their bytes."""
    names = sorted(landing.entries(folder), key=os.fsencode)
    return [name for name in names if is_drop_file(name, pattern)]


def is_drop_file(name: str, pattern: str) -> bool:
    """True if an entry of a drop's folder is one of the drop's files, by its name."""
    return name[0] not in "._" and fnmatch.fnmatchcase(name, pattern)


def _list_file(landing: LandingDirectory, seq_no: int, path: str) -> LandingFile:
    try:
        return _check_file(landing, seq_no, path)
    except UnusableFileError as unusable:
        return _unusable(seq_no, path, unusable)


def _unusable(seq_no: int, path: str, unusable: UnusableFileError) -> LandingFile:
    readable_path = os.fsencode(path).decode("utf-8", "backslashreplace")
    digest = hashlib.sha256(f"{unusable.rule}: {unusable.reason}".encode()).hexdigest()
    return LandingFile(
        seq_no, readable_path, first_row_id(seq_no, readable_path), 0, digest, 0, "", unusable.rule, unusable.reason
    )


def _check_file(landing: LandingDirectory, seq_no: int, path: str) -> LandingFile:
    if not path.isprintable():  # bytes of a name that are no UTF-8 are not printable either
        raise UnusableFileError("bad_name", "expected a file name of printable UTF-8 text, found other characters")
    location = landing.location(path)
    digest = hashlib.sha256()
    with open_file(location) as opened:
        while block := opened.raw.read(_BLOCK):
            digest.update(block)
        size, modified_ns = opened.status()
    return LandingFile(seq_no, path, first_row_id(seq_no, path), size, digest.hexdigest(), modified_ns, location)
