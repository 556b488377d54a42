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
from spark_jobs.jvm.errors import CatalogUnreachable
from spark_jobs.memory import MORE_MEMORY, MemoryShort

_AS_BEFORE = "published tables read as before; later writes of a run do not count"
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


class WorkerDiffers(TidemarkError):
    """An executor's machine has another Python, other packages or other code than the lake server. Facts: `log`."""

    code = "worker_differs"


class TableFileDamaged(TidemarkError):
    """A file of the lake is missing, or differs from the entry in its table's log. Facts: `log`."""

    code = "file_damaged"


class ScratchLost(TidemarkError):
    """The folder that Spark keeps blocks in was removed while it runs. Facts: `log`."""

    code = "scratch_lost"


class CatalogLost(TidemarkError):
    """The folder of the embedded catalog was removed while the lake server runs. Facts: `log`."""

    code = "catalog_lost"


class StoreUnreachable(TidemarkError):
    """An object store refuses access, or does not answer. Facts: `log`, or the `place` of a backup."""

    code = "store_unreachable"


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
    finding: str
    next_step: str
    numbers: tuple[int, ...] = ()
    conditions: frozenset[str] = frozenset()
    texts: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
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
        "free some space (`tidemark doctor` prints how much is free) and try again: a run continues where it ended",
        numbers=NO_ROOM,
    ),
    _Kind(
        DiskFailed,
        "the disks of the home, the lake and the scratch folder to accept writes",
        "one that refuses",
        "see the kernel's messages (`dmesg`), how it is mounted and how large files may be (`ulimit -f`); then do"
        " the same again: a run continues where it ended",
        numbers=(errno.EFBIG, errno.EIO, errno.EROFS),
    ),
    _Kind(
        DiskFailed,
        "the catalog (`metastore` of the home) to accept writes",
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
        WorkerDiffers,
        "executors with the lake server's versions of Python, of packages and of Tidemark",
        "one with others",
        "install the same packages on that machine (`make setup` of the same version, or the same image), or name"
        " another Python with TIDEMARK_EXECUTOR_PYTHON; then do the same again",
        texts=re.compile(r"\bworker_differs: expected"),
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
        CatalogUnreachable,
        "the catalog's database (`metastore_url`) to answer",
        "one that does not",
        "see whether it runs (`tidemark status` asks it); then do the same again: a run continues where it ended",
        # Spark tells no cause for `default`, in which each session begins; the other words are those of drivers
        texts=re.compile(
            r"\bSCHEMA_NOT_FOUND\b.*`default` cannot be found"
            r"|(MetaException|HiveException|Unable to (fetch|alter|instantiate)|Failed to get).*("
            r"Connection to \S+ refused|[Cc]onnection attempt (failed|timed out)|connection has been closed"
            r"|Read timed out|I/O error occurred while sending|terminating connection|database system is"
            r"|Communications link failure)",
            re.DOTALL,
        ),
    ),
    _Kind(
        StoreUnreachable,
        "the object store to answer within `store_patience_s`",
        "one that refuses requests or does not answer",
        "see whether it runs and how many requests it allows; then do the same again: a run continues where it ended",
        # the words of S3 itself, of Amazon's library in Arrow, of `deltalake`'s, and of Spark's
        texts=re.compile(
            r"SlowDown|reduce your request rate"
            r"|AWS Error (SLOW_DOWN|SERVICE_UNAVAILABLE|NETWORK_CONNECTION|INTERNAL_FAILURE)"
            r"|AWS Error UNKNOWN \(HTTP status 5\d\d\)|Generic S3 error.*(5\d\d [A-Z]|error sending request)"
            r"|AWSServiceThrottledException|AWSStatus500Exception|AWSServiceIOException"
            r"|\bS3A?\b.*(Service Unavailable|Connection refused|Unable to execute HTTP request)",
            re.DOTALL,
        ),
    ),
    _Kind(
        TableFileDamaged,
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


_OF_A_FUNCTION = re.compile(
    r"(?P<code>not_published|below_since|before_first_publication): expected (?P<expected>.+?), found (?P<found>.+?);"
    r" (?P<next_step>[^\n]+?)(?: SQLSTATE: \w+)?(?:\n|$)"
)
"""A refusal by a function that reads the past (`storage.names.past`), in the text of Spark's error."""


def explain(error: BaseException, settings: Settings) -> TidemarkError:
    """The `TidemarkError` that explains `error`.

    It is the first `TidemarkError` among `error` and its causes, else the error of a known kind of failure, else
    `Unexpected`. For the latter two, the traceback is written to a log file."""
    explanation = recognize(error, settings)
    if explanation is not None:
        return explanation
    log = str(_write_traceback(error, settings))
    return Unexpected(
        expected="to finish, or to know why not",
        found=_sentence(_text(error)),
        consequence=_AS_BEFORE,
        next_step=f"do the same again; if it fails again it is a defect: report it with {log}",
        log=log,
    )


def recognize(error: BaseException, settings: Settings) -> TidemarkError | None:
    """The `TidemarkError` that explains a failure of a known kind; None, and no log file, for any other failure.

    The refusal by a function of SQL that reads the past has the function's own code.
    """
    chain = list(_chain(error))
    refusal = next((link for link in chain if isinstance(link, TidemarkError)), None)
    texts = [_text(link) for link in chain]
    refusal = refusal or next((of_sql for text in texts if (of_sql := _refusal_of_function(text))), None)
    if refusal is not None:
        return refusal
    kind, line = _kind_in(texts)
    if kind is None:
        return None
    return kind.error(
        expected=kind.expected,
        found=f"{kind.finding}: {line}",
        consequence=_AS_BEFORE,
        next_step=kind.next_step,
        log=str(_write_traceback(error, settings)),
    )


def recognized_in(message: str) -> tuple[str, str] | None:
    """The line of another program's message that has the mark of a known kind of failure, and the next step for it.

    The line is the whole sentence for a refusal by a function of SQL that reads the past. None if no line has a mark.
    """
    refusal = _refusal_of_function(message)
    if refusal is not None:
        return f"{refusal.code}: expected {refusal.expected}, found {refusal.found}", refusal.next_step
    kind, line = _kind_in([message])
    return None if kind is None else (line, kind.next_step)


def _refusal_of_function(text: str) -> TidemarkError | None:
    """The refusal by a function that reads the past, in the text of Spark's error; None if there is none."""
    match = _OF_A_FUNCTION.search(text)
    if match is None:
        return None
    # parsing a DAG file imports this module, and must not import what reads tables
    from spark_jobs.engine.deltas import BelowSince
    from spark_jobs.reads.point import BeforeFirstPublication, NotPublished

    kinds = {kind.code: kind for kind in (BeforeFirstPublication, BelowSince, NotPublished)}
    words = match.groupdict()
    return kinds[words.pop("code")](**words, consequence="")


def _kind_in(texts: Sequence[str]) -> tuple[_Kind | None, str]:
    """The first kind of failure that any of the texts has a mark of, and the line with that mark; else (None, "")."""
    for kind in _KINDS:
        for text in texts:
            if kind.matches(text):
                return kind, _sentence(text, kind)
    return None, ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _text(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else errno.ENOMEM if isinstance(error, MemoryError) else None
    text = f"{type(error).__name__}: {error}"
    return text if number is None or os.strerror(number) in text else f"{os.strerror(number)}: {text}"


def _sentence(text: str, kind: _Kind | None = None) -> str:
    """The line of `text` that has the mark of `kind`, else the first line; cut after `_SENTENCE` characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    sentence = next((line for line in lines if kind and kind.matches(line)), lines[0] if lines else text)
    return sentence if len(sentence) <= _SENTENCE else f"{sentence[:_SENTENCE]}…"


def _write_traceback(error: BaseException, settings: Settings) -> Path | str:
    """Write the traceback to a file and return its path; if the file cannot be written, return a phrase instead."""
    path = settings.logs_dir / "failures" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        return "its traceback (--debug prints it)"
    return path
