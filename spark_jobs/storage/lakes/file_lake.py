"""A lake without Spark: Delta tables in a folder of this machine, read and written by this process alone.

It is for trying a source and for tests. What needs SQL (names that users read, marts, conditions in SQL) is left out or
refused by name; a Spark session that opens the folder later finds the same tables.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.lakes.file_catalog import FileCatalog
from spark_jobs.storage.lakes.table_writes import TableWrites


class FileLake(TableWrites):
    """The lake in a folder: the contract `lakes.lake.RunLake`."""

    spark = None
    """This process does all of the work."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    @cached_property
    def folder(self) -> LakeFolder:
        """The folder that has the tables."""
        return LakeFolder(str(self._root), is_own=True)

    @cached_property
    def catalog(self) -> FileCatalog:
        """The catalog of the tables, by their folders."""
        return FileCatalog(self.folder)
