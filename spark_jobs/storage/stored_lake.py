"""The lake's files without a Spark session, for readers where Spark may not run."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pyarrow.fs import FileSelector, FileType

from spark_jobs.s3 import environment_options, is_s3
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.places import as_root, file_system
from spark_jobs.storage.schema import Table
from spark_jobs.storage.table_notes import column_types


class StoredLake(Lake):
    """Records, stored rows and summaries of tables in a folder, or below a URI of an object store that the
    environment's settings (`AWS_…`) open. All other methods of `Lake` need a session."""

    def __init__(self, place: Path | str) -> None:
        super().__init__(spark=None)  # type: ignore[arg-type]  # nothing that is used here asks for it
        self._root = as_root(str(place))
        self._storage_options = environment_options(self._root)

    @classmethod
    def at(cls, place: str) -> Self | None:
        """The lake at a path or URI; None where Spark alone can open it."""
        return cls(place) if "://" not in place or is_s3(place) else None

    def names_if_present(self, database: str) -> set[str]:
        """The tables of a database that have a folder."""
        folder = FileSelector(f"{database}.db", allow_not_found=True)
        listed = file_system(self._root, self._storage_options).get_file_info(folder)
        # a bucket also lists the object of the folder itself
        return {entry.base_name for entry in listed if entry.type == FileType.Directory}

    def columns(self, table: Table) -> set[str]:
        """The columns that a table has."""
        return set(column_types(self.uri(table), self._storage_options))
