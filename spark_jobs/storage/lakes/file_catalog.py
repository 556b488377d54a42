"""A catalog of files: a table is there if its folder is, and each name that users read is kept as its SQL statement."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.descriptions.column_types import arrow_type
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import needs_spark
from spark_jobs.storage.lakes.table_columns import TableColumns

_DEFINED = re.compile(r"(CREATE OR REPLACE|DROP) (VIEW|FUNCTION) (?:IF EXISTS )?`(\w+)`\.`(\w+)`")
NAMES = "_names.json"
"""The file below the lake's root with the SQL statement of each view and function, by kind and name."""


class FileCatalog(TableColumns):
    """The catalog of a lake in a folder of this machine, for one process at a time.

    Nothing reads the statements of names here. They are kept so that a Spark session that opens the lake later can
    define them.
    """

    commits = 0
    """Nothing is committed when a table is created."""

    def __init__(self, folder: LakeFolder) -> None:
        super().__init__(folder)
        self._root = Path(folder.root)

    def databases(self) -> set[str]:
        """The databases that have a folder."""
        return {folder.name.removesuffix(".db") for folder in self._root.glob("*.db")}

    def names(self, database: str) -> set[str]:
        """Tables and views of a database."""
        return {table.name for table in (self._root / f"{database}.db").glob("*")} | self.views(database)

    def views(self, database: str) -> set[str]:
        """Views of a database."""
        begin = f"VIEW {database}."
        return {key.removeprefix(begin) for key in self._statements() if key.startswith(begin)}

    def statement(self, database: str, name: str) -> str | None:
        """The statement that defines a view or a function; None for a table."""
        statements = self._statements()
        return statements.get(f"VIEW {database}.{name}") or statements.get(f"FUNCTION {database}.{name}")

    def names_in(self, databases: Collection[str]) -> dict[str, set[str]]:
        """`names` of each database."""
        return {database: self.names(database) for database in databases}

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        return self.names(database)

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create the missing databases (name -> comment) and tables; returns the tables that were missing. Others stay
        as they are."""
        from deltalake import DeltaTable

        for database in databases:
            (self._root / f"{database}.db").mkdir(parents=True, exist_ok=True)
        missing = [table for table in tables if not self._folder.is_stored(table.database, table.table)]
        for table in missing:
            fields = [
                pa.field(column.name, arrow_type(column.type), metadata={"comment": column.short_comment})
                for column in table.columns
            ]
            DeltaTable.create(
                self._folder.handle(table).uri,
                pa.schema(fields),
                partition_by=list(table.partitions) or None,
                description=table.comment,
                configuration=table.properties,
                raise_if_key_not_exists=False,
            )
        return missing

    def define(self, statement: str) -> None:
        """Keep the statement that defines a view or function, or forget the one that it drops."""
        match = _DEFINED.match(statement)
        if match is None:
            return
        verb, kind, database, name = match.groups()
        statements, key = self._statements(), f"{kind} {database}.{name}"
        if verb == "DROP":
            statements.pop(key, None)
        else:
            statements[key] = statement
        (self._root / NAMES).write_text(json.dumps(statements, indent=1))

    def widen(self, tables: Sequence[Table]) -> None:
        """Refuse tables that lack columns.

        Raises:
            NeedsSpark: a table lacks a column, or has it with a narrower type.
            TableDiffers: a column has another type.
        """
        lacking = self.missing_columns(tables)
        if lacking:
            raise needs_spark(f"new columns in {', '.join(table.qualified for table in lacking)}")

    def _statements(self) -> dict[str, str]:
        """The kept statements, by kind and name."""
        try:
            statements: dict[str, str] = json.loads((self._root / NAMES).read_text())
        except FileNotFoundError:
            return {}
        return statements
