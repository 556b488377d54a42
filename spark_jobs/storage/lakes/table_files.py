"""Reads of tables by their files, for every lake that has them in a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_jobs.storage.delta.data_files import StoredRows, stored_rows
from spark_jobs.storage.delta.file_summaries import FileSummary, summarize_files
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.records import Rows, present_records
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import Names

if TYPE_CHECKING:
    import pyarrow.compute as pc


class TableFiles(ABC):
    """Reads of the tables in a folder, without a Spark job: the contract `lakes.lake.TableReader`."""

    @property
    @abstractmethod
    def folder(self) -> LakeFolder:
        """The folder that has the tables."""

    @property
    @abstractmethod
    def catalog(self) -> Names:
        """The names of the tables."""

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """Rows of a table of records; none of a table that does not exist yet.

        Raises:
            RecordsLost: the catalog has the table, and its folder or log is gone.
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
