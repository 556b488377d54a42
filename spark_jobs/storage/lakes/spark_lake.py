"""The lake of a Spark session: its tables in Delta, read and written by Spark and by `deltalake`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from spark_jobs.session_settings import session_settings
from spark_jobs.storage.delta.dense_files import WRITER_OPTIONS, dense_files
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import NOTED, NOTED_SQL
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.written_files import MOST_ROWS_A_FILE
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.spark_catalog import SparkCatalog
from spark_jobs.storage.lakes.table_writes import TableWrites

if TYPE_CHECKING:
    from pyspark.sql import Column as SqlColumn
    from pyspark.sql import DataFrame, SparkSession


class SparkLake(TableWrites):
    """The lake of a session: the contract `lakes.lake.Lake`, and the changes of publications and upkeep beside it."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self.spark = spark

    @cached_property
    def folder(self) -> LakeFolder:
        """The folder that has the tables."""
        return LakeFolder.of_session(self.spark)

    @cached_property
    def catalog(self) -> SparkCatalog:
        """The catalog of the session."""
        return SparkCatalog(self.spark, self.folder)

    def read(self, table: Table) -> DataFrame:
        """All physical rows of a table, visible or not."""
        return self.spark.table(table.qualified)

    def append(self, table: Table, rows: DataFrame, fence: Fence | None) -> None:
        """Append rows once: Delta skips a repeat under the same or an older token.

        Without a fence rows are always appended. This is for rows that count only if a fenced commit names the attempt
        that wrote them. It saves Delta's check, which costs a job to read earlier attempts from the table's log.
        """
        ordered = rows.select(*table.column_names)
        options = {"maxRecordsPerFile": str(MOST_ROWS_A_FILE), **NOTED}
        if fence is not None:
            options |= fence.writer_options()
        ordered.writeTo(table.qualified).options(**options).append()
        self._commits += 1

    def append_dense(self, table: Table, rows: DataFrame, rows_in_page: int) -> None:
        """Append chunks without a fence, in files of the layout of `storage.delta.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS, **NOTED).append()
        self._commits += 1

    def replace_dense(self, table: Table, rows: DataFrame, replaced: SqlColumn, rows_in_page: int) -> None:
        """Replace the chunks that `replaced` selects by `rows`, which meet it, too, in one commit. There is no fence,
        and the files have the layout of `storage.delta.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS, **NOTED).overwrite(replaced)
        self._commits += 1

    def amend(self, statement: str, fence: Fence) -> None:
        """Run one MERGE, UPDATE or DELETE once: Delta skips a repeat under the same or an older token."""
        options = {f"spark.databricks.delta.write.{key}": value for key, value in fence.writer_options().items()}
        with session_settings(self.spark, options | NOTED_SQL):
            self.spark.sql(statement)
        self._commits += 1
