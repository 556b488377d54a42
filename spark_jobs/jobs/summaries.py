"""A stage's summary as people read it in a log: a line for each measure, with its name and its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MOST_LISTED = 8
"""The elements of a list that a line names before it counts the rest."""


def summary_table(summary: Mapping[str, Any]) -> str:
    """The summary as a table of two columns; nested measures have names with dots, empty ones are left out."""
    rows = list(_flat(summary, ""))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def _flat(summary: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in summary.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None and value not in ("", []):
            yield f"{prefix}{name}", _value_text(value)


def _value_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        more = f" and {len(value) - MOST_LISTED} more" if len(value) > MOST_LISTED else ""
        return ", ".join(map(str, value[:MOST_LISTED])) + more
    return f"{value:,}" if type(value) is int else str(value)
