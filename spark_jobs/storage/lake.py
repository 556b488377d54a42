"""The lake: databases, tables and views of a set of sources, and the few ways to write them.

Everything that a run writes is an append or the replacement of one source's partition, under the attempt's fence.
Nothing here decides which rows are visible: that is `trace.published` (see `storage.views`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.session_settings import session_settings
from spark_jobs.storage.data_files import StoredRows, stored_rows
from spark_jobs.storage.dense_files import WRITER_OPTIONS, dense_files
from spark_jobs.storage.fence import Fence, Superseded
from spark_jobs.storage.file_commits import append_files, destination
from spark_jobs.storage.file_summaries import FileSummary, logged_files, summarize_files
from spark_jobs.storage.file_upkeep import (
    Footprint,
    compact_small_files,
    delete_rows_before,
    files_in_use,
    files_stored,
    remove_unused,
)
from spark_jobs.storage.fingerprints import NOTED, NOTED_SQL, Fingerprint, change_since, miscount, take_fingerprint
from spark_jobs.storage.people_tables import DISMISSALS
from spark_jobs.storage.plain_reading import differing_files, misread_rows
from spark_jobs.storage.records import (
    Rows,
    append_next_records,
    append_records,
    committed_token,
    lost,
    read_records,
    replace_records,
)
from spark_jobs.storage.rewriting import (
    Change,
    Rewritten,
    copy_partition,
    forget_versions,
    renames,
    rewrite_rows,
)
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.standing_tables import StandingTables
from spark_jobs.storage.tables import DUPLICATES, FILES, FRONTIERS, PUBLISHED, QUARANTINE
from spark_jobs.storage.written_files import MOST_ROWS_A_FILE, Destination, Layout, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column as SqlColumn
    from pyspark.sql import DataFrame


_OF_FILE = {"file": "file_path", "file_size": "file_size"}


def _of_source(table: Table, source: str) -> dict[str, str]:
    return {"source": source} if "source" in table.partitions else {}


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


class Lake(StandingTables):
    """The tables of one Spark session: reads of their rows and files, and the ways to write them."""

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """Rows of a table of records, read without a Spark job; none of a table that does not exist yet.

        Raises:
            RecordsLost: the catalog has the table, and its folder or log is gone.
        """
        from deltalake.exceptions import TableNotFoundError

        try:
            found = read_records(self.uri(table), self._storage_options, where)
        except TableNotFoundError:
            if table.table in self.names_if_present(table.database):
                raise lost(self.uri(table)) from None
            return []
        rows: Rows = found.to_pylist()
        return rows

    def newest_token(self, source: str) -> int:
        """The greatest token under which an attempt on the source has committed records; 0 before the first."""
        return max(self.committed_token(table, source) for table in (FILES, FRONTIERS, PUBLISHED))

    def committed_token(self, table: Table, source: str) -> int:
        """The greatest token under which an attempt on the source has committed to a table of records, even if its rows
        are gone; 0 before the first."""
        return committed_token(self.uri(table), self._storage_options, source)

    def fingerprint(self, table: Table, source: str, before: Fingerprint | None) -> Fingerprint:
        """A table's version, commit and rows of `source` now; see `storage.fingerprints`."""
        return take_fingerprint(self.uri(table), self._storage_options, source, before)

    def change_since(self, table: str, source: str, noted: Fingerprint) -> str | None:
        """The loss or foreign change of the table with this qualified name; see `storage.fingerprints`."""
        return change_since(self._place(*table.split(".")), self._storage_options, source, noted)

    def miscount(self, table: str, source: str, noted: Fingerprint) -> str | None:
        """The difference between the rows that a fingerprint notes and those in the log; see `storage.fingerprints`."""
        return miscount(self._place(*table.split(".")), self._storage_options, source, noted)

    def differing_files(self, table: Table, source: str) -> Iterator[dict[str, Any]]:
        """The files of a sample that differ from their checksums; see `storage.plain_reading`."""
        return differing_files(self.uri(table), self._storage_options, _of_source(table, source))

    def misread_rows(self, table: Table, source: str) -> Iterator[dict[str, Any]]:
        """The differences between the files and the log or the skipping reader; see `storage.plain_reading`."""
        return misread_rows(self.uri(table), self._storage_options, table.skipping, _of_source(table, source))

    def summaries(
        self, table: Table, partition: str, values: Sequence[str] | None, columns: Sequence[str]
    ) -> list[FileSummary]:
        """The rows, bytes and bounds of the data files of some partitions; see `storage.file_summaries`."""
        return list(summarize_files(self.uri(table), self._storage_options, partition, values, columns))

    def stored(
        self,
        table: Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        partitions: Mapping[str, Sequence[str]] | None = None,
    ) -> StoredRows:
        """Rows of a table's files as they are now, to be read by pyarrow; see `storage.data_files`."""
        return stored_rows(self.uri(table), self._storage_options, columns, where, partitions)

    def logged_bounds(self, table: Table, column: str) -> list[FileSummary]:
        """The files of a table with the log's bounds of `column`; see `storage.file_summaries`."""
        return logged_files(self.uri(table), self._storage_options, column)

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Append rows to a table of records, in one commit.

        Raises:
            Superseded: an attempt with this token or a newer one has committed to it.
        """
        if not append_records(self.uri(table), self._storage_options, rows, fence):
            raise _superseded(table, fence)
        self.commits += 1

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        """Append the rows that follow from those for which `where` holds, in one commit; see `append_next_records`."""
        append_next_records(self.uri(table), self._storage_options, where, rows_after)
        self.commits += 1

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
        if not replace_records(self.uri(table), self._storage_options, rows, fence):
            raise _superseded(table, fence)
        self.commits += 1

    def read_with_files(self, table: Table) -> DataFrame:
        """The rows of `read`, each with the path and size of its file in the columns `file` and `file_size`."""
        return self.read(table).withColumns({name: F.col(f"_metadata.{found}") for name, found in _OF_FILE.items()})

    def files_read(self, table: Table) -> DataFrame:
        """The paths of the files that have the table's rows, in the column `path`."""
        return self.read(table).select(F.url_decode("_metadata.file_path").alias("path")).distinct()

    def files_stored(self, table: Table) -> DataFrame:
        """All data files under the table's folder, also those out of use, as `path` and `length` (bytes)."""
        details = self.run(f"DESCRIBE DETAIL {qualified(table.database, table.table)}").collect()[0]
        # lists the folder; the files themselves are not opened
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        found = files.option("pathGlobFilter", "*.parquet").load(details.location)
        return found.select(F.url_decode("path").alias("path"), "length")

    def in_use(self, table: Table, source: str | None = None) -> Footprint:
        """The data files that a read now opens; with `source`, only its files in a shared table."""
        return files_in_use(self.uri(table), self._storage_options, source)

    def on_disk(self, table: Table) -> Footprint:
        """All files that are stored of a table."""
        return files_stored(self.uri(table), self._storage_options)

    def compact_files(self, table: Table, source: str | None = None) -> None:
        """Join a table's small files; with `source`, only its files in a shared table."""
        compact_small_files(self.uri(table), self._storage_options, source)

    def delete_before(self, table: Table, source: str, column: str, before: datetime) -> None:
        """Remove the source's rows of a table of records whose time in `column` is before `before`."""
        stamp = before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        delete_rows_before(self.uri(table), self._storage_options, source, column, stamp)

    def vacuum(self, table: Table, kept: timedelta) -> None:
        """Remove files that have been out of use for as long as `kept`."""
        remove_unused(self.uri(table), self._storage_options, kept)

    def frame(self, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
        """A small frame with the table's columns; a missing key is null."""
        values = [tuple(row.get(column) for column in table.column_names) for row in rows]
        return self.spark.createDataFrame(values, table.schema()).coalesce(1)

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
        self.commits += 1

    def destination(self, table: Table, layout: Layout = Layout()) -> Destination:  # noqa: B008
        """The destination of new files of the table, for any process that writes them."""
        return destination(self.uri(table), self._storage_options, table.partitions, table.skipping, layout)

    def append_files(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Append files that are written already, without a fence: one commit, and no Spark job."""
        append_files(self.uri(table), self._storage_options, files)
        self.commits += 1

    def replace_files(self, table: Table, files: Sequence[WrittenFile], column: str, values: Sequence[str]) -> None:
        """Make written files part of the table, and drop the partitions whose `column` is one of `values`, in one
        commit; no commit if there is neither."""
        if files or values:
            append_files(self.uri(table), self._storage_options, files, dropped=(column, values))
            self.commits += 1

    def append_dense(self, table: Table, rows: DataFrame, rows_in_page: int) -> None:
        """Append chunks without a fence, in files of the layout of `storage.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS, **NOTED).append()
        self.commits += 1

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
        `storage.rewriting`."""
        where = None if source is None else {"source": source}
        done = rewrite_rows(self.destination(table, layout), change, looked_at=looked_at, where=where, more=more)
        self.commits += bool(done.files or more is not None)
        return done

    def move_files(self, source: str, moved: Mapping[str, str]) -> None:
        """Replace the paths of a source's landed files by their new ones in all tables that name them. The ledger is
        the last, so that an interrupted move is noticed."""
        for table, column in ((QUARANTINE, "file"), (DUPLICATES, "file"), (DISMISSALS, "file"), (FILES, "path")):
            if self.is_stored(table.database, table.table):
                self.rewrite(table, renames(column, moved), [column], source=source)

    def copy_source(self, table: Table, source: str, copy: str) -> int:
        """Copy the rows of one source in a shared table, as rows of the source `copy`; returns their number. See
        `storage.rewriting.copy_partition`."""
        rows = copy_partition(self.destination(table), "source", source, copy)
        self.commits += 1
        return rows

    def remove_source(self, table: Table, source: str) -> None:
        """Remove the rows of one source from a shared table, in one commit that rewrites no file; no commit if there
        are none. Then remove the files, also those of earlier versions."""
        if self.in_use(table, source).files:
            self.replace_files(table, [], "source", [source])
        self.remove_files(f"{self._below_root(table)}/source={quote(source)}")

    def forget_versions(self, table: Table, source: str | None = None) -> None:
        """Remove all versions of a table but the newest; with `source`, only its files in a shared table."""
        forget_versions(self.uri(table), self._storage_options, source)
        self.commits += 1

    def replace_dense(self, table: Table, rows: DataFrame, replaced: SqlColumn, rows_in_page: int) -> None:
        """Replace the chunks that `replaced` selects by `rows`, which meet it, too, in one commit. There is no fence,
        and the files have the layout of `storage.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS, **NOTED).overwrite(replaced)
        self.commits += 1

    def amend(self, statement: str, fence: Fence) -> None:
        """Run one MERGE, UPDATE or DELETE once: Delta skips a repeat under the same or an older token."""
        options = {f"spark.databricks.delta.write.{key}": value for key, value in fence.writer_options().items()}
        with session_settings(self.spark, options | NOTED_SQL):
            self.run(statement)
        self.commits += 1

    def delete_tokens(self, table: Table, tokens: list[int], source: str | None) -> None:
        """Remove the rows that were written under these tokens; with `source`, only its rows in a shared table."""
        listed = ", ".join(str(int(token)) for token in tokens)
        of_source = "" if source is None else f"source = {literal(source)} AND "
        statement = f"DELETE FROM {qualified(table.database, table.table)} WHERE {of_source}token IN ({listed})"
        with session_settings(self.spark, NOTED_SQL):
            self.run(statement)
        self.commits += 1

    def delete_values(self, table: Table, column: str, values: Sequence[str]) -> None:
        """Remove the rows whose `column` is one of `values`; of a partition column this rewrites no file."""
        listed = ", ".join(literal(value) for value in values)
        statement = f"DELETE FROM {qualified(table.database, table.table)} WHERE {name(column)} IN ({listed})"
        with session_settings(self.spark, NOTED_SQL):
            self.run(statement)
        self.commits += 1
