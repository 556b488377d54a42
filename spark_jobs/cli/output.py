"""Output of commands: one JSON document for programs, a table for people.

Notes, and refusals for people, are printed on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spark_jobs.errors import TidemarkError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
"""The type of every command's `as_json` parameter."""

NULL = Text("NULL", style="dim")

ELEMENTS = 10
"""The most elements of a list that people see; a vector may have 80,000."""

GAP = 2
"""The columns of the terminal between two columns of a table."""

LEAST_FOLDED = 24
"""The least width, in columns of the terminal, at which folded text is still readable."""

FILE_WIDTH = 200
"""The width, in columns, of text for a file or a pipe."""


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
    Console(stderr=True, soft_wrap=True, highlight=False).print(message, markup=False)


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


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> RowsView:
    """The view of rows for people, with a title above them."""
    return RowsView(columns, [*rows], title)


@dataclass(frozen=True)
class RowsView:
    """Rows as a table: numbers to the right, instants in UTC, null visible, long lists cut by `short_text`.

    If the table is wider than the terminal, its widest column is folded. If that would leave the column less than
    LEAST_FOLDED columns of the terminal, each row is a record with a line for each of its columns instead.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the rows for Rich, which calls this with the width of the terminal."""
        if self.title is not None:
            yield Text(self.title, style="italic")
        cells = [[NULL if value is None else Text(short_text(value)) for value in row] for row in self.rows]
        widths = [
            max(_width(column), *(_width(row[place].plain) for row in cells)) if cells else _width(column)
            for place, column in enumerate(self.columns)
        ]
        numeric = [self._is_numeric(place) for place in range(len(self.columns))]
        excess = sum(widths) + GAP * (len(widths) - 1) - options.max_width
        widest = max(
            (place for place, is_number in enumerate(numeric) if not is_number), key=widths.__getitem__, default=None
        )
        if excess <= 0:
            yield self._as_table(cells, numeric)
        elif widest is not None and widths[widest] - excess >= LEAST_FOLDED:
            yield self._as_table(cells, numeric, (widest, widths[widest] - excess))
        else:
            yield from self._as_records(cells)

    def _is_numeric(self, place: int) -> bool:
        """True if a column has numbers, and nothing else but nulls."""
        values = [row[place] for row in self.rows if row[place] is not None]
        return bool(values) and all(map(is_number, values))

    def _as_table(
        self, cells: list[list[Text]], numeric: list[bool], folded: tuple[int, int] | None = None
    ) -> RenderableType:
        """A table of the cells. `folded`: the place and the width of the column that is folded."""
        result = Table(header_style="bold", box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for place, column in enumerate(self.columns):
            width = folded[1] if folded is not None and folded[0] == place else None
            justify: JustifyMethod = "right" if numeric[place] else "left"
            result.add_column(Text(column), justify=justify, overflow="fold", no_wrap=width is None, width=width)
        for row in cells:
            result.add_row(*row)
        return result

    def _as_records(self, cells: list[list[Text]]) -> Iterator[RenderableType]:
        for number, row in enumerate(cells, 1):
            yield Text(f"row {number}", style="bold")
            record = Table(show_header=False, box=None, pad_edge=False)
            record.add_column(style="dim", no_wrap=True)
            record.add_column(overflow="fold")
            for column, cell in zip(self.columns, row, strict=True):
                record.add_row(Text(column), cell)
            yield Padding(record, (0, 0, 0, 2), expand=False)


def _width(text: str) -> int:
    """The width of a cell's text in columns of the terminal: that of its widest line."""
    return max(map(cell_len, text.split("\n")))


def short_text(value: Any) -> str:
    """A value as text for people: as `text_of`, but of a list of more than ELEMENTS only the first ones.

    The number of all its elements follows.
    """
    return _as_text(value, ELEMENTS)


def text_of(value: Any) -> str:
    """A value as text, the same on every machine; nested values as JSON."""
    return _as_text(value, None)


def _as_text(value: Any, most: int | None) -> str:
    """A value as text, with at most `most` elements of each list."""
    if isinstance(value, (dict, list, bool)):
        return _as_json(value, most)
    return str(json_value(value) if isinstance(value, (datetime, date, timedelta, Decimal, bytes, Path)) else value)


def _as_json(value: Any, most: int | None) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(key))}: {_as_json(each, most)}' for key, each in value.items())}}}"
    if isinstance(value, (list, tuple)):
        parts = [_as_json(each, most) for each in value[:most]]
        cut = [f"… {len(value):,} elements in all"] if most is not None and len(value) > most else []
        return f"[{', '.join(parts + cut)}]"
    return json.dumps(value, default=json_value, ensure_ascii=False)


def is_number(value: Any) -> bool:
    """True for a number of any kind; truth values are none."""
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
