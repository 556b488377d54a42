"""The catalog of a Spark session: databases, tables, views and functions by name, and the columns that tables have."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from spark_jobs.storage.delta.delta_log import clear_unfinished
from spark_jobs.storage.delta.fingerprints import NOTED
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import WAREHOUSE, LakeFolder, for_spark
from spark_jobs.storage.delta.records import RECORDS, widen_records
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.descriptions.wider_types import beyond_exact
from spark_jobs.storage.lakes.table_columns import TableColumns, differs
from spark_jobs.threads import in_threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CREATION_S = (1.0, 2.0, 4.0)
"""Seconds that another run is given to create a table, try by try; it takes some tenths of a second where little
runs."""
_TRIES = 8
"""The most tries to define a function, if another run is defining it each time."""
_PIECE = 8 << 20
"""Bytes of a file that are copied at a time."""


class SparkCatalog(TableColumns):
    """The catalog of a session, and the folder that has its tables. Cheap to make: it only remembers the columns of
    tables that it has seen to exist."""

    def __init__(self, spark: SparkSession, folder: LakeFolder) -> None:
        super().__init__(folder)
        self._spark = spark
        self.commits = 0
        """Delta commits that widened tables, made through this object."""

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
            if self._folder.is_local:
                # an object store has no folders
                clear_unfinished(self._folder.handle(table))

    def _is_begun(self, table: Table) -> bool:
        """True if the table is in its place, or the folder that a creation makes before the table."""
        return self._folder.is_stored(table.database, table.table) or Path(self._folder.handle(table).uri).is_dir()

    def copy_folder(self, table: Table, copy: Table) -> None:
        """Replace `copy` by the files of `table`, its log included, and give it to the catalog."""
        from pyarrow.fs import FileSelector, FileType

        self.drop(copy)
        system, of = self._folder.files(), self._folder.path
        files = system.get_file_info(FileSelector(of(table), recursive=True))
        # the log last, oldest version first: until its first file is there, there is no table
        paths = sorted((LOG_DIR in f.path.split("/"), f.path) for f in files if f.type == FileType.File)
        for _, path in paths:
            target = of(copy) + path.removeprefix(of(table))
            if self._folder.is_local:
                system.create_dir(target.rpartition("/")[0], recursive=True)
            with system.open_input_stream(path) as read, system.open_output_stream(target) as write:
                while piece := read.read(_PIECE):
                    write.write(piece)
        self.take_up(copy.database, copy.table)

    def drop(self, table: Table) -> None:
        """Remove a table from the catalog, and its files; nothing if there is none."""
        if table.database in self.databases():
            self.define(f"DROP TABLE IF EXISTS {qualified(table.database, table.table)}")
        self._folder.remove(self._folder.path(table))

    def take_up(self, database: str, table: str) -> bool:
        """Give the catalog a table that it does not have, if there is one in its place; returns true if there is."""
        if not self._folder.is_stored(database, table):
            return False
        place = f"{(self._spark.conf.get(WAREHOUSE) or '').rstrip('/')}/{database}.db/{table}"
        self.define(f"CREATE TABLE IF NOT EXISTS {qualified(database, table)} USING DELTA LOCATION {literal(place)}")
        return True

    def widen(self, tables: Sequence[Table]) -> None:
        """Add the columns that existing tables lack, filled by their `filled`, and give the wider type to those with a
        narrower one. Further columns of the tables stay, with nulls from now on.

        Raises:
            TableDiffers: a column has another type, or values that do not fit into the wider one.
        """
        lacking = self.missing_columns(tables)
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
                self.define(table.add_columns(plain))
            if len(plain) < len(missing):
                self._fill(table, [column for column in missing if column.filled])

    def _check_exact(self, table: Table, columns: Sequence[Column]) -> None:
        """Refuse to make doubles of whole numbers that a double can't have exactly.

        Raises:
            TableDiffers: there is such a number.
        """
        kinds = self._seen[table.qualified]
        for column in columns:
            if not column.kind.endswith(("double", "double>")):
                continue
            beyond = self._spark.table(table.qualified).where(beyond_exact(name(column.name), kinds[column.name]))
            if not beyond.isEmpty():
                raise differs(
                    table,
                    expected=f"whole numbers in {column.name} that are doubles, too: up to 2^53",
                    finding="greater ones",
                )

    def _retype(self, table: Table, columns: Sequence[Column]) -> None:
        """Write a table anew with other types of some columns, in one commit."""
        rows = self._spark.table(table.qualified)
        wider = {
            c.name: F.col(name(c.name)).cast(c.type).alias(c.name, metadata={"comment": c.comment}) for c in columns
        }
        writer = (
            rows.withColumns(wider).write.format("delta").mode("overwrite").options(overwriteSchema="true", **NOTED)
        )
        # by its path: by its name the table would be replaced, and lose its comment and properties
        writer = writer.partitionBy(*table.partitions) if table.partitions else writer
        writer.save(for_spark(self._folder.handle(table).uri))
        self.commits += 1

    def _fill(self, table: Table, columns: Sequence[Column]) -> None:
        """Add columns with their values for older rows, in one commit: a column that exists is filled."""
        writer = self._fill_columns(table, columns).writeTo(table.qualified).options(mergeSchema="true", **NOTED)
        writer.overwrite(F.lit(True))
        self.commits += 1

    def _widen_records(self, table: Table, columns: Sequence[Column]) -> None:
        comments = {column.name: column.comment for column in columns}
        widen_records(self._folder.handle(table), lambda: self._fill_columns(table, columns).toArrow(), comments)
        self.commits += 1

    def _fill_columns(self, table: Table, columns: Sequence[Column]) -> DataFrame:
        filled = [
            F.expr(c.filled or "NULL").cast(c.type).alias(c.name, metadata={"comment": c.comment}) for c in columns
        ]
        return self._spark.table(table.qualified).select("*", *filled)

    def databases(self) -> set[str]:
        """The databases that the catalog has."""
        return {row.namespace for row in self._spark.sql("SHOW DATABASES").collect()}

    def names(self, database: str) -> set[str]:
        """Tables and views of a database."""
        return {row.tableName for row in self._spark.sql(f"SHOW TABLES IN {name(database)}").collect()}

    def views(self, database: str) -> set[str]:
        """Views of a database."""
        return {row.viewName for row in self._spark.sql(f"SHOW VIEWS IN {name(database)}").collect()}

    def names_in(self, databases: Collection[str]) -> dict[str, set[str]]:
        """`names` of each database, which are asked for at once, since each answer takes a while."""
        return dict(zip(databases, in_threads(self.names, list(databases)), strict=True))

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        return self.names(database) if database in self.databases() else set()

    def define(self, statement: str) -> None:
        """Create or replace a database, table, view or function; a function also while other runs define it."""
        from pyspark.errors import PySparkException

        def has_met_another(error: BaseException) -> bool:
            # Spark looks for a function, drops it and creates another: each step can meet a step of another run
            return isinstance(error, PySparkException) and error.getCondition() in (
                "ROUTINE_ALREADY_EXISTS",
                "ROUTINE_NOT_FOUND",
            )

        tries = Retrying(
            retry=retry_if_exception(has_met_another),
            wait=wait_random_exponential(0.02, 1),
            stop=stop_after_attempt(_TRIES),
            reraise=True,
        )
        tries(self._spark.sql, statement)
