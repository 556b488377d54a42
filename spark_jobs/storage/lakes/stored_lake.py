"""The lake's files without a Spark session, for readers where Spark may not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyarrow.fs import FileSelector, FileType

from spark_jobs.s3 import environment_options, is_s3
from spark_jobs.storage.delta.data_files import StoredRows, stored_rows
from spark_jobs.storage.delta.file_summaries import FileSummary, summarize_files
from spark_jobs.storage.delta.places import LakeFolder, as_root
from spark_jobs.storage.delta.records import Rows, present_records
from spark_jobs.storage.descriptions.schema import Table

if TYPE_CHECKING:
    import pyarrow.compute as pc


class FolderNames:
    """The names of tables by their folders."""

    def __init__(self, folder: LakeFolder) -> None:
        self._folder = folder

    def names_if_present(self, database: str) -> set[str]:
        """The tables of a database that have a folder."""
        listed = self._folder.files().get_file_info(FileSelector(f"{database}.db", allow_not_found=True))
        # a bucket also lists the object of the folder itself
        return {entry.base_name for entry in listed if entry.type == FileType.Directory}


class StoredLake:
    """The tables in a folder, or below a URI of an object store that the environment's settings (`AWS_…`) open: the
    contract `storage.lakes.lake.TableReader`."""

    def __init__(self, place: Path | str) -> None:
        root = as_root(str(place))
        self.folder = LakeFolder(root, environment_options(root))
        self.catalog = FolderNames(self.folder)

    @classmethod
    def at(cls, place: str) -> Self | None:
        """The lake at a path or URI; None where Spark alone can open it."""
        return cls(place) if "://" not in place or is_s3(place) else None

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """Rows of a table of records; none of a table that does not exist yet.

        Raises:
            RecordsLost: the table has a folder, and its log is gone.
        """
        return present_records(
            self.folder.handle(table), lambda: table.table in self.catalog.names_if_present(table.database), where
        )

    def stored(
        self,
        table: Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        partitions: Mapping[str, Sequence[str]] | None = None,
    ) -> StoredRows:
        """Rows of a table's files as they are now, to be read by pyarrow; see `storage.delta.data_files`."""
        return stored_rows(self.folder.handle(table), columns, where, partitions)

    def summaries(
        self, table: Table, partition: str, values: Sequence[str] | None, columns: Sequence[str]
    ) -> list[FileSummary]:
        """The rows, bytes and bounds of the data files of some partitions; see `storage.delta.file_summaries`."""
        return list(summarize_files(self.folder.handle(table), partition, values, columns))
