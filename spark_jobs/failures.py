"""Failures that no module foresaw, as errors that explain the failure and the next step. Tracebacks go to a file.

Examples are a full disk, a killed worker or JVM, and a damaged file. The errors that Python, Spark and gRPC raise for
them are pages long, and do not explain the consequences for a run.
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
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a full disk, and of a full quota."""
_SENTENCE = 300
"""The most characters of the original error's text that an error repeats."""


class DiskFull(TidemarkError):
    """A disk had no room for data that had to be written. Facts: `log`, or the `place` of a backup or a restore."""

    code = "disk_full"


class DiskFailed(TidemarkError):
    """A file system refused to write or to read, or a catalog on it does. Facts: `log`."""

    code = "disk_failed"


class MemoryExhausted(TidemarkError):
    """The JVM or another process did not have enough memory. Facts: `log`."""

    code = "memory_exhausted"


class WorkerDied(TidemarkError):
    """A worker ended in the middle of a task, each time it was tried. Facts: `log`."""

    code = "worker_died"


class FileDamaged(TidemarkError):
    """A file of the lake is missing, or differs from what its table lists. Facts: `log`."""

    code = "file_damaged"


class ScratchLost(TidemarkError):
    """The folder that Spark keeps blocks in was removed while it runs. Facts: `log`."""

    code = "scratch_lost"


class CatalogLost(TidemarkError):
    """The folder of the embedded catalog was removed while the lake server runs. Facts: `log`."""

    code = "catalog_lost"


class Unexpected(TidemarkError):
    """A failure of no known kind. Facts: `log`."""

    code = "unexpected"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of failure: the error to raise for it, the parts of that error's sentence, and the marks of the failure.

    The marks are error numbers of the operating system, conditions of Spark or Delta, and texts of programs that name
    neither."""

    error: type[TidemarkError]
    expected: str
    found: str
    next_step: str
    numbers: tuple[int, ...] = ()
    conditions: frozenset[str] = frozenset()
    texts: re.Pattern[str] | None = None

    def is_told_by(self, text: str) -> bool:
        """True if a text, of one line or many, has a mark of this kind of failure. For error numbers that mark is the
        operating system's own message, since Java and Rust repeat it."""
        if self.conditions & conditions_in(text) or any(os.strerror(number) in text for number in self.numbers):
            return True
        return self.texts is not None and self.texts.search(text) is not None


_KINDS = [
    _Kind(
        DiskFull,
        "room on the disks of the home, the lake and the scratch folder",
        "a full disk",
        "free some space (`tidemark doctor` says how much there is) and do the same again: a run goes on where it was",
        numbers=NO_ROOM,
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
        DiskFailed,
        "the catalog (`metastore` of the home) to take what is written",
        "one that can only be read, since its disk was full or refused when it was opened",
        "free some space (`tidemark doctor` says how much there is), then `tidemark up`, and do the same again",
        # Derby opens a database for reading alone if it cannot write to its folder
        texts=re.compile(r"read-only (database|connection)|DDL is not permitted|the transaction recovery log"),
    ),
    _Kind(
        MemoryExhausted,
        "enough memory for the work",
        "none left",
        "give the JVM more (TIDEMARK_HEAP), or run fewer drops at once; then `tidemark up`, and do the same again",
        numbers=(errno.ENOMEM,),
        # Spark Connect passes on the message of Java's error, but not always its class
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
        # for a missing file of Derby's, Hive passes on Derby's message, or only its SQL state
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
        # the messages of Spark's Parquet reader, and of pyarrow
        texts=re.compile(r"is not a Parquet file|Parquet magic bytes not found"),
    ),
]


def explained(error: BaseException, settings: Settings) -> TidemarkError:
    """The `TidemarkError` that explains `error`.

    It is the first `TidemarkError` among `error` and its causes, else the error of a known kind of failure, else
    `Unexpected`. For the latter two, the traceback is written to a log file."""
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
    """The `TidemarkError` that explains a failure of a known kind; None, and no log file, for any other failure."""
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
    """The line of another program's message that has the mark of a known kind of failure, and the next step for it.

    None if no line has one."""
    kind, line = _kind_in([message])
    return None if kind is None else (line, kind.next_step)


def _kind_in(texts: Sequence[str]) -> tuple[_Kind | None, str]:
    """The first kind of failure that any of the texts has a mark of, and the line with that mark; else (None, "")."""
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
    """The line of `text` that has the mark of `kind`, else the first line; cut after `_SENTENCE` characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if kind and kind.is_told_by(line)), lines[0] if lines else text)
    return said if len(said) <= _SENTENCE else f"{said[:_SENTENCE]}…"


def _written(error: BaseException, settings: Settings) -> Path | str:
    """Write the traceback to a file and return its path; if the file cannot be written, return a phrase instead."""
    path = settings.logs_dir / "failures" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        return "its traceback (--debug prints it)"
    return path
