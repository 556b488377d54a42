"""Rows of a query in bounded memory: all rows for programs, a screenful for people.

A program can't distinguish a part of a table from all of it. So `--json` has no limit unless one is given. If the limit
leaves rows out, `truncated` is true and the exit code is 1. All rows are fetched before the first one is printed: a
query that fails on its way prints a refusal, not half a document.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.output import RowsView, json_value, note, show, table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LimitOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        show_default=False,
        help="Most rows to print; 0 prints all. Default: with --json all, else as many as people read. With --json,"
        " `truncated` says whether rows were left out, and then the exit code is 1.",
    ),
]
"""The type of a command's `limit` parameter, None by default."""

SHOWN_ROWS = 100
"""The number of rows that people get by default: they fit on a few screens."""

UNITS = {"Microseconds": "µs", "Seconds": "s", "Bytes": "bytes"}
"""The units of columns, by the first word of the comment of such a column."""
_COMMENT = b"comment"

IN_MEMORY_BYTES = 64 << 20
"""The most bytes of fetched rows in memory; if there are more, they wait on the disk."""


def most_rows(limit: int | None, *, as_json: bool, for_people: int = SHOWN_ROWS) -> int:
    """The number of rows to fetch, 0 for all: `limit` if given, else all for programs, `for_people` for people."""
    return (0 if as_json else for_people) if limit is None else limit


@dataclass
class Fetched:
    """The fetched rows of a query.

    `truncated`: true if there were more rows than the limit. `units`: the units of columns whose comment begins with
    one, by column name.
    """

    columns: list[str]
    truncated: bool = False
    units: dict[str, str] = field(default_factory=dict)
    _spool: IO[bytes] = field(default_factory=lambda: tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES))  # noqa: SIM115

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Each row's values, in the order of the columns."""
        import pyarrow as pa

        if not self.columns:
            return
        self._spool.seek(0)
        for batch in pa.ipc.open_stream(self._spool):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as values by column name; repeated names are made different by `distinct`."""
        names = distinct(self.columns)
        return (dict(zip(names, values, strict=True)) for values in self.values())


def fetch(frame: DataFrame, limit: int) -> Fetched:
    """Fetch up to `limit` rows (0: all), a batch at a time; times are in UTC."""
    import pyarrow as pa

    schema, batches = _batches(frame.limit(limit + 1) if limit else frame)
    comments = {each.name: (each.metadata or {}).get(_COMMENT, b"").decode() for each in schema}
    units = {
        name: UNITS[words[0]] for name, text in comments.items() if (words := text.split(" ")) and words[0] in UNITS
    }
    result = Fetched(list(schema.names), units=units)
    if not schema.names:
        return result
    left = limit
    with pa.ipc.new_stream(result._spool, schema) as writer:
        for batch in batches:
            result.truncated |= bool(limit) and batch.num_rows > left
            writer.write_table(batch.slice(0, left) if limit else batch)
            left = max(left - batch.num_rows, 0)
    if result.truncated:
        note(f"the first {limit} rows; --limit 0 prints all")
    return result


def as_fetched(rows: pa.Table) -> Fetched:
    """All rows of a table in memory, as fetched rows."""
    import pyarrow as pa

    result = Fetched(rows.column_names)
    with pa.ipc.new_stream(result._spool, rows.schema) as writer:
        writer.write_table(rows)
    return result


def _batches(frame: DataFrame) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema and the batches of a result: through Spark Connect as the server sends them, else one batch."""
    import pyarrow as pa
    from pyspark.sql.connect.dataframe import DataFrame as ServerFrame
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    comments = [each.metadata.get("comment", "") for each in frame.schema.fields]
    schema = pa.schema([field.with_metadata({_COMMENT: text}) for field, text in zip(schema, comments, strict=True)])
    if not isinstance(frame, ServerFrame):
        return schema, iter([frame.toArrow()])
    # this does the same as toArrow, except that it does not gather all batches
    client = frame.sparkSession.client
    sent = client.to_table_as_iterator(frame._plan.to_proto(client), frame._plan.observations)
    return schema, (batch.cast(schema) for batch in sent if isinstance(batch, pa.Table))


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number added to repeated ones, so that no column of an object is lost: a, a → a, a_2."""
    result: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in result:
            number += 1
            candidate = f"{name}_{number}"
        result.append(candidate)
    return result


def view_of(result: Fetched, columns: Sequence[str] | None = None) -> RowsView:
    """The view of the rows for people: all columns or some, each with its unit."""
    names_to_show = result.columns if columns is None else columns
    rows = result.values() if columns is None else (tuple(row[name] for name in columns) for row in result.rows())
    names = [f"{name} ({result.units[name]})" if name in result.units else name for name in names_to_show]
    return table(names, rows)


def emit_rows(
    as_json: bool, result: Fetched, *, key: str = "rows", about: dict[str, Any] | None = None,
    columns: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Print fetched rows: for people a table of `columns`, for programs a JSON document.

    The document has the items of `about`, the columns, the rows under `key`, and `truncated`. If that is true, the
    command ends with exit code 1.
    """
    if not as_json:
        show(view_of(result, columns))
        return
    write_document(result, key, about)
    sys.stdout.write("\n")
    end_truncated(result.truncated)


def write_document(result: Fetched, key: str = "rows", about: dict[str, Any] | None = None) -> None:
    """Write the JSON document of fetched rows to standard output, row by row, without an end of line."""
    head = json.dumps({**(about or {}), "columns": distinct(result.columns)}, default=json_value, ensure_ascii=False)
    sys.stdout.write(f"{head[:-1]}, {json.dumps(key)}: [")
    for number, row in enumerate(result.rows()):
        text = json.dumps(row, default=json_value, ensure_ascii=False)
        sys.stdout.write(f", {text}" if number else text)
    sys.stdout.write(f'], "truncated": {json.dumps(result.truncated)}}}')


def end_truncated(truncated: bool) -> None:
    """End a command with --json with exit code 1 if rows were left out."""
    if truncated:
        raise typer.Exit(1)
