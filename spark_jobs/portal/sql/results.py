"""Results of statements: the first rows as JSON for the page, or all rows as CSV."""

from __future__ import annotations

import tempfile
from typing import IO, Any

from spark_jobs.csv_lines import csv_line
from spark_jobs.portal.sql.statement import Cursor

FIRST_ROWS, MOST_CHARACTERS = 1_000, 8_000_000
"""The most rows that the page shows, and the characters after which it shows no further row."""
_FEW, _MANY = 10, 5_000
"""Rows of the first answer, before their length is known, and of an answer of many rows."""
_IN_MEMORY_BYTES = 8 << 20


def first_rows(cursor: Cursor) -> dict[str, Any]:
    """The columns, the first rows, and `more`: true if there are further rows.

    Values are texts, since JSON's numbers are not exact; null is None.
    """
    columns = cursor.columns()
    rows: list[list[str | None]] = []
    characters, more = 0, False
    if columns:
        batches = cursor.rows(_FEW)
        batch = next(batches, [])
        while batch and not more:
            for row in batch:
                if len(rows) == FIRST_ROWS or characters > MOST_CHARACTERS:
                    more = True
                    break
                rows.append([text_of(value) for value in row])
                characters += sum(len(value or "") for value in rows[-1])
            wide = max(characters // len(rows), 1)
            try:
                batch = batches.send(min(max(MOST_CHARACTERS // wide // 4, 1), FIRST_ROWS + 1))
            except StopIteration:
                break
    return {"columns": [{"name": name, "type": kind} for name, kind in columns], "rows": rows, "more": more}


def all_rows(cursor: Cursor) -> IO[bytes]:
    """All rows as a file of CSV: a line of names, then the rows. Long ones wait on the disk."""
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
    columns = cursor.columns()
    if columns:
        file.write(csv_line([name for name, _ in columns]).encode())
        for batch in cursor.rows(_MANY):
            file.writelines(csv_line([text_of(value) for value in row]).encode() for row in batch)
    file.seek(0)
    return file


def text_of(value: Any) -> str | None:
    """A value of PyHive as SQL writes it; bytes are hexadecimal digits."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)
