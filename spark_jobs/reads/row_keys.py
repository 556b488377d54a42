"""The key of a published row as people write it: the name of the table, and a value for each column of its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from spark_jobs.definitions.definition import Definition
from spark_jobs.errors import ParameterError
from spark_jobs.sources import Source, did_you_mean
from spark_jobs.storage.descriptions.column_types import sql_type_of
from spark_jobs.storage.descriptions.times import parse_time


@dataclass(frozen=True)
class PublishedTable:
    """A published table of a source: its name, and the columns of its key with their types.

    `read`: the source's columns from which its values are made. `definition`: of a window table; None for states.
    `also`: other names of columns of the key.
    """

    name: str
    key: dict[str, str]
    read: list[str]
    definition: Definition | None = None
    also: Mapping[str, str] = field(default_factory=dict)


def published_table(source: Source, table: str) -> PublishedTable:
    """The source's table of the name `silver.<definition>` or `gold.<source>`, with or without the database.

    Raises:
        ParameterError: the source publishes no such table.
    """
    name = table.split(".", 1)[-1]
    if name in source.windows and table in (name, f"silver.{name}"):
        definition = Definition(source, name)
        key = {k: sql_type_of(source.columns[k]) for k in definition.key}
        types = {column.name: column.type for column in definition.value_columns()}
        key |= {column: types[column] for column in definition.identity if column not in key}
        return PublishedTable(f"silver.{name}", key, definition.values_read, definition)
    if source.state is not None and name == source.name and table in (name, f"gold.{name}"):
        read = [c for c in source.state.components.values() if isinstance(c, str)]
        return PublishedTable(
            f"gold.{name}", {"entity": "STRING"}, list(dict.fromkeys(read)), also={source.entity: "entity"}
        )
    tables = [*(f"silver.{w}" for w in source.windows), *([f"gold.{source.name}"] if source.state else [])]
    raise ParameterError(
        expected=f"one of the tables {', '.join(tables)}",
        found=f"{table!r}{did_you_mean(name, (k.split('.')[1] for k in tables))}",
        next_step="name one of them",
    )


def row_key(table: PublishedTable, given: Sequence[str]) -> dict[str, str]:
    """A value for each column of the key, as Spark reads it; `given` has them in order, or each as `column=value`.

    Raises:
        ParameterError: a column without a value or with two, or a value that is none of its column's type.
    """
    named: dict[str, str] = {}
    unnamed: list[str] = []
    for text in given:
        column, equals, value = text.partition("=")
        column = table.also.get(column, column)
        if equals and column in table.key and column not in named:
            named[column] = value
        else:
            unnamed.append(text)
    free = [column for column in table.key if column not in named]
    if len(unnamed) != len(free):
        raise ParameterError(
            expected=f"a value for each of {', '.join(table.key)}",
            found=" ".join(given) or "none",
            next_step=f"write them in this order, or as {next(iter(table.key))}=…",
        )
    values = named | dict(zip(free, unnamed, strict=True))
    return {column: _as_spark_reads(column, values[column], type_) for column, type_ in table.key.items()}


def _as_spark_reads(column: str, text: str, type_: str) -> str:
    """The text as Spark reads it as a value of this type.

    Raises:
        ParameterError: the text is no value of the type; it would make the query fail.
    """
    read, what = _READ_KEY.get(type_, (str, "text"))
    try:
        return read(text)
    except (ValueError, OverflowError):
        raise ParameterError(
            expected=f"{what} as {column}", found=repr(text), next_step=f"write {column} as the table shows it"
        ) from None


def _boolean(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower()


_READ_KEY: dict[str, tuple[Callable[[str], str], str]] = {
    "BIGINT": (lambda text: str(np.int64(int(text))), "an integer of 64 bits"),
    "DOUBLE": (lambda text: str(float(text)), "a number"),
    "BOOLEAN": (_boolean, "true or false"),
    "DATE": (lambda text: date.fromisoformat(text).isoformat(), "a date such as 2013-01-07"),
    "TIMESTAMP": (lambda text: parse_time(text).isoformat(), "an instant such as 2013-01-07T12:00:00Z"),
}
"""By type, the function that reads a value, and the words for such a value; other types take any text."""
