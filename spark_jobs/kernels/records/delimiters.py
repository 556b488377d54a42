"""Which delimiter a CSV header seems to have, where it does not fit the declared one."""

from __future__ import annotations

from collections.abc import Iterable

DELIMITERS = (",", ";", "\t", "|")
"""The delimiters that files are written with."""


def likely_delimiter(header: bytes, declared: Iterable[str], delimiter: str) -> str | None:
    """The delimiter by which most of the `declared` columns stand in the header, where none does by `delimiter`; None
    if no other gives two of them (or the only one)."""
    columns = {name.encode() for name in declared}

    def fitting(separator: str) -> int:
        parts = header.split(separator.encode())
        return len(columns & {part.strip().strip(b'"').strip() for part in parts})

    if fitting(delimiter):
        return None
    best = max((other for other in DELIMITERS if other != delimiter), key=fitting)
    return best if fitting(best) >= min(2, len(columns)) else None
