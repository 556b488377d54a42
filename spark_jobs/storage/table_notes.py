"""What a Delta table's log says of the table, without Spark: its columns with their types as Spark names them, and the
note of its newest commit that has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SQL_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that Spark SQL calls otherwise."""
_COMMITS = 5
"""Commits that are looked at for a note: others than a build's are few."""


@dataclass(frozen=True, slots=True)
class NotedTable:
    """`columns`: name and SQL type of each, in order; `note`: what a commit's userMetadata says, as JSON."""

    columns: list[str]
    note: dict[str, Any]


def noted_table(uri: str, options: Mapping[str, str]) -> NotedTable | None:
    """The table at `uri`; None where a column is of no plain type."""
    from deltalake import DeltaTable
    from deltalake.schema import PrimitiveType

    table = DeltaTable(uri, storage_options=dict(options) or None)
    fields = table.schema().fields
    if not all(isinstance(field.type, PrimitiveType) for field in fields):
        return None
    columns = [f"{field.name} {_sql_type(field.type)}" for field in fields]
    notes = (_parsed(commit.get("userMetadata")) for commit in table.history(_COMMITS))
    return NotedTable(columns, next((note for note in notes if "published" in note), {}))


def column_types(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The types of the table's columns, as Spark names them, by name.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable

    table = DeltaTable(uri, storage_options=dict(options) or None)
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
