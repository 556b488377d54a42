"""The archive of Java's classes: what one JVM has loaded and checked, another one takes from a file.

A lake server loads some 30,000 classes, and half of the processor time of its start goes there. Java writes those that
it has loaded into a file when it ends (JEP 350), and maps the file when it starts again. The file fits one Java and one
class path, jars and their times included; Java looks whether it does, and does without it otherwise. So the file's name
is a hash of both, a lake server without one leaves one behind, and nothing depends on its being there (decision 0093).
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
"""Archives that a folder keeps, of 270 MB each: of several class paths (a lake on S3, lineage), and of older jars."""

_ABANDONED_S = 3600.0
"""A draft that nobody has written to for so long is of a server that was killed."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java says on its standard output that an archive does not fit; that is no news to anybody."""

_COMPRESSED_GB = 32
"""From this heap on Java has pointers of another size, and an archive of the other size does not fit."""


def class_archive(folders: Sequence[Path], java: Path, jars: Iterable[Path], heap: str) -> Path | None:
    """The file of the archive for this Java, with these jars before Spark's own; it may not be there yet.

    It is in the first of the folders where it can be read, else where it could be written; None if that is nowhere.
    What others than this user and root could have written counts for neither, as Java would run it.

    Args:
        heap: of the JVM, as Java takes it: `2g`.
    """
    places = [folder / f"{_hash(java, jars, heap)}.jsa" for folder in folders]
    for place in places:
        if _is_ours(place.parent) and _is_ours(place) and os.access(place, os.R_OK):
            return place
    return next((place for place in places if _can_be_written(place)), None)


def draft_of(archive: Path, home: Path) -> Path:
    """What the lake server of a home writes, in the archive's folder: a file moves within a file system alone."""
    return archive.with_name(f"{archive.stem}-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}.draft")


def reading(archive: Path | None) -> str:
    """Java's options that take classes from the archive, where it is there. One that a disk has damaged is removed:
    Java would run what stands there, or crash."""
    if archive is None or not archive.exists():
        return ""
    if not _is_whole(archive):
        _remove(archive)
        return ""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'


def writing(archive: Path | None, home: Path, java: Path, options: str) -> str:
    """Java's options that write the classes to a draft when the JVM ends; none where the archive is there, or where
    this Java, with these options of somebody's own, does not start with them."""
    if archive is None or archive.exists():
        return ""
    draft = draft_of(archive, home)
    # a full disk, or a folder that went
    with suppress(OSError):
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        # a Java without an archive of its own classes, or told to share none, refuses to start
        command = (str(java), *shlex.split(options), f"-XX:ArchiveClassesAtExit={draft}", "-version")
        answer = subprocess.run(command, capture_output=True, check=False, timeout=60)
        draft.unlink(missing_ok=True)
        if answer.returncode == 0:
            return f'"-XX:ArchiveClassesAtExit={draft}" {_QUIET}'
    return ""


def keep(archive: Path | None, home: Path) -> None:
    """Let the draft that the JVM of a home has finished be the archive; remove drafts that were abandoned, and the
    archives that were used longest ago."""
    if archive is None:
        return
    # without it the next start takes longer
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
    """Let the archive be the last that is removed."""
    if archive is not None:
        # of an installation that others made
        with suppress(OSError):
            os.utime(archive)


def _sum_file(archive: Path) -> Path:
    return archive.with_suffix(".crc32")


def _sum(file: Path) -> str:
    """Of a file's bytes: 0.07 s for 270 MB."""
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
    # in the order of the folder, as Java expands `*`; no folder under spark-submit, whose JVM runs already
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
    """Whether a file or folder is there, and nobody else could have written it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _can_be_written(file: Path) -> bool:
    """Whether there is no such file, and this user, and nobody else, can write one."""
    folder = file.parent
    try:
        if file.exists():
            return False
        if folder.exists():
            return _is_ours(folder) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False
    return folder.parent.is_dir() and os.access(folder.parent, os.W_OK | os.X_OK)
