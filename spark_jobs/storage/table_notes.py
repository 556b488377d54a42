"""A Delta table by its log, without Spark: its columns with their types as Spark names them, and the note of its newest
commit that has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.storage.delta_log import open_table

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


def noted_table(uri: str, options: Mapping[str, str], version: int | None = None) -> NotedTable:
    """The table at `uri`, its newest version or the one named."""

    table = open_table(uri, options, version)
    columns = [f"{field.name} {_sql_type(field.type)}" for field in table.schema().fields]
    notes = (_parsed(commit.get("userMetadata")) for commit in table.history(_COMMITS))
    note = next((note for note in notes if "published" in note), {})
    return NotedTable(table.version(), columns, note, table.metadata().description or "")


def column_types(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The types of the table's columns, as Spark names them, by name.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """

    table = open_table(uri, options)
    return {field.name: _sql_type(field.type) for field in table.schema().fields}


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


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        note = json.loads(text or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
