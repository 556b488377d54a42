"""The files of a drop: listed by name, checked against the landing directory, with a checksum for the ledger.

Whatever is wrong with an entry (a directory, a link that leads out of the landing directory, a name that is no text)
does not stop the others: it is listed with the rule that it breaks, and becomes a row of the quarantine.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.sources import Source

_BLOCK = 1 << 20
_NO_BLOCKING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its writer


@dataclass(frozen=True, slots=True)
class LandingFile:
    """A file of a drop as it was listed.

    `path` is relative to the landing directory, `rank` the place by name among the drop's files (it is part of every
    row id). `checksum` is the SHA-256 of the bytes, `modified_ns` the time of the last change, `location` where it is
    read. Where `problem` names a rule, the entry cannot be read at all, `reason` says why, and the checksum is that
    of the reason.
    """

    seq_no: int
    path: str
    rank: int
    size: int
    checksum: str
    modified_ns: int
    location: str
    problem: str | None = None
    reason: str = ""


class UnusableFileError(Exception):
    """A file that cannot be read, with the rule that it breaks; becomes a row of the quarantine."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


def list_drop_files(root: str | Path, source: Source, seq_no: int) -> list[LandingFile]:
    """The files of a drop by name; none if nothing has landed. Names that start with `.` or `_` are not files of the
    drop.
    """
    landing = Path(root).resolve()
    folder, _, pattern = source.drops.path(source.landing.path, seq_no).rpartition("/")
    try:
        names = _names(landing, folder, pattern)
    except UnusableFileError as unusable:
        return [_unusable(seq_no, 0, folder, unusable)]
    return [_listed(landing, seq_no, rank, f"{folder}/{name}" if folder else name) for rank, name in enumerate(names)]


@contextmanager
def open_regular(place: str | Path) -> Iterator[int]:
    """A descriptor of the regular file at `place`, links not followed. Raises UnusableFileError."""
    try:
        descriptor = os.open(place, _NO_BLOCKING)
    except OSError as error:
        raise UnusableFileError("unreadable_file", f"expected a readable file, found: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableFileError("not_a_file", "expected a file, found a directory or a device")
        yield descriptor
    finally:
        os.close(descriptor)


def _names(landing: Path, folder: str, pattern: str) -> list[str]:
    """Names of the matching entries of a drop's folder, in the order of their bytes."""
    place = _inside(landing, folder)
    if not place.exists():
        return []
    if not place.is_dir():
        raise UnusableFileError("not_a_directory", "expected a directory with the drop's files, found something else")
    names = sorted((entry.name for entry in place.iterdir()), key=os.fsencode)
    return [name for name in names if name[0] not in "._" and fnmatch.fnmatchcase(name, pattern)]


def _inside(landing: Path, path: str) -> Path:
    """The place that `path` leads to, all links followed; refuses one outside `landing`."""
    place = Path(os.path.realpath(landing / path))
    if not place.is_relative_to(landing):
        raise UnusableFileError("outside_landing", "expected a place in the landing directory, found a link out of it")
    return place


def _listed(landing: Path, seq_no: int, rank: int, path: str) -> LandingFile:
    try:
        return _checked(landing, seq_no, rank, path)
    except UnusableFileError as unusable:
        return _unusable(seq_no, rank, path, unusable)


def _unusable(seq_no: int, rank: int, path: str, unusable: UnusableFileError) -> LandingFile:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    digest = hashlib.sha256(f"{unusable.rule}: {unusable.reason}".encode()).hexdigest()
    return LandingFile(seq_no, shown, rank, 0, digest, 0, "", unusable.rule, unusable.reason)


def _checked(landing: Path, seq_no: int, rank: int, path: str) -> LandingFile:
    if not path.isprintable():  # also the sign that bytes of the name are no UTF-8
        raise UnusableFileError("bad_name", "expected a file name of printable UTF-8 text, found other characters")
    place = _inside(landing, path)
    digest = hashlib.sha256()
    with open_regular(place) as descriptor:
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
        status = os.fstat(descriptor)
    return LandingFile(seq_no, path, rank, status.st_size, digest.hexdigest(), status.st_mtime_ns, str(place))
