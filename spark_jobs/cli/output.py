"""Output of commands: one JSON document for programs, a table for people.

Notes, and refusals for people, are printed on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spark_jobs.errors import TidemarkError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
"""The type of every command's `as_json` parameter."""

NULL = Text("NULL", style="dim")

ELEMENTS = 10
"""The most elements of a list that a plan or a reason shows; a vector may have 80,000."""

FILE_WIDTH = 200
"""The width, in columns, of text for a file or a pipe."""

_ANY_WIDTH = 1 << 20
"""The width, in columns, of a terminal into which every table fits."""


def emit(as_json: bool, document: Any, render: Callable[[], RenderableType]) -> None:
    """Print a command's result to standard output, as JSON or as `render` shows it."""
    if as_json:
        sys.stdout.write(json.dumps(document, default=json_value, ensure_ascii=False) + "\n")
    else:
        show(render())


def show(what: RenderableType) -> None:
    """Print something for people; without a terminal FILE_WIDTH wide, so that a table's rows stay on one line."""
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(what)


def note(message: str) -> None:
    """Print a message for people on standard error."""
    Console(stderr=True, highlight=False).print(message, markup=False)


def complain(refusal: TidemarkError, *, as_json: bool) -> None:
    """Print a refusal: as one line of JSON on standard output, or as text for people on standard error."""
    if as_json:
        sys.stdout.write(
            json.dumps({"error": {**refusal.as_json(), "message": refusal.sentence()}}, default=str) + "\n"
        )
        return
    text = Text.assemble((refusal.code, "bold red"), f"\n  expected  {refusal.expected}\n  found     {refusal.found}")
    if refusal.consequence:
        text.append(f"\n  so        {refusal.consequence}")
    if refusal.next_step:
        text.append(f"\n  next      {refusal.next_step}")
    Console(stderr=True, soft_wrap=True, highlight=False).print(text)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None, *, elements: int | None = None
) -> Table:
    """A table of values as SQL users expect them: numbers to the right, instants in UTC, null visible.

    `elements`: the most elements of a list that are shown, with the number of the others; None: all.
    """
    content = [list(row) for row in rows]
    result = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        values = [row[index] for row in content if row[index] is not None]
        numeric = bool(values) and all(map(_is_number, values))
        result.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in content:
        result.add_row(*(NULL if value is None else Text(shown(value, elements)) for value in row))
    return result


@dataclass(frozen=True)
class RowsView:
    """Rows as a table; if it is wider than the terminal, each row as a record with a line for each column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the rows for Rich, which calls this with the width of the terminal."""
        whole = table(self.columns, self.rows)
        if whole.__rich_measure__(console, options.update(width=_ANY_WIDTH)).maximum <= options.max_width:
            yield whole
            return
        for number, row in enumerate(self.rows, 1):
            yield Text(f"row {number}", style="bold")
            record = Table(show_header=False, box=None, pad_edge=False)
            record.add_column(style="dim", no_wrap=True)
            record.add_column(overflow="fold")
            for column, value in zip(self.columns, row, strict=True):
                record.add_row(Text(column), NULL if value is None else Text(shown(value)))
            yield Padding(record, (0, 0, 0, 2))


def shown(value: Any, elements: int | None = None) -> str:
    """A value as text, the same on every machine.

    A list longer than `elements` is cut, and the number of further elements is added.
    """
    if isinstance(value, list) and elements is not None and len(value) > elements:
        return f"{json.dumps(value[:elements], default=json_value)[:-1]}, … {len(value) - elements:,} more]"
    converted = json_value(value) if isinstance(value, (datetime, date, timedelta, Decimal, bytes, Path)) else value
    return json.dumps(converted, default=json_value) if isinstance(converted, (dict, list)) else str(converted)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def json_value(value: Any) -> Any:
    """A value that JSON has no form for, as text: instants in UTC, bytes as hexadecimal digits."""
    if isinstance(value, datetime):
        instant = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return instant.isoformat() + ("" if value.tzinfo is None else "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
