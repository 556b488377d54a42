"""The tables of a session that exist, with their columns; missing tables are created, and tables with too few columns
widened."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ConfigurationError
from spark_jobs.storage.delta_log import clear_unfinished, open_table
from spark_jobs.storage.fingerprints import NOTED
from spark_jobs.storage.log_files import LOG_DIR
from spark_jobs.storage.places import WAREHOUSE, file_system, for_spark, lake_root, storage_options, table_uri
from spark_jobs.storage.records import RECORDS, lost, widen_records
from spark_jobs.storage.schema import IDENTITY, Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.table_notes import NotedTable, column_types, noted_table
from spark_jobs.storage.wider_types import beyond_exact, widens
from spark_jobs.threads import in_threads

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession


_CREATION_S = (1.0, 2.0, 4.0)
"""Seconds that another run is given to create a table, try by try; it takes some tenths of a second where little
runs."""
_TRIES = 8
"""The most tries to define a function, if another run is defining it each time."""
_PIECE = 8 << 20
"""Bytes of a file that are copied at a time."""


class TableDiffers(ConfigurationError):
    """A table exists with columns that its description does not fit. Facts: `table`."""

    code = "table_differs"


def _differs(table: Table, *, expected: str, found: str) -> TableDiffers:
    return TableDiffers(
        expected=expected,
        found=found,
        consequence="nothing was run",
        next_step="give the changed window, aggregate or column another name: history keeps the old one (`from:` says "
        "what files call a column); or undo the change; or `tidemark source reset`, and land all of it again",
        table=table.qualified,
    )


class StandingTables:
    """The tables of one Spark session. Cheap to make: it only remembers the columns of tables that it has seen to
    exist."""

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
        """The path or URI of a table's folder, for readers other than Spark."""
        return self._place(table.database, table.table)

    def _place(self, database: str, table: str) -> str:
        return table_uri(self._root, database, table)

    def noted(self, database: str, table: str, version: int | None = None) -> NotedTable:
        """The log's description of a table that exists, at its newest version or the one named."""
        return noted_table(self._place(database, table), self._storage_options, version)

    def properties(self, table: Table) -> dict[str, str]:
        """The properties of a table in its log, whatever the catalog has; runs no job.

        Raises:
            deltalake.exceptions.TableNotFoundError: there is no table.
        """
        return open_table(self.uri(table), self._storage_options).metadata().configuration

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create the missing databases (name -> comment) and tables; returns the tables that were missing. Others stay
        as they are. The last table is created once all others exist.

        A table that the catalog has lost, and whose log is in its place, is taken up as it is.
        """
        present = self.databases()
        for database, comment in databases.items():
            if database not in present:
                self.define(f"CREATE DATABASE IF NOT EXISTS {name(database)} COMMENT {literal(comment)}")
        existing = self.names_in({table.database for table in tables})
        missing = [table for table in tables if table.table not in existing[table.database]]
        in_threads(self._create, missing[:-1])
        if missing:
            self._create(missing[-1])
        return missing

    def _create(self, table: Table) -> None:
        """Create a table. Another run may be creating it at the same time, or may have been stopped while it did.

        First runs of two sources meet at the tables that sources share. The errors of Delta and the catalog then depend
        on the moment. So the files in the table's place decide whether it is tried again.
        """
        for pause_s in (*_CREATION_S, None):
            try:
                if not self.take_up(table.database, table.table):
                    self.define(table.ddl())
            except Exception:
                if pause_s is None or not self._is_begun(table):
                    raise
            else:
                return
            time.sleep(pause_s)
            if "://" not in self._root:
                # an object store has no folders
                clear_unfinished(Path(self.uri(table)))

    def _is_begun(self, table: Table) -> bool:
        """True if the table is in its place, or the folder that a creation makes before the table."""
        return self.is_stored(table.database, table.table) or Path(self.uri(table)).is_dir()

    def is_stored(self, database: str, table: str) -> bool:
        """True if there is a table in its place, whatever the catalog has."""
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self._place(database, table), self._storage_options or None)

    def root_files(self) -> FileSystem:
        """The files below the lake's root, by their paths in it."""
        return file_system(self._root, self._storage_options)

    def remove_folder(self, table: Table) -> None:
        """Remove the folder of a dropped table: a table that was taken up leaves its files there."""
        self.remove_files(self._below_root(table))

    def remove_files(self, folder: str) -> None:
        """Remove a folder below the lake's root, if it is there."""
        from pyarrow.fs import FileType

        system = self.root_files()
        if system.get_file_info(folder).type == FileType.Directory:
            system.delete_dir(folder)

    def newest_file(self, folder: str) -> float:
        """The time at which a file below a folder of the lake was last written, in seconds since 1970; 0 if there is
        none."""
        from pyarrow.fs import FileSelector, FileType

        files = self.root_files().get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
        return max((file.mtime_ns / 1e9 for file in files if file.type == FileType.File), default=0.0)

    def copy_folder(self, table: Table, copy: Table) -> None:
        """Replace `copy` by the files of `table`, its log included, and give it to the catalog."""
        from pyarrow.fs import FileSelector, FileType

        self.drop(copy)
        system, of = self.root_files(), self._below_root
        files = system.get_file_info(FileSelector(of(table), recursive=True))
        # the log last, oldest version first: until its first file is there, there is no table
        paths = sorted((LOG_DIR in f.path.split("/"), f.path) for f in files if f.type == FileType.File)
        for _, path in paths:
            target = of(copy) + path.removeprefix(of(table))
            if "://" not in self._root:
                system.create_dir(target.rpartition("/")[0], recursive=True)
            with system.open_input_stream(path) as read, system.open_output_stream(target) as write:
                while piece := read.read(_PIECE):
                    write.write(piece)
        self.take_up(copy.database, copy.table)

    def drop(self, table: Table) -> None:
        """Remove a table from the catalog, and its files; nothing if there is none."""
        if table.database in self.databases():
            self.define(f"DROP TABLE IF EXISTS {qualified(table.database, table.table)}")
        self.remove_folder(table)

    def _below_root(self, table: Table) -> str:
        return self.uri(table).removeprefix(self._root.rstrip("/")).strip("/")

    def take_up(self, database: str, table: str) -> bool:
        """Give the catalog a table that it does not have, if there is one in its place; returns true if there is."""
        if not self.is_stored(database, table):
            return False
        place = f"{(self.spark.conf.get(WAREHOUSE) or '').rstrip('/')}/{database}.db/{table}"
        self.define(f"CREATE TABLE IF NOT EXISTS {qualified(database, table)} USING DELTA LOCATION {literal(place)}")
        return True

    def lacking(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """The columns that existing tables lack, or have with a narrower type, by table; tables without such columns
        are left out. Runs no job.

        Raises:
            TableDiffers: a column has another type, whose values do not all fit into the wanted type.
        """
        found = {}
        for table, stands in self._stand(tables):
            other = [
                column
                for column in table.columns
                if (stood := stands.get(column.name, column.kind)) != column.kind and not widens(stood, column.kind)
            ]
            if other:
                raise _differs(
                    table,
                    expected=", ".join(f"{column.name} as {column.kind}" for column in other),
                    found=", ".join(f"{column.name} as {stands[column.name]}" for column in other),
                )
            missing = [column for column in table.columns if stands.get(column.name) != column.kind]
            if missing:
                found[table] = missing
        return found

    def widen(self, tables: Sequence[Table]) -> None:
        """Add the columns that existing tables lack, filled by their `filled`, and give the wider type to those with a
        narrower one. Further columns of the tables stay, with nulls from now on.

        Raises:
            TableDiffers: a column has another type, or values that do not fit into the wider one.
        """
        lacking = self.lacking(tables)
        narrower = {
            table: [c for c in missing if c.name in self._seen[table.qualified]] for table, missing in lacking.items()
        }
        for table, columns in narrower.items():
            self._check_exact(table, columns)
        for table, columns in narrower.items():
            if columns:
                self._retype(table, columns)
        for table, columns in lacking.items():
            missing = [column for column in columns if column not in narrower[table]]
            del self._seen[table.qualified]
            if not missing:
                continue
            if table.qualified in RECORDS:
                self._widen_records(table, missing)
                continue
            plain = [column for column in missing if not column.filled]
            if plain:
                self.define(table.added(plain))
            if len(plain) < len(missing):
                self._fill(table, [column for column in missing if column.filled])

    def _check_exact(self, table: Table, columns: Sequence[Column]) -> None:
        """Refuse to make doubles of whole numbers that a double can't have exactly.

        Raises:
            TableDiffers: there is such a number.
        """
        stands = self._seen[table.qualified]
        for column in columns:
            if not column.kind.endswith(("double", "double>")):
                continue
            beyond = self.read(table).where(beyond_exact(name(column.name), stands[column.name]))
            if not beyond.isEmpty():
                raise _differs(
                    table,
                    expected=f"whole numbers in {column.name} that are doubles, too: up to 2^53",
                    found="greater ones",
                )

    def _retype(self, table: Table, columns: Sequence[Column]) -> None:
        """Write a table anew with other types of some columns, in one commit."""
        rows = self.read(table)
        wider = {
            c.name: F.col(name(c.name)).cast(c.type).alias(c.name, metadata={"comment": c.comment}) for c in columns
        }
        writer = (
            rows.withColumns(wider).write.format("delta").mode("overwrite").options(overwriteSchema="true", **NOTED)
        )
        # by its path: by its name the table would be replaced, and lose its comment and properties
        writer = writer.partitionBy(*table.partitions) if table.partitions else writer
        writer.save(for_spark(self.uri(table)))
        self.commits += 1

    def _fill(self, table: Table, columns: Sequence[Column]) -> None:
        """Add columns with their values for older rows, in one commit: a column that exists is filled."""
        writer = self._filled(table, columns).writeTo(table.qualified).options(mergeSchema="true", **NOTED)
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
        """Refuse an existing table whose rows are identified by other columns.

        Raises:
            TableDiffers: they are.
        """
        # not by Spark, which replaces values that have `token` or `url` in them
        identity = self.properties(table).get(IDENTITY, "")
        of_source, wanted = identity.split(",")[0], table.identity[0]
        if of_source and of_source != wanted:
            raise TableDiffers(
                expected=f"{table.qualified} to be of {wanted}",
                found=f"the table of {of_source}",
                consequence="nothing was run",
                next_step=f"if {of_source} has another name now, `tidemark source rename {of_source} {wanted}`"
                f" lets its tables follow; if it is no longer wanted, `tidemark source drop {of_source}`; else give the"
                " window another name",
                table=table.qualified,
            )
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
        """`names` of each database, which are asked for at once, since each answer takes a while."""
        return dict(zip(databases, in_threads(self.names, list(databases)), strict=True))

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        return self.names(database) if database in self.databases() else set()

    def run(self, statement: str) -> DataFrame:
        """Run one statement made of `storage.sql` parts."""
        return self.spark.sql(statement)

    def define(self, statement: str) -> None:
        """Create or replace a database, table, view or function; a function also while other runs define it."""
        from pyspark.errors import PySparkException

        for left in reversed(range(_TRIES)):
            try:
                self.run(statement)
            except PySparkException as error:
                # Spark looks for a function, drops it and creates another: each step can meet a step of another run
                if not left or error.getCondition() not in ("ROUTINE_ALREADY_EXISTS", "ROUTINE_NOT_FOUND"):
                    raise
            else:
                return

    def read(self, table: Table) -> DataFrame:
        """All physical rows of a table, visible or not."""
        return self.spark.table(table.qualified)
