"""A guess at the delimiter of a CSV header that does not fit the declared one."""

from __future__ import annotations

from collections.abc import Iterable

DELIMITERS = (",", ";", "\t", "|")
"""The usual delimiters of CSV files."""


def likely_delimiter(header: bytes, declared: Iterable[str], delimiter: str) -> str | None:
    """The delimiter that finds the most `declared` columns in the header. None if `delimiter` finds one itself, or if
    no other delimiter finds two of them (or the only one)."""
    columns = {name.encode() for name in declared}

    def count_columns(separator: str) -> int:
        parts = header.split(separator.encode())
        return len(columns & {part.strip().strip(b'"').strip() for part in parts})

    if count_columns(delimiter):
        return None
    best = max((other for other in DELIMITERS if other != delimiter), key=count_columns)
    return best if count_columns(best) >= min(2, len(columns)) else None
