"""What a Delta table's log says of the table, without Spark: its columns, and the note of its newest commit that has
one."""

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
    columns = []
    for field in table.schema().fields:
        if not isinstance(field.type, PrimitiveType):
            return None
        columns.append(f"{field.name} {_SQL_TYPES.get(field.type.type, field.type.type)}")
    notes = (_parsed(commit.get("userMetadata")) for commit in table.history(_COMMITS))
    return NotedTable(columns, next((note for note in notes if "published" in note), {}))


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        note = json.loads(text or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
