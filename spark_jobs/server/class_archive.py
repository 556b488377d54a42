"""The archive of Java's classes: what one JVM has loaded and checked, another one takes from a file.

A lake server loads some 30,000 classes, and half of the processor time of its start goes there. Java writes those that
it has loaded into a file when it ends (JEP 350), and maps the file when it starts again. The file fits one Java and one
class path, jars and their times included; Java looks whether it does, and does without it otherwise. So the file's name
is a hash of both, a lake server without one leaves one behind, and nothing depends on its being there (decision 0093).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyspark

_KEPT = 3
"""Archives that are kept, of 270 MB each: of several class paths (a lake on S3, lineage), and of what was updated."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java says on its standard output that an archive does not fit; that is no news to anybody."""


def class_archive(folder: Path, java: Path, jars: Iterable[Path]) -> Path:
    """The file of the archive for this Java and these jars before Spark's own, whether it is there or not."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    # in the order of the folder, as Java expands `*`; no folder under spark-submit, whose JVM runs already
    listed = [Path(entry.path) for entry in os.scandir(spark_jars)] if spark_jars.is_dir() else []
    name = hashlib.sha256()
    for file in (java.resolve(), *jars, *listed):
        with suppress(FileNotFoundError):
            status = file.stat()
            name.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"{name.hexdigest()[:16]}.jsa"


def draft_of(archive: Path, home: Path) -> Path:
    """What the lake server of a home writes, in the archive's folder: a file moves within a file system alone."""
    return archive.with_name(f"{archive.stem}-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}.draft")


def reading(archive: Path) -> str:
    """Java's options that take classes from the archive, where it is there."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if archive.exists() else ""


def writing(archive: Path, draft: Path) -> str:
    """Java's options that write the classes to a draft when the JVM ends; none where the archive is there, or its
    folder is not to be written."""
    if archive.exists():
        return ""
    # of an installation that others made, or a disk without room
    with suppress(OSError):
        archive.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
    writes = archive.parent.is_dir() and os.access(archive.parent, os.W_OK)
    return f'"-XX:ArchiveClassesAtExit={draft}" {_QUIET}' if writes else ""


def keep(archive: Path, draft: Path) -> None:
    """Let a draft that a JVM has finished be the archive; remove drafts of others, and the oldest archives."""
    # without it the next start takes longer
    with suppress(OSError):
        draft.replace(archive)
        for other in archive.parent.glob(f"{archive.stem}-*.draft"):
            other.unlink(missing_ok=True)
        newest_first = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for older in newest_first[_KEPT:]:
            older.unlink(missing_ok=True)
