"""Opening tables by their logs, and the remains of a table that was never finished.

A damaged log raises an error of ours that names the file, instead of one of the library.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.log_files import LOG_DIR, LogBroken, files_of_log, version_file
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LISTING_S = 0.05
RESTORE = "`tidemark restore` a backup into an empty home; `tidemark doctor --deep` looks for other damage"
"""The next step in messages about lost files of a table."""


class CommitLost(TidemarkError):
    """The newest commit of a table is gone. Facts: `table`."""

    code = "commit_lost"


class LogDamaged(TidemarkError):
    """The log of a table can't be read. Facts: `table`, `file`."""

    code = "log_damaged"


def open_table(handle: TableHandle, version: int | None = None) -> DeltaTable:
    """The table, its newest version or the one named, for reads.

    A table of this process's own stays open from one read to the next, until it has a newer version.

    Raises:
        CommitLost, LogDamaged, deltalake.exceptions.TableNotFoundError: as `open_anew`.
    """
    if not handle.is_own or version is not None:
        return open_anew(handle, version)
    opened = _open.get(handle.uri)
    if opened is not None and opened.is_current():
        return opened.table
    opened = _Opened.of(handle)
    while len(_open) >= _MOST_OPEN:
        _open.pop(next(iter(_open)), None)
    _open[handle.uri] = opened
    return opened.table


@dataclass(frozen=True)
class _Opened:
    """A table that stays open. `commit`: the file of its version; `written`: the inode and time of that file."""

    table: DeltaTable
    commit: Path
    written: tuple[int, int]

    @classmethod
    def of(cls, handle: TableHandle) -> _Opened:
        table = open_anew(handle)
        commit = commit_file(handle, table.version())
        return cls(table, commit, inode_and_time(commit))

    def is_current(self) -> bool:
        """True if the log is the one that was read, and has no newer version."""
        return not self.commit.with_name(version_file(self.table.version() + 1)).exists() and (
            inode_and_time(self.commit) == self.written
        )


def commit_file(handle: TableHandle, version: int) -> Path:
    """The file of a version's commit in the log of a table on a disk."""
    return Path(handle.uri) / LOG_DIR / version_file(version)


def inode_and_time(file: Path) -> tuple[int, int]:
    """The inode of a file, and the time of its last write in nanoseconds; zeros if there is none. A folder that is
    removed and written again may have both its old path and its old inode; a file of it then has another time."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


_MOST_OPEN = 128
_open: dict[str, _Opened] = {}
"""This process's own open tables, by their folders. Nobody commits by them: that would change the reads of others."""


def open_anew(handle: TableHandle, version: int | None = None) -> DeltaTable:
    """The table, its newest version or the one named.

    Raises:
        CommitLost: the newest version's commit is not there; its checksum, which is written after it, is.
        LogDamaged: a commit or checkpoint is missing or can't be read.
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    # a folder that is listed while a commit and its checksum are written may show the later one alone
    for pause_s in (_LISTING_S, None):
        try:
            return DeltaTable(handle.uri, version=version, storage_options=dict(handle.options) or None)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            if pause_s is None:
                raise _refusal(handle) or error from error
            time.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _refusal(handle: TableHandle) -> TidemarkError | None:
    """The error that describes the damage of a log that the library could not open; None if its files are whole."""
    try:
        files_of_log(handle.files())
    except LogBroken as broken:
        place = f"in the log of {handle.uri}: "
        if broken.is_lost:
            return CommitLost(
                expected="the newest commit of a table, and its checksum",
                found=f"{place}its checksum alone",
                consequence="nothing was done: to go on without that commit could count rows twice",
                next_step=f"put the file back, or {RESTORE}",
                table=handle.uri,
            )
        return LogDamaged(
            expected="a log whose commits and checkpoints can be read",
            found=f"{place}{broken}",
            consequence="nothing was done: without that file the rows of the table are unknown",
            next_step=f"put the file back, or {RESTORE}",
            table=handle.uri,
            file=broken.file,
        )
    return None


def is_draft(path: str) -> bool:
    """True if a file of a table's folder is a draft of its first commit, which Delta writes before it gives the commit
    its name. A creation that was stopped leaves nothing else but folders."""
    folder, _, name = path.rpartition("/")
    return folder == LOG_DIR and name.startswith(f".{version_file(0)}.") and name.endswith(".tmp")


def is_unfinished(handle: TableHandle) -> bool:
    """True if a table's folder has nothing that could be lost. It is missing, or has only the remains of a creation
    that was stopped before its first commit: folders, and drafts of that commit."""
    return all(is_draft(path) for path in handle.sizes())


def clear_unfinished(handle: TableHandle) -> None:
    """Remove the remains of a creation that was stopped, if there is nothing else in the folder of this machine
    (`is_unfinished`)."""
    if not is_unfinished(handle):
        return
    for draft in handle.sizes():
        Path(handle.uri, draft).unlink(missing_ok=True)
    # a folder in which another run has written since stays
    for place, *_ in os.walk(handle.uri, topdown=False):
        with suppress(OSError):
            Path(place).rmdir()
