"""Tables as data: database, columns with comments, partitions; and the DDL made of them.

A table is described once, here or in `tables.py`; every reader and writer takes names from the description.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_jobs.storage.descriptions.sql import literal, name

IDENTITY = "tidemark.identity"
"""Table property: the columns of `Table.identity`, separated by commas."""


LONGEST_COMMENT = 255
"""The most characters of a column's comment that Hive's metastore takes. With a longer comment it retries a view for 20
s, before Spark stores the view otherwise."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its Spark SQL type, and a comment that a SQL user understands.

    `filled`: the value in rows that were written before the column existed, as SQL over the columns of that time; empty
    for null.
    """

    name: str
    type: str
    comment: str
    filled: str = ""

    @property
    def kind(self) -> str:
        """The type as Spark names it for a table that exists."""
        return self.type.lower().replace(" ", "")

    def ddl(self) -> str:
        """The definition of the column in CREATE TABLE."""
        return f"{name(self.name)} {self.type} {self._comment_clause()}"

    def of_view(self) -> str:
        """The definition of the column in CREATE VIEW, where the query determines the type."""
        return f"{name(self.name)} {self._comment_clause()}"

    @property
    def short_comment(self) -> str:
        """The comment, cut off at the length that the metastore takes."""
        return self.comment if len(self.comment) <= LONGEST_COMMENT else f"{self.comment[: LONGEST_COMMENT - 1]}…"

    def _comment_clause(self) -> str:
        return f"COMMENT {literal(self.short_comment)}"


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table: `database.table`, its columns in order, its partition columns and the columns with statistics.

    `skipping` names the columns whose minimum and maximum Delta keeps per file, so that reads skip files by them.
    """

    database: str
    table: str
    comment: str
    columns: tuple[Column, ...]
    partitions: tuple[str, ...] = ()
    skipping: tuple[str, ...] = field(default=())
    identity: tuple[str, ...] = ()
    """Columns that identify a row among those in force at the same time, stored with the table; empty: not stored."""

    @property
    def qualified(self) -> str:
        """`database.table`."""
        return f"{self.database}.{self.table}"

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]

    def schema(self) -> str:
        """The schema as Spark's DDL string, for `createDataFrame` and `mapInArrow`."""
        return ", ".join(f"{name(column.name)} {column.type}" for column in self.columns)

    @property
    def properties(self) -> dict[str, str]:
        """The table properties. Deletion vectors stay off so that other engines (DuckDB, delta-rs) read the table."""
        properties = {"delta.enableDeletionVectors": "false"}
        if self.identity:
            properties[IDENTITY] = ",".join(self.identity)
        if self.skipping:
            properties["delta.dataSkippingStatsColumns"] = ",".join(self.skipping)
        return properties

    def ddl(self) -> str:
        """CREATE TABLE IF NOT EXISTS, with comments and properties."""
        columns = ", ".join(column.ddl() for column in self.columns)
        partitions = f" PARTITIONED BY ({', '.join(map(name, self.partitions))})" if self.partitions else ""
        rendered = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in self.properties.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {name(self.database)}.{name(self.table)} ({columns}) USING delta{partitions}"
            f" COMMENT {literal(self.comment)} TBLPROPERTIES ({rendered})"
        )

    def add_columns(self, columns: Iterable[Column]) -> str:
        """The ALTER TABLE statement that adds these columns to an older version of the table."""
        listed = ", ".join(column.ddl() for column in columns)
        return f"ALTER TABLE {name(self.database)}.{name(self.table)} ADD COLUMNS ({listed})"
