"""Lines of CSV (RFC 4180, but a line ends with LF): null is an empty field, and an empty text a quoted one."""

from __future__ import annotations

from collections.abc import Iterable

_TO_QUOTE = frozenset(',"\r\n')


def csv_line(fields: Iterable[str | None]) -> str:
    """The line of some fields, with its end."""
    return ",".join(map(_field, fields)) + "\n"


def _field(text: str | None) -> str:
    if text is None:
        return ""
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if text == "" or not _TO_QUOTE.isdisjoint(text) else text
