"""Failures that no module foresaw, as errors that say what happened and what to do; their tracebacks go to a file.

A full disk, a worker or a JVM that was killed, a damaged file: what Python, Spark and gRPC raise of them runs to pages,
and none of them says what it means for a run.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError, conditions_in
from spark_jobs.memory import MORE_MEMORY, MemoryShort

_AS_BEFORE = "published tables read as before; what a run had written beyond them does not count"
_SENTENCE = 300
"""Characters of what was raised that an error repeats."""


class DiskFull(TidemarkError):
    """There was no room for what had to be written. Facts: `log`."""

    code = "disk_full"


class DiskFailed(TidemarkError):
    """A file system refused to write or to read for another reason than a lack of space. Facts: `log`."""

    code = "disk_failed"


class MemoryExhausted(TidemarkError):
    """The JVM or a process had not enough memory. Facts: `log`."""

    code = "memory_exhausted"


class WorkerDied(TidemarkError):
    """A worker ended in the middle of a task, each time it was tried. Facts: `log`."""

    code = "worker_died"


class FileDamaged(TidemarkError):
    """A file of the lake is not there, or is not what its table says. Facts: `log`."""

    code = "file_damaged"


class ScratchLost(TidemarkError):
    """The folder that Spark keeps blocks in was removed while it runs. Facts: `log`."""

    code = "scratch_lost"


class CatalogLost(TidemarkError):
    """The folder of the embedded catalog was removed while the lake server runs. Facts: `log`."""

    code = "catalog_lost"


class Unexpected(TidemarkError):
    """Something that nobody foresaw. Facts: `log`."""

    code = "unexpected"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The error for a kind of failure, what it says, and how the failure is told: by the number of an error of the
    operating system, by a condition of Spark or Delta, or by what a program says that names neither."""

    error: type[TidemarkError]
    expected: str
    found: str
    next_step: str
    numbers: tuple[int, ...] = ()
    conditions: frozenset[str] = frozenset()
    texts: re.Pattern[str] | None = None

    def is_told_by(self, text: str) -> bool:
        """Whether a text, of one line or many, tells of such a failure. Java and Rust repeat the system's own words for
        the number of an error."""
        if self.conditions & conditions_in(text) or any(os.strerror(number) in text for number in self.numbers):
            return True
        return self.texts is not None and self.texts.search(text) is not None


_KINDS = [
    _Kind(
        DiskFull,
        "room on the disks of the home, the lake and the scratch folder",
        "a full disk",
        "free some space (`tidemark doctor` says how much there is) and do the same again: a run goes on where it was",
        numbers=(errno.ENOSPC, errno.EDQUOT),
    ),
    _Kind(
        DiskFailed,
        "the disks of the home, the lake and the scratch folder to take what is written",
        "one that refuses",
        "see what the kernel says of it (`dmesg`), how it is mounted and how large files may be (`ulimit -f`); then do"
        " the same again: a run goes on where it was",
        numbers=(errno.EFBIG, errno.EIO, errno.EROFS),
    ),
    _Kind(
        MemoryExhausted,
        "enough memory for the work",
        "none left",
        "give the JVM more (TIDEMARK_HEAP), or run fewer drops at once; then `tidemark up`, and do the same again",
        numbers=(errno.ENOMEM,),
        # Spark Connect gives the message of Java's error, and not always its class
        texts=re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit exceeded"),
    ),
    _Kind(
        MemoryShort,
        "memory for the rows of each task",
        "less, as a task saw before it took it",
        MORE_MEMORY,
        texts=re.compile(r"\bmemory_short: expected"),
    ),
    _Kind(
        WorkerDied,
        "each worker to live as long as its task",
        "one that ended in the middle of it, however often it was tried",
        "see in the kernel's log whether it was killed for its memory (`dmesg`), make `memory.max_bytes` of the source"
        " smaller if so, and do the same again",
        texts=re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure"),
    ),
    _Kind(
        ScratchLost,
        "Spark's scratch folder (`tmp` of the home) to stay while the lake server runs",
        "that somebody has removed it",
        "the server is started anew by itself, and `tidemark up` waits until it serves; then do the same again",
        texts=re.compile(
            r"(NoSuchFile|FileNotFound|Failed to create|No such file).*/(blockmgr|spark)-[0-9a-f]{8}-", re.DOTALL
        ),
    ),
    _Kind(
        CatalogLost,
        "the catalog (`metastore` of the home) to stay while the lake server runs",
        "that somebody has removed it, or a part of it",
        "the server is started anew by itself, and makes the names again from the lake; `tidemark up` waits until it"
        " serves; then do the same again",
        # Hive passes on what Derby says of a file of its own that is away, or its state alone
        texts=re.compile(r"MetaException.*Container \S+ (not found|cannot be opened)|ERROR 40XD2", re.DOTALL),
    ),
    _Kind(
        FileDamaged,
        "each file of the lake to be there, and whole",
        "one that is not",
        "`tidemark doctor --deep` names it; restore it from a backup",
        conditions=frozenset(
            {"FAILED_READ_FILE", "DELTA_FILE_NOT_FOUND", "DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS"}
            | {"DELTA_STATE_RECOVER_ERROR", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}
        ),
        # what Spark's reader of Parquet says, and what pyarrow does
        texts=re.compile(r"is not a Parquet file|Parquet magic bytes not found"),
    ),
]


def explained(error: BaseException, settings: Settings) -> TidemarkError:
    """What `error`, or what it came from, means. A `TidemarkError` says so itself."""
    known = recognized(error, settings)
    if known is not None:
        return known
    log = str(_written(error, settings))
    return Unexpected(
        expected="to finish, or to know why not",
        found=_sentence(_text(error)),
        consequence=_AS_BEFORE,
        next_step=f"do the same again; if it fails again it is a defect: report it with {log}",
        log=log,
    )


def recognized(error: BaseException, settings: Settings) -> TidemarkError | None:
    """The same for failures of a known kind; None for others, of which nothing is written."""
    chain = list(_chain(error))
    own = next((link for link in chain if isinstance(link, TidemarkError)), None)
    if own is not None:
        return own
    kind, line = _kind_in([_text(link) for link in chain])
    if kind is None:
        return None
    return kind.error(
        expected=kind.expected,
        found=f"{kind.found}: {line}",
        consequence=_AS_BEFORE,
        next_step=kind.next_step,
        log=str(_written(error, settings)),
    )


def recognized_in(message: str) -> tuple[str, str] | None:
    """The line of another program's message that tells of a failure of a known kind, and what to do then; None
    without one."""
    kind, line = _kind_in([message])
    return None if kind is None else (line, kind.next_step)


def _kind_in(texts: Sequence[str]) -> tuple[_Kind | None, str]:
    """The first kind that any of the texts tells of, and the line that does."""
    for kind in _KINDS:
        for text in texts:
            if kind.is_told_by(text):
                return kind, _sentence(text, kind)
    return None, ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _text(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else errno.ENOMEM if isinstance(error, MemoryError) else None
    told = f"{type(error).__name__}: {error}"
    return told if number is None or os.strerror(number) in told else f"{os.strerror(number)}: {told}"


def _sentence(text: str, kind: _Kind | None = None) -> str:
    """The line that says it, without the pages around."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if kind and kind.is_told_by(line)), lines[0] if lines else text)
    return said if len(said) <= _SENTENCE else f"{said[:_SENTENCE]}…"


def _written(error: BaseException, settings: Settings) -> Path | str:
    """The file that the traceback went to; where the disk is full, a word in its place."""
    path = settings.logs_dir / "failures" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        return "its traceback (--debug prints it)"
    return path
