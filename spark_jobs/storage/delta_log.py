"""Logs of tables: what `deltalake` opens, and what is left of a table that has none.

A log that has lost its newest commit is an error of ours, not one of the library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.places import file_system

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG_DIR = "_delta_log"
"""Where a table's folder has its log."""
_VERSION_DIGITS = 20
_LISTING_S = 0.05


class CommitLost(TidemarkError):
    """The newest commit of a table is gone. Facts: `table`."""

    code = "commit_lost"


def open_table(uri: str, options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    """The table at `uri`, its newest version or the one named.

    Raises:
        CommitLost: the newest version's commit is not there; its checksum, which is written after it, is.
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    # a folder that is listed while a commit and its checksum are written may show the later one alone
    for pause_s in (_LISTING_S, None):
        try:
            return DeltaTable(uri, version=version, storage_options=dict(options) or None)
        except DeltaError as error:
            if not _lacks_newest_commit(uri, options):
                raise
            if pause_s is None:
                raise CommitLost(
                    expected="the newest commit of a table, and its checksum",
                    found=f"in the log of {uri}: its checksum alone",
                    consequence="nothing was done: to go on without what the commit said could count rows twice",
                    next_step="put the file back, or `tidemark restore` a backup into an empty home;"
                    " `tidemark doctor --deep` looks for other damage",
                    table=uri,
                ) from error
            time.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _lacks_newest_commit(uri: str, options: Mapping[str, str]) -> bool:
    """Whether the log has the checksum of a version whose commit is not there, as the newest of its files."""
    from pyarrow.fs import FileSelector

    listed = file_system(uri, options).get_file_info(FileSelector(LOG_DIR, allow_not_found=True))
    of_versions = [name for file in listed if (name := file.base_name).partition(".")[0].isdecimal()]
    newest = {
        suffix: max((name for name in of_versions if name == f"{name[:_VERSION_DIGITS]}.{suffix}"), default="")
        for suffix in ("json", "crc")
    }
    return newest["crc"].partition(".")[0] > newest["json"].partition(".")[0]


def version_file(version: int, suffix: str = "json") -> str:
    """The name of a version's commit in the log, or of its checksum (`crc`).

    Source: Delta's protocol, "Delta Log Entries" and "Version Checksum File".
    """
    return f"{version:0{_VERSION_DIGITS}d}.{suffix}"


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
