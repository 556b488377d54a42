"""Logs of tables: what `deltalake` opens, and what is left of a table that has none.

A damaged log is an error of ours that names the file, not one of the library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.log_files import LOG_DIR, LogBroken, files_of_log, version_file
from spark_jobs.storage.places import file_system

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LISTING_S = 0.05
RESTORE = "`tidemark restore` a backup into an empty home; `tidemark doctor --deep` looks for other damage"
"""The next step where files of a table are lost."""


class CommitLost(TidemarkError):
    """The newest commit of a table is gone. Facts: `table`."""

    code = "commit_lost"


class LogDamaged(TidemarkError):
    """The log of a table can't be read. Facts: `table`, `file`."""

    code = "log_damaged"


def open_table(uri: str, options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """The table at `uri`, its newest version or the one named.

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
            return DeltaTable(uri, version=version, storage_options=dict(options) or None)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            if pause_s is None:
                raise _refusal(uri, options) or error from error
            time.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _refusal(uri: str, options: Mapping[str, str]) -> TidemarkError | None:
    """The damage of a log that the library could not open; None if its files are whole."""
    try:
        files_of_log(file_system(uri, options))
    except LogBroken as broken:
        found = f"in the log of {uri}: "
        if broken.is_lost:
            return CommitLost(
                expected="the newest commit of a table, and its checksum",
                found=f"{found}its checksum alone",
                consequence="nothing was done: to go on without what the commit said could count rows twice",
                next_step=f"put the file back, or {RESTORE}",
                table=uri,
            )
        return LogDamaged(
            expected="a log whose commits and checkpoints can be read",
            found=f"{found}{broken}",
            consequence="nothing was done: without that file nobody can tell which rows the table has",
            next_step=f"put the file back, or {RESTORE}",
            table=uri,
            file=broken.file,
        )
    return None


def has_log(folder: Path) -> bool:
    """Whether a folder of this machine holds a table: a log with a commit in it."""
    return any((folder / LOG_DIR).glob("*.json"))


def is_unfinished(folder: Path) -> bool:
    """Whether a table's folder holds nothing that could be lost: it is not there, or has no more in it than what the
    table's creation leaves if it is stopped before its first commit, drafts of that commit and folders."""
    drafts = _drafts(folder)
    return all(path in drafts for path in folder.rglob("*") if not path.is_dir())


def clear_unfinished(folder: Path) -> None:
    """Remove what a creation that was stopped has left, if there is nothing else (`is_unfinished`)."""
    if not is_unfinished(folder):
        return
    for draft in _drafts(folder):
        draft.unlink(missing_ok=True)
    # a folder in which another run has written since stays
    for place, *_ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(place).rmdir()


def _drafts(folder: Path) -> set[Path]:
    """What Delta writes before it gives a table's first commit its name."""
    return {*(folder / LOG_DIR).glob(f".{version_file(0)}.*.tmp")}
