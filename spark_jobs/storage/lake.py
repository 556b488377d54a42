"""The lake: databases, tables and views of a set of sources, and the few ways to write them.

Everything that a run writes is an append or the replacement of one source's partition, under the attempt's fence.
Nothing here decides what is visible: that is `trace.published` (see `storage.views`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ConfigurationError
from spark_jobs.storage.dense_files import WRITER_OPTIONS, dense_files
from spark_jobs.storage.fence import Fence, Superseded
from spark_jobs.storage.file_summaries import FileSummary, logged_files, summarize_files
from spark_jobs.storage.places import lake_root, storage_options, table_uri
from spark_jobs.storage.records import (
    RECORDS,
    Rows,
    append_records,
    committed_token,
    lost,
    read_records,
    record_columns,
    replace_records,
    widen_records,
)
from spark_jobs.storage.schema import IDENTITY, Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import FILES, FRONTIERS, PUBLISHED
from spark_jobs.storage.times import utc_rows

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import Column as SqlColumn
    from pyspark.sql import DataFrame, SparkSession


MOST_ROWS_A_FILE = 1_000_000
"""A backfill of years writes several files, each a stretch of its sort order, so that later reads skip most."""


FILE_RETENTION = "delta.deletedFileRetentionDuration"
"""Table property: for how long files that are out of use stay."""
DEFAULT_RETENTION = timedelta(days=7)

_NO_TABLE = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")
"""What Spark calls a table that is not there."""

_OF_FILE = {"file": "file_path", "file_size": "file_size"}


class TableDiffers(ConfigurationError):
    """A table stands with columns that its description does not fit. Facts: `table`."""

    code = "table_differs"


def _differs(table: Table, *, expected: str, found: str) -> TableDiffers:
    return TableDiffers(
        expected=expected,
        found=found,
        consequence="nothing was run",
        next_step="give the changed window, aggregate or column another name: history keeps the old one",
        table=table.qualified,
    )


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


class Lake:
    """Tables of one Spark session. Cheap to make; holds no state but what it has seen to exist."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.commits = 0
        """Delta commits made through this object, for the run's report."""
        self._seen: dict[str, dict[str, str]] = {}

    @cached_property
    def _root(self) -> str:
        return lake_root(self.spark)

    @cached_property
    def _storage_options(self) -> dict[str, str]:
        return storage_options(self.spark, self._root)

    def uri(self, table: Table) -> str:
        """Where a table lies, for readers that are not Spark."""
        return table_uri(self._root, table)

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
        tables = (FILES, FRONTIERS, PUBLISHED)
        return max(committed_token(self.uri(table), self._storage_options, source) for table in tables)

    def summaries(
        self, table: Table, partition: str, values: Sequence[str] | None, columns: Sequence[str]
    ) -> list[FileSummary]:
        """What the data files of some partitions hold; see `storage.file_summaries`."""
        return list(summarize_files(self.uri(table), self._storage_options, partition, values, columns))

    def logged_bounds(self, table: Table, column: str) -> list[FileSummary]:
        """What the table's log says of its files; see `storage.file_summaries`."""
        return logged_files(self.uri(table), self._storage_options, column)

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Append rows to a table of records, in one commit.

        Raises:
            Superseded: an attempt with this token or a newer one has committed to it.
        """
        if not append_records(self.uri(table), self._storage_options, rows, fence):
            raise _superseded(table, fence)
        self.commits += 1

    def replace_record(self, table: Table, row: dict[str, Any], fence: Fence) -> None:
        """Let `row` be the only one of the fence's source in a table of records, in one commit.

        Raises:
            Superseded: as `record`.
        """
        if not replace_records(self.uri(table), self._storage_options, [row], fence):
            raise _superseded(table, fence)
        self.commits += 1

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create what is missing, databases (name -> comment) and tables; returns the tables that were. Others stay
        as they are."""
        present = {row.namespace for row in self.spark.sql("SHOW DATABASES").collect()}
        for database, comment in databases.items():
            if database not in present:
                self.define(f"CREATE DATABASE IF NOT EXISTS {name(database)} COMMENT {literal(comment)}")
        if {table.database for table in tables} <= present and self._all_stand(tables):
            return []
        existing = {database: self.names(database) for database in {table.database for table in tables}}
        missing = [table for table in tables if table.table not in existing[table.database]]
        for table in missing:
            self.define(table.ddl())
        return missing

    def _all_stand(self, tables: Sequence[Table]) -> bool:
        """Whether all of these tables are there: one look at the catalog, which says what columns they have, too."""
        from deltalake.exceptions import TableNotFoundError

        try:
            self._look_at(tables)
        except TableNotFoundError:
            return False
        except AnalysisException as missing:
            if missing.getCondition() in _NO_TABLE:
                return False
            raise
        return True

    def lacking(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """The columns that tables which stand lack, for those that lack some; looks at all of them in one query.

        Raises:
            TableDiffers: a column has another type.
        """
        found = {}
        for table, stands in self._stand(tables):
            other = [column for column in table.columns if stands.get(column.name, column.kind) != column.kind]
            if other:
                raise _differs(
                    table,
                    expected=", ".join(f"{column.name} as {column.kind}" for column in other),
                    found=", ".join(f"{column.name} as {stands[column.name]}" for column in other),
                )
            missing = [column for column in table.columns if column.name not in stands]
            if missing:
                found[table] = missing
        return found

    def widen(self, tables: Sequence[Table]) -> None:
        """Add the columns that tables which stand lack, filled as they say; what the tables have beyond them stays,
        with nulls from now on.

        Raises:
            TableDiffers: a column has another type.
        """
        for table, missing in self.lacking(tables).items():
            del self._seen[table.qualified]
            if table.qualified in RECORDS:
                self._widen_records(table, missing)
                continue
            plain = [column for column in missing if not column.filled]
            if plain:
                self.define(table.added(plain))
            if len(plain) < len(missing):
                self._fill(table, [column for column in missing if column.filled])

    def _fill(self, table: Table, columns: Sequence[Column]) -> None:
        """Add columns with what older rows have in them, in one commit: a column that is there is filled."""
        writer = self._filled(table, columns).writeTo(table.qualified).option("mergeSchema", "true")
        writer.overwrite(F.lit(True))
        self.commits += 1

    def _widen_records(self, table: Table, columns: Sequence[Column]) -> None:
        comments = {column.name: column.comment for column in columns}
        widen_records(self.uri(table), self._storage_options, lambda: self._filled(table, columns).toArrow(), comments)
        self.commits += 1

    def _filled(self, table: Table, columns: Sequence[Column]) -> DataFrame:
        filled = [
            F.expr(c.filled or "NULL").cast(c.type).alias(c.name, metadata={"comment": c.comment}) for c in columns
        ]
        return self.read(table).select("*", *filled)

    def check_identity(self, table: Table) -> None:
        """Refuse a table that stands and tells its rows apart by other columns.

        Raises:
            TableDiffers: it does.
        """
        shown = self.run(f"SHOW TBLPROPERTIES {qualified(table.database, table.table)}").collect()
        identity = next((row.value for row in shown if row.key == IDENTITY), "")
        if identity != ",".join(table.identity):
            raise _differs(
                table,
                expected=f"rows of {table.qualified} told apart by {', '.join(table.identity)}",
                found=f"told apart by {identity.replace(',', ', ')}",
            )

    def _stand(self, tables: Sequence[Table]) -> Iterator[tuple[Table, dict[str, str]]]:
        """Each table with the types of the columns that it has, by name."""
        self._look_at([table for table in tables if table.qualified not in self._seen])
        for table in tables:
            yield table, self._seen[table.qualified]

    def _look_at(self, tables: Sequence[Table]) -> None:
        """Remember the columns of tables that stand."""
        # Spark would run a job for each table of records: it has no summary of commits that are not its own
        kept = [table for table in tables if table.qualified in RECORDS]
        for table in kept:
            self._seen[table.qualified] = record_columns(self.uri(table), self._storage_options)
        others = [table for table in tables if table not in kept]
        if not others:
            return
        # a query that is never run: its schema has all of theirs
        columns = ", ".join(f"struct(t{i}.*) AS t{i}" for i in range(len(others)))
        listed = " CROSS JOIN ".join(f"{qualified(t.database, t.table)} t{i}" for i, t in enumerate(others))
        statement = f"SELECT {columns} FROM {listed}"
        for table, of_table in zip(others, self.run(statement).schema, strict=True):
            fields: Any = of_table.dataType
            self._seen[table.qualified] = {field.name: field.dataType.simpleString() for field in fields}

    def names(self, database: str) -> set[str]:
        """Tables and views of a database."""
        return {row.tableName for row in self.run(f"SHOW TABLES IN {name(database)}").collect()}

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        present = {row.namespace for row in self.spark.sql("SHOW DATABASES").collect()}
        return self.names(database) if database in present else set()

    def run(self, statement: str) -> DataFrame:
        """Run one statement made of `storage.sql` parts."""
        return self.spark.sql(statement)

    def define(self, statement: str) -> None:
        """Create or replace a database, table, view or function."""
        self.run(statement)

    def read(self, table: Table) -> DataFrame:
        """All physical rows of a table, whatever is visible."""
        return self.spark.table(table.qualified)

    def read_with_files(self, table: Table) -> DataFrame:
        """`read`, with the columns `file` and `file_size` of the file that holds each row."""
        return self.read(table).withColumns({name: F.col(f"_metadata.{found}") for name, found in _OF_FILE.items()})

    def files_read(self, table: Table) -> DataFrame:
        """The files that hold the table's rows, as `path`."""
        return self.read(table).select(F.url_decode("_metadata.file_path").alias("path")).distinct()

    def files_stored(self, table: Table) -> DataFrame:
        """All data files under the table's folder, also those that nothing reads any more, as `path` and `length`."""
        details = self.run(f"DESCRIBE DETAIL {qualified(table.database, table.table)}").collect()[0]
        # lists the folder; the files themselves are not opened
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        found = files.option("pathGlobFilter", "*.parquet").load(details.location)
        return found.select(F.url_decode("path").alias("path"), "length")

    def vacuum(self, table: Table) -> None:
        """Remove files that nothing has read for Delta's retention, a week by default; there are none in a table that
        is younger, and looking for them takes half a minute."""
        details = utc_rows(self.run(f"DESCRIBE DETAIL {qualified(table.database, table.table)}"))[0]
        by_default = FILE_RETENTION not in dict(details["properties"])
        if by_default and datetime.now(UTC) - details["createdAt"] < DEFAULT_RETENTION:
            return
        self.run(f"VACUUM {qualified(table.database, table.table)}")

    def frame(self, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
        """A small frame with the table's columns; a missing key is null."""
        values = [tuple(row.get(column) for column in table.column_names) for row in rows]
        return self.spark.createDataFrame(values, table.schema()).coalesce(1)

    def append(self, table: Table, rows: DataFrame, fence: Fence | None) -> None:
        """Append, once: a repeat under the same or an older token is skipped by Delta.

        No fence: appended always, for rows that count only where a fenced commit names the attempt that wrote them.
        Delta's check costs a job to read what the table's log says of earlier attempts.
        """
        ordered = rows.select(*table.column_names)
        options = {"maxRecordsPerFile": str(MOST_ROWS_A_FILE)}
        if fence is not None:
            options |= fence.writer_options()
        ordered.writeTo(table.qualified).options(**options).append()
        self.commits += 1

    def append_dense(self, table: Table, rows: DataFrame, rows_in_page: int) -> None:
        """`append` of chunks without a fence, in files of the layout of `storage.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS).append()
        self.commits += 1

    def replace_dense(self, table: Table, rows: DataFrame, replaced: SqlColumn, rows_in_page: int) -> None:
        """Put chunks in the place of those that `replaced` selects, in one commit; `rows` meet it, too. Without a
        fence, in files of the layout of `storage.dense_files`."""
        ordered = rows.select(*table.column_names)
        with dense_files(self.spark, table, rows_in_page):
            ordered.writeTo(table.qualified).options(**WRITER_OPTIONS).overwrite(replaced)
        self.commits += 1

    def replace_values(self, table: Table, rows: DataFrame, column: str, values: Sequence[str]) -> None:
        """Replace the partitions whose `column` is one of `values` by `rows`, which lie in them, in one commit.

        As `append` without a fence: for partitions that count only where a fenced commit names them.
        """
        writer = rows.select(*table.column_names).writeTo(table.qualified)
        writer.option("maxRecordsPerFile", str(MOST_ROWS_A_FILE)).overwrite(F.col(column).isin(list(values)))
        self.commits += 1

    def amend(self, statement: str, fence: Fence) -> None:
        """Run one MERGE, UPDATE or DELETE, once: a repeat under the same or an older token is skipped by Delta."""
        options = {f"spark.databricks.delta.write.{key}": value for key, value in fence.writer_options().items()}
        for option, value in options.items():
            self.spark.conf.set(option, value)
        try:
            self.run(statement)
        finally:
            for option in options:
                self.spark.conf.unset(option)
        self.commits += 1

    def delete_tokens(self, table: Table, tokens: list[int], source: str | None) -> None:
        """Remove what was written under these tokens, of one source where the table is shared."""
        listed = ", ".join(str(int(token)) for token in tokens)
        of_source = "" if source is None else f"source = {literal(source)} AND "
        statement = f"DELETE FROM {qualified(table.database, table.table)} WHERE {of_source}token IN ({listed})"
        self.run(statement)
        self.commits += 1

    def delete_values(self, table: Table, column: str, values: Sequence[str]) -> None:
        """Remove the rows whose `column` is one of `values`; of a partition column this rewrites no file."""
        listed = ", ".join(literal(value) for value in values)
        statement = f"DELETE FROM {qualified(table.database, table.table)} WHERE {name(column)} IN ({listed})"
        self.run(statement)
        self.commits += 1
