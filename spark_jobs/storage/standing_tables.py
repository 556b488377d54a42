"""The tables of a session: which stand, and with which columns; those that lack are created and widened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ConfigurationError
from spark_jobs.storage.places import WAREHOUSE, lake_root, storage_options, table_uri
from spark_jobs.storage.records import RECORDS, record_columns, widen_records
from spark_jobs.storage.schema import IDENTITY, Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.table_notes import NotedTable, noted_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_TABLE = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")
"""What Spark calls a table that is not there."""


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

    def noted(self, database: str, table: str) -> NotedTable | None:
        """What the log of a table that stands says; None where a column is of no plain type."""
        return noted_table(self._place(database, table), self._storage_options)

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create what is missing, databases (name -> comment) and tables; returns the tables that were. Others stay
        as they are.

        A table that the catalog has lost, and whose log is where it belongs, is taken up as it is.
        """
        present = {row.namespace for row in self.spark.sql("SHOW DATABASES").collect()}
        for database, comment in databases.items():
            if database not in present:
                self.define(f"CREATE DATABASE IF NOT EXISTS {name(database)} COMMENT {literal(comment)}")
        if {table.database for table in tables} <= present and self._all_stand(tables):
            return []
        existing = {database: self.names(database) for database in {table.database for table in tables}}
        missing = [table for table in tables if table.table not in existing[table.database]]
        for table in missing:
            if not self.take_up(table.database, table.table):
                self.define(table.ddl())
        return missing

    def take_up(self, database: str, table: str) -> bool:
        """Give the catalog a table that it does not have, if there is one in its place; whether there is."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._place(database, table), self._storage_options or None):
            return False
        place = f"{(self.spark.conf.get(WAREHOUSE) or '').rstrip('/')}/{database}.db/{table}"
        self.define(f"CREATE TABLE IF NOT EXISTS {qualified(database, table)} USING DELTA LOCATION {literal(place)}")
        return True

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
