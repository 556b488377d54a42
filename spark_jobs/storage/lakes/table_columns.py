"""The columns that tables have, compared with their descriptions: for every catalog, without a Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_jobs.errors import ConfigurationError
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.records import records_lost
from spark_jobs.storage.delta.table_notes import column_types, properties
from spark_jobs.storage.descriptions.schema import IDENTITY, Column, Table
from spark_jobs.storage.descriptions.wider_types import widens


class TableDiffers(ConfigurationError):
    """A table exists with columns that its description does not fit. Facts: `table`."""

    code = "table_differs"


def differs(table: Table, *, expected: str, finding: str) -> TableDiffers:
    """The refusal of a table that exists with other columns."""
    return TableDiffers(
        expected=expected,
        found=finding,
        consequence="nothing was run",
        next_step="give the changed window, aggregate or column another name: history keeps the old one (`from:` says "
        "what files call a column); or undo the change; or `tidemark source reset`, and land all of it again",
        table=table.qualified,
    )


class TableColumns:
    """The columns of the tables in a folder. It remembers those of the tables that it has read."""

    def __init__(self, folder: LakeFolder) -> None:
        self._folder = folder
        self._seen: dict[str, dict[str, str]] = {}

    def missing_columns(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """The columns that existing tables lack, or have with a narrower type, by table; tables without such columns
        are left out. Runs no job.

        Raises:
            TableDiffers: a column has another type, whose values do not all fit into the wanted type.
        """
        missing_columns = {}
        for table, kinds in self._present(tables):
            other = [
                column
                for column in table.columns
                if (kind := kinds.get(column.name, column.kind)) != column.kind and not widens(kind, column.kind)
            ]
            if other:
                raise differs(
                    table,
                    expected=", ".join(f"{column.name} as {column.kind}" for column in other),
                    finding=", ".join(f"{column.name} as {kinds[column.name]}" for column in other),
                )
            missing = [column for column in table.columns if kinds.get(column.name) != column.kind]
            if missing:
                missing_columns[table] = missing
        return missing_columns

    def check_identity(self, table: Table) -> None:
        """Refuse an existing table whose rows are identified by other columns.

        Raises:
            TableDiffers: they are.
        """
        # not by Spark, which replaces values that have `token` or `url` in them
        identity = properties(self._folder.handle(table)).get(IDENTITY, "")
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
            raise differs(
                table,
                expected=f"rows of {table.qualified} identified by {', '.join(table.identity)}",
                finding=f"rows identified by {identity.replace(',', ', ')}",
            )

    def _present(self, tables: Sequence[Table]) -> Iterator[tuple[Table, dict[str, str]]]:
        """Each table with the types of the columns that it has, by name."""
        from deltalake.exceptions import TableNotFoundError

        for table in tables:
            if table.qualified not in self._seen:
                try:
                    # Spark would run a job for a table whose newest commit is not its own
                    self._seen[table.qualified] = column_types(self._folder.handle(table))
                except TableNotFoundError:
                    raise records_lost(self._folder.handle(table).uri) from None
            yield table, self._seen[table.qualified]
