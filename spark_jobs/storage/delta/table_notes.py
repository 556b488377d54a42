"""A Delta table by its log, without Spark: its columns with their types as Spark names them, and the note of its newest
commit that has one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.places import TableHandle

_SQL_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that have other names in Spark SQL."""
_COMMITS = 5
"""Number of newest commits that are searched for a note: commits other than a build's are few."""


@dataclass(frozen=True, slots=True)
class NotedTable:
    """A version of a table. `columns`: name and SQL type of each, in order; `note`: the JSON of a commit's
    userMetadata; `description`: the table's description."""

    version: int
    columns: list[str]
    note: dict[str, Any]
    description: str


def noted_table(handle: TableHandle, version: int | None = None) -> NotedTable:
    """A table by its log, its newest version or the one named."""

    table = open_table(handle, version)
    columns = [f"{field.name} {_sql_type(field.type)}" for field in table.schema().fields]
    notes = (_parse(commit.get("userMetadata")) for commit in table.history(_COMMITS))
    note = next((note for note in notes if "published" in note), {})
    return NotedTable(table.version(), columns, note, table.metadata().description or "")


def column_types(handle: TableHandle, version: int | None = None) -> dict[str, str]:
    """The types of the table's columns, as Spark names them, by name; of its newest version or the one named.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """

    table = open_table(handle, version)
    return {field.name: _sql_type(field.type) for field in table.schema().fields}


def properties(handle: TableHandle) -> dict[str, str]:
    """The table properties in a table's log, whatever the catalog has; runs no job.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    return open_table(handle).metadata().configuration


def _sql_type(kind: Any) -> str:
    """A type of Delta's schema as Spark names it."""
    from deltalake.schema import ArrayType, MapType, PrimitiveType

    if isinstance(kind, PrimitiveType):
        return _SQL_TYPES.get(kind.type, kind.type)
    if isinstance(kind, ArrayType):
        return f"array<{_sql_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_sql_type(kind.key_type)},{_sql_type(kind.value_type)}>"
    return f"struct<{','.join(f'{field.name}:{_sql_type(field.type)}' for field in kind.fields)}>"


def _parse(text: str | None) -> dict[str, Any]:
    try:
        note = json.loads(text or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
