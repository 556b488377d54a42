"""The archive of Java's classes: a file from which a JVM takes classes that another JVM has loaded and checked.

A lake server loads some 30,000 classes, which takes half of the processor time of its start. Java writes its loaded
classes into a file when it ends (JEP 350), and maps that file when it starts again. The file fits one Java and one
class path, including the times of the jars. Java checks whether the file fits, and ignores it otherwise. So the file's
name is a hash of both, and a lake server that has no archive writes one. Nothing depends on the archive (decision
0093).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

_KEPT = 3
"""The number of archives that a folder keeps, 270 MB each: for several class paths (S3, lineage), and older jars."""

_ABANDONED_S = 3600.0
"""The seconds without a write after which a draft counts as left behind by a killed server."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Options that keep Java from reporting on its standard output that an archive does not fit."""

_COMPRESSED_GB = 32
"""The heap in GiB from which on Java's pointers are larger, so that an archive for smaller ones does not fit."""


def class_archive(folders: Sequence[Path], java: Path, jars: Iterable[Path], heap: str) -> Path | None:
    """The path of the archive for this Java, with these jars before Spark's own. The file may not exist yet.

    It is in the first of the folders that has it, else in the first where it can be written; None if there is neither.
    Files and folders that users other than this one and root can write are ignored, since Java would run the content.

    Args:
        heap: the heap of the JVM, as Java takes it: `2g`.
    """
    places = [folder / f"{_hash(java, jars, heap)}.jsa" for folder in folders]
    for place in places:
        if _is_ours(place.parent) and _is_ours(place) and os.access(place, os.R_OK):
            return place
    return next((place for place in places if _can_be_written(place)), None)


def draft_of(archive: Path, home: Path) -> Path:
    """The draft of the archive that the lake server of a home writes. It is in the archive's folder, since moving a
    file at once needs a single file system."""
    return archive.with_name(f"{archive.stem}-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}.draft")


def options_to_read(archive: Path | None) -> str:
    """Java's options that take classes from the archive; empty if there is none. A damaged archive is removed, since
    Java would run its content, or crash."""
    if archive is None or not archive.exists():
        return ""
    if not _is_whole(archive):
        _remove(archive)
        return ""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'


def options_to_write(archive: Path | None, home: Path, java: Path, options: str) -> str:
    """Java's options that write the classes to a draft when the JVM ends.

    Empty if the archive exists, or if this Java does not start with them and the user's own `options`."""
    if archive is None or archive.exists():
        return ""
    draft = draft_of(archive, home)
    # the disk may be full, or the folder removed
    with suppress(OSError):
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        # a Java that has no archive of its own classes, or whose options forbid archives, refuses to start
        command = (str(java), *shlex.split(options), f"-XX:ArchiveClassesAtExit={draft}", "-version")
        answer = subprocess.run(command, capture_output=True, check=False, timeout=60)
        draft.unlink(missing_ok=True)
        if answer.returncode == 0:
            return f'"-XX:ArchiveClassesAtExit={draft}" {_QUIET}'
    return ""


def keep(archive: Path | None, home: Path) -> None:
    """Make the finished draft of a home's JVM the archive. Remove abandoned drafts, and all archives but the `_KEPT`
    that were used last."""
    if archive is None:
        return
    # a failure only makes the next start slower
    with suppress(OSError):
        draft = draft_of(archive, home)
        if draft.exists():
            _sum_file(archive).write_text(_sum(draft))
            draft.replace(archive)
        for other in archive.parent.glob("*.draft"):
            if other.stat().st_mtime < time.time() - _ABANDONED_S:
                other.unlink(missing_ok=True)
        newest_first = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for older in newest_first[_KEPT:]:
            _remove(older)


def note_use(archive: Path | None) -> None:
    """Mark the archive as used now, so that it is the last to be removed."""
    if archive is not None:
        # another user may own the archive
        with suppress(OSError):
            os.utime(archive)


def _sum_file(archive: Path) -> Path:
    return archive.with_suffix(".crc32")


def _sum(file: Path) -> str:
    """The CRC-32 of a file in hexadecimal digits; takes 0.07 s for 270 MB."""
    total = 0
    with file.open("rb") as content:
        while part := content.read(1 << 22):
            total = zlib.crc32(part, total)
    return f"{total:08x}"


def _is_whole(archive: Path) -> bool:
    try:
        return _sum(archive) == _sum_file(archive).read_text()
    except OSError:
        return False


def _remove(archive: Path) -> None:
    for file in (archive, _sum_file(archive)):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _hash(java: Path, jars: Iterable[Path], heap: str) -> str:
    spark_jars = Path(pyspark.__file__).parent / "jars"
    # in the folder's own order, in which Java expands `*`; under spark-submit, whose JVM already runs, no such folder
    listed = [Path(entry.path) for entry in os.scandir(spark_jars)] if spark_jars.is_dir() else []
    hashed = hashlib.sha256(f"{_is_large(heap)}\n".encode())
    for file in (java.resolve(), *jars, *listed):
        with suppress(OSError):
            status = file.stat()
            hashed.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return hashed.hexdigest()[:16]


def _is_large(heap: str) -> bool:
    units = {"k": 2**20, "m": 2**10, "g": 1, "t": 1 / 2**10}
    unit = units.get(heap[-1:].lower(), 2**30)
    return float(heap.rstrip("kmgtKMGT") or 0) / unit >= _COMPRESSED_GB


def _is_ours(path: Path) -> bool:
    """True if the file or folder exists, and only this user or root can have written it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _can_be_written(file: Path) -> bool:
    """True if the file does not exist, and this user can create it in a folder that no other user can write."""
    folder = file.parent
    try:
        if file.exists():
            return False
        if folder.exists():
            return _is_ours(folder) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False
    return folder.parent.is_dir() and os.access(folder.parent, os.W_OK | os.X_OK)
