"""The files of a whole lake, by one listing of its folder or of its prefix in an object store."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from spark_jobs.storage.delta.delta_log import is_draft
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import LakeFolder, listing_files

_TABLE = re.compile(r"[^/]+\.db/[^/]+")
"""The path of a table's folder in the folder of its database."""


@dataclass(frozen=True)
class LakeFiles:
    """The files below a lake's root at the time of a listing; a store is asked once for 1,000 files.

    `sizes`: the bytes of each file by its path below the root. `paths`: these paths in order. `logs`: the folders of
    tables that have a folder for their log, in order.
    """

    sizes: Mapping[str, int]
    paths: Sequence[str]
    logs: Sequence[str]

    @classmethod
    def of(cls, folder: LakeFolder) -> Self:
        """List the files of a lake; none if its folder does not exist."""
        from pyarrow.fs import FileSelector, FileType

        entries = listing_files(folder.root, folder.options).get_file_info(
            FileSelector("", recursive=True, allow_not_found=True)
        )
        sizes = {entry.path: entry.size for entry in entries if entry.type == FileType.File}
        folders = {entry.path for entry in entries if entry.type == FileType.Directory}
        folders |= {path.rpartition("/")[0] for path in sizes}
        logs = {path.rpartition("/")[0] for path in folders if path.rpartition("/")[2] == LOG_DIR}
        return cls(sizes, sorted(sizes), sorted(logs))

    def below(self, folder: str) -> list[str]:
        """The paths of the files below a folder, in order."""
        # the character that follows a slash
        begin, end = (bisect_left(self.paths, f"{folder}{sign}") for sign in "/0")
        return list(self.paths[begin:end])

    def tables_without_log(self) -> list[str]:
        """The folders of tables that have data files, and no folder for a log."""
        with_log = {*self.logs}
        data = (match[0] for path in self.paths if path.endswith(".parquet") and (match := _TABLE.match(path)))
        return [table for table in dict.fromkeys(data) if table not in with_log]

    def is_unfinished(self, table: str) -> bool:
        """True if a table's folder has at most the remains of a creation that was stopped before its first commit."""
        return all(is_draft(path.removeprefix(f"{table}/")) for path in self.below(table))
