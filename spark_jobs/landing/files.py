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
    return [_listed(landing, seq_no, rank, path) for rank, path in enumerate(_entries(landing, folder, pattern))]


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


def _entries(landing: Path, folder: str, pattern: str) -> Iterator[str]:
    """Paths below `landing` of the matching entries; the folder itself where it is none of the landing directory's."""
    place = landing / folder
    if not os.path.lexists(place):
        return
    if not place.is_dir() or not place.resolve().is_relative_to(landing):
        yield folder
        return
    for name in sorted((entry.name for entry in place.iterdir()), key=os.fsencode):
        if name[0] not in "._" and fnmatch.fnmatchcase(name, pattern):
            yield f"{folder}/{name}" if folder else name


def _listed(landing: Path, seq_no: int, rank: int, path: str) -> LandingFile:
    try:
        return _checked(landing, seq_no, rank, path)
    except UnusableFileError as unusable:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        digest = hashlib.sha256(f"{unusable.rule}: {unusable.reason}".encode()).hexdigest()
        return LandingFile(seq_no, shown, rank, 0, digest, 0, "", unusable.rule, unusable.reason)


def _checked(landing: Path, seq_no: int, rank: int, path: str) -> LandingFile:
    if not path.isprintable():
        raise UnusableFileError("bad_name", "expected a file name of printable UTF-8 text, found other characters")
    place = (landing / path).resolve()
    if not place.is_relative_to(landing):
        raise UnusableFileError("outside_landing", "expected a file of the landing directory, found a link out of it")
    digest = hashlib.sha256()
    with open_regular(place) as descriptor:
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
        status = os.fstat(descriptor)
    return LandingFile(seq_no, path, rank, status.st_size, digest.hexdigest(), status.st_mtime_ns, str(place))
