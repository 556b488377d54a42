"""The tables of a session: which stand, and with which columns; those that lack are created and widened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ConfigurationError
from spark_jobs.storage.delta_log import open_table
from spark_jobs.storage.places import WAREHOUSE, file_system, lake_root, storage_options, table_uri
from spark_jobs.storage.records import RECORDS, lost, widen_records
from spark_jobs.storage.schema import IDENTITY, Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.table_notes import NotedTable, column_types, noted_table
from spark_jobs.threads import in_threads

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession


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


class StandingTables:
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
        return self._place(table.database, table.table)

    def _place(self, database: str, table: str) -> str:
        return table_uri(self._root, database, table)

    def noted(self, database: str, table: str, version: int | None = None) -> NotedTable:
        """What the log of a table that stands says, of its newest version or the one named."""
        return noted_table(self._place(database, table), self._storage_options, version)

    def properties(self, table: Table) -> dict[str, str]:
        """The properties that the log of a table has, whatever the catalog says; runs no job.

        Raises:
            deltalake.exceptions.TableNotFoundError: there is no table.
        """
        return open_table(self.uri(table), self._storage_options).metadata().configuration

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create what is missing, databases (name -> comment) and tables; returns the tables that were. Others stay
        as they are.

        A table that the catalog has lost, and whose log is where it belongs, is taken up as it is.
        """
        present = self.databases()
        for database, comment in databases.items():
            if database not in present:
                self.define(f"CREATE DATABASE IF NOT EXISTS {name(database)} COMMENT {literal(comment)}")
        existing = self.names_in({table.database for table in tables})
        missing = [table for table in tables if table.table not in existing[table.database]]
        in_threads(self._create, missing)
        return missing

    def _create(self, table: Table) -> None:
        if not self.take_up(table.database, table.table):
            self.define(table.ddl())

    def is_stored(self, database: str, table: str) -> bool:
        """Whether there is a table in its place, whatever the catalog says."""
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self._place(database, table), self._storage_options or None)

    def root_files(self) -> FileSystem:
        """The files below the lake's root, by their paths in it."""
        return file_system(self._root, self._storage_options)

    def remove_folder(self, table: Table) -> None:
        """Remove what is left of a table that was dropped: of one that was taken up, its files."""
        self.remove_files(self.uri(table).removeprefix(self._root.rstrip("/")).strip("/"))

    def remove_files(self, folder: str) -> None:
        """Remove a folder below the lake's root, if it is there."""
        from pyarrow.fs import FileType

        system = self.root_files()
        if system.get_file_info(folder).type == FileType.Directory:
            system.delete_dir(folder)

    def take_up(self, database: str, table: str) -> bool:
        """Give the catalog a table that it does not have, if there is one in its place; whether there is."""
        if not self.is_stored(database, table):
            return False
        place = f"{(self.spark.conf.get(WAREHOUSE) or '').rstrip('/')}/{database}.db/{table}"
        self.define(f"CREATE TABLE IF NOT EXISTS {qualified(database, table)} USING DELTA LOCATION {literal(place)}")
        return True

    def lacking(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """The columns that tables which stand lack, for those that lack some; runs no job.

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
        from deltalake.exceptions import TableNotFoundError

        for table in tables:
            if table.qualified not in self._seen:
                try:
                    # Spark would run a job for a table whose newest commit is not its own
                    self._seen[table.qualified] = column_types(self.uri(table), self._storage_options)
                except TableNotFoundError:
                    raise lost(self.uri(table)) from None
            yield table, self._seen[table.qualified]

    def databases(self) -> set[str]:
        """The databases that the catalog has."""
        return {row.namespace for row in self.spark.sql("SHOW DATABASES").collect()}

    def names(self, database: str) -> set[str]:
        """Tables and views of a database."""
        return {row.tableName for row in self.run(f"SHOW TABLES IN {name(database)}").collect()}

    def views(self, database: str) -> set[str]:
        """Views of a database."""
        return {row.viewName for row in self.run(f"SHOW VIEWS IN {name(database)}").collect()}

    def names_in(self, databases: Collection[str]) -> dict[str, set[str]]:
        """`names` of each; they are asked for at once, since each answer is waited for."""
        return dict(zip(databases, in_threads(self.names, list(databases)), strict=True))

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        return self.names(database) if database in self.databases() else set()

    def run(self, statement: str) -> DataFrame:
        """Run one statement made of `storage.sql` parts."""
        return self.spark.sql(statement)

    def define(self, statement: str) -> None:
        """Create or replace a database, table, view or function."""
        self.run(statement)

    def read(self, table: Table) -> DataFrame:
        """All physical rows of a table, whatever is visible."""
        return self.spark.table(table.qualified)
