"""The lake of a Spark session: its tables in Delta, read and written by Spark and by `deltalake`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spark_jobs.session_settings import session_settings
from spark_jobs.storage.delta.dense_files import WRITER_OPTIONS, dense_files
from spark_jobs.storage.delta.fences import Fence, Superseded
from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.fingerprints import NOTED, NOTED_SQL
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.records import Rows, append_next_records, append_records, replace_records
from spark_jobs.storage.delta.rewriting import Change, Rewritten, renames, rewrite_rows
from spark_jobs.storage.delta.written_files import MOST_ROWS_A_FILE, Destination, Layout, WrittenFile
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, QUARANTINE
from spark_jobs.storage.lakes.spark_catalog import SparkCatalog
from spark_jobs.storage.lakes.table_files import TableFiles

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column as SqlColumn
    from pyspark.sql import DataFrame, SparkSession


def _superseded(table: Table, fence: Fence | None) -> Superseded:
    assert fence is not None, "without a fence nothing is skipped"
    return Superseded(
        expected=f"attempt {fence.token} of {fence.source} to be its newest",
        found=f"a commit to {table.qualified} under this token or a greater one",
        consequence="what this attempt wrote does not count; published tables read as the other one left them",
        next_step="nothing, if another run is at work on the source; else start this run again",
        source=fence.source,
        token=fence.token,
    )


class SparkLake(TableFiles):
    """The lake of a session: the contract `lakes.lake.Lake`, and what publications and upkeep change beside it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._commits = 0

    @property
    def commits(self) -> int:
        """Delta commits made through this object, for the run's report."""
        return self._commits + self.catalog.commits

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

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Append rows to a table of records, in one commit.

        Raises:
            Superseded: an attempt with this token or a newer one has committed to it.
        """
        if not append_records(self.folder.handle(table), rows, fence):
            raise _superseded(table, fence)
        self._commits += 1

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        """Append the rows that follow from those for which `where` holds, in one commit; see `append_next_records`."""
        append_next_records(self.folder.handle(table), where, rows_after)
        self._commits += 1

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

    def destination(self, table: Table, layout: Layout = Layout()) -> Destination:  # noqa: B008
        """The destination of new files of the table, for any process that writes them."""
        return destination(self.folder.handle(table), table.partitions, table.skipping, layout)

    def append_files(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Append files that are written already, without a fence: one commit, and no Spark job."""
        append_files(self.folder.handle(table), files)
        self._commits += 1

    def replace_files(self, table: Table, files: Sequence[WrittenFile], column: str, values: Sequence[str]) -> None:
        """Make written files part of the table, and drop the partitions whose `column` is one of `values`, in one
        commit; no commit if there is neither."""
        if files or values:
            append_files(self.folder.handle(table), files, dropped=(column, values))
            self._commits += 1

    def move_files(self, source: str, moved: Mapping[str, str]) -> None:
        """Replace the paths of a source's landed files by their new ones in all tables that name them. The ledger is
        the last, so that an interrupted move is noticed."""
        for table, column in ((QUARANTINE, "file"), (DUPLICATES, "file"), (DISMISSALS, "file"), (FILES, "path")):
            if self.folder.is_stored(table.database, table.table):
                self.rewrite(table, renames(column, moved), [column], source=source)

    def rewrite(
        self,
        table: Table,
        change: Change,
        looked_at: Sequence[str],
        *,
        source: str | None = None,
        more: pa.Table | None = None,
        layout: Layout = Layout(),  # noqa: B008
    ) -> Rewritten:
        """Change rows by rewriting the files that have them; with `source`, only its files in a shared table. See
        `storage.delta.rewriting`."""
        where = None if source is None else {"source": source}
        done = rewrite_rows(self.destination(table, layout), change, looked_at=looked_at, where=where, more=more)
        self._commits += bool(done.files or more is not None)
        return done

    def replace_record(self, table: Table, row: dict[str, Any], fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `row`, in one commit.

        Raises:
            Superseded: as `record`.
        """
        self.replace_records(table, [row], fence)

    def replace_records(self, table: Table, rows: Rows, fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `rows`, in one commit.

        Raises:
            Superseded: as `record`.
        """
        if not replace_records(self.folder.handle(table), rows, fence):
            raise _superseded(table, fence)
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

    def delete_tokens(self, table: Table, tokens: list[int], source: str | None) -> None:
        """Remove the rows that were written under these tokens; with `source`, only its rows in a shared table."""
        listed = ", ".join(str(int(token)) for token in tokens)
        of_source = "" if source is None else f"source = {literal(source)} AND "
        statement = f"DELETE FROM {qualified(table.database, table.table)} WHERE {of_source}token IN ({listed})"
        with session_settings(self.spark, NOTED_SQL):
            self.spark.sql(statement)
        self._commits += 1
