"""The names that a statement may have, as the lake server lists them: tables, columns, functions and keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYWORDS = (
    "ALL AND ANTI AS ASC BETWEEN BY CASE CAST COUNT CROSS DATE DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS EXPLAIN"
    " FALSE FILTER FIRST FROM FULL GROUP HAVING IN INNER INTERSECT INTERVAL IS JOIN LAST LATERAL LEFT LIKE LIMIT NOT"
    " NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT ROWS SELECT SEMI SHOW SUM TABLE TABLES THEN"
    " TIMESTAMP TRUE UNION USING VALUES VIEW WHEN WHERE WINDOW WITH"
)
KEYWORDS = tuple(_KEYWORDS.split())
"""The words of Spark's SQL that queries often have."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?")
"""A name in a statement, with its database or without."""


@dataclass(frozen=True)
class ColumnInSql:
    """A column of a table: its name, its type as SQL writes it, and its comment, which may be empty."""

    name: str
    type: str
    comment: str


class NamesInSql:
    """The names in the catalog of the lake server.

    They are asked for when they are first needed, and kept until `forget`.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables: list[str] | None = None
        self._functions: list[str] | None = None
        self._columns: dict[str, list[ColumnInSql]] = {}

    def forget(self) -> None:
        """Ask the server again for names from now on."""
        self._tables = self._functions = None
        self._columns.clear()

    def tables(self) -> list[str]:
        """The tables and views of all databases, as `database.table`."""
        if self._tables is None:
            self._tables = [
                f"{database}.{table}"
                for database in self._query_names("SHOW DATABASES", "namespace")
                for table in self._query_names(f"SHOW TABLES IN {_quote(database)}", "tableName")
            ]
        return self._tables

    def functions(self) -> list[str]:
        """The functions of the databases that have tables, as `database.function`: those that read the past."""
        if self._functions is None:
            databases = dict.fromkeys(table.partition(".")[0] for table in self.tables())
            self._functions = [
                name.removeprefix("spark_catalog.")
                for database in databases
                for name in self._query_names(f"SHOW USER FUNCTIONS IN {_quote(database)}", "function")
                if name.startswith("spark_catalog.")
            ]
        return self._functions

    def columns(self, table: str) -> list[ColumnInSql]:
        """The columns of a table of `tables`, in order."""
        if table not in self._columns:
            fields = self._spark.table(".".join(map(_quote, table.split(".")))).schema.fields
            self._columns[table] = [
                ColumnInSql(field.name, field.dataType.simpleString(), field.metadata.get("comment", ""))
                for field in fields
            ]
        return self._columns[table]

    def table_named(self, name: str) -> str:
        """The table that a person names with its database, or without it if only one database has such a table.

        Raises:
            ParameterError: there is no such table, or there are several.
        """
        name = name.replace("`", "").lower()
        named = [table for table in self.tables() if name in (table.lower(), table.lower().partition(".")[2])]
        if len(named) == 1:
            return named[0]
        candidates = self.tables() if "." in name else [table.partition(".")[2] for table in self.tables()]
        near = named or get_close_matches(name, dict.fromkeys(candidates))
        raise ParameterError(
            expected="the name of one table, such as silver.late",
            found=f"{name}, a table of several databases" if named else f"{name}, which no table is called",
            consequence="",
            next_step=f"did you mean {' or '.join(near)}?" if near else r"`\d` lists the tables",
        )

    def completions(self, word: str, statement: str) -> list[str]:
        """The names and keywords that begin with `word`, the part of `statement` in front of the cursor.

        Columns are those of the tables that the statement names.
        """
        begin = word.lower()
        # a word that is whole ends with a space; one that goes on does not
        candidates = [*(f"{name} " for name in self.tables()), *(f"{name}(" for name in self.functions())]
        if "." not in word:
            databases = dict.fromkeys(f"{table.partition('.')[0]}." for table in self.tables())
            small = word.islower()
            keywords = (keyword.lower() if small else keyword for keyword in KEYWORDS)
            candidates = [*(f"{each} " for each in (*self._columns_of(statement), *keywords)), *databases]
        return sorted({name for name in candidates if name.lower().startswith(begin)})

    def _columns_of(self, statement: str) -> Iterator[str]:
        words = {word.lower() for word in _NAME.findall(statement)}
        for table in self.tables():
            if table.lower() in words:
                yield from (column.name for column in self.columns(table))

    def _query_names(self, statement: str, column: str) -> Iterable[str]:
        return [str(name) for name in self._spark.sql(statement).toArrow()[column].to_pylist()]


def _quote(identifier: str) -> str:
    from spark_jobs.storage.descriptions.sql import name

    return name(identifier)
