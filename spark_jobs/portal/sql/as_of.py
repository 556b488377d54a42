"""Statements read as known at a time: published tables are replaced by the functions that read their past.

Only the names of the tables are replaced, and the database in front of their columns is left out. The rest of the
statement stays as it was typed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spark_jobs.errors import ParameterError
from spark_jobs.portal.sql.parsing import full_name, parse_query
from spark_jobs.storage.descriptions.sql import name as quote

SUFFIX = "_as_of"
"""The end of the name of a function that reads the past of a table; the begin is the table's name."""


@dataclass(frozen=True)
class PastStatement:
    """A statement that reads the past.

    `text`: the statement to run. `past`: the tables that are read as known at the time. `present`: those without such a
    function, which are read as they are now.
    """

    text: str
    past: list[str]
    present: list[str]


def instant(text: str) -> datetime:
    """The time that a control of the page gives, such as `2024-01-02T03:04`; without a zone it is in UTC.

    Raises:
        ParameterError: it is no time.
    """
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ParameterError(
            expected="a time such as 2024-01-02T03:04",
            found=text[:100],
            consequence="nothing was run",
            next_step="correct the time, or empty the control to read what is published now",
        ) from None


def read_past(statement: str, at: datetime, functions: Collection[str]) -> PastStatement:
    """The statement as known at `at`.

    Args:
        statement: a query.
        at: the time.
        functions: the functions that take a time alone, as `database.table_as_of`, in lower case.

    Raises:
        ParameterError: the statement is no query, or its tables can't be told.
    """
    from sqlglot import exp

    tree = parse_query(statement)
    names_of_subqueries = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    past: dict[str, str] = {}
    present: dict[str, str] = {}
    edits: list[tuple[int, int, str]] = []
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function
        name = full_name(table)
        if f"{name.lower()}{SUFFIX}" in functions:
            past.setdefault(name.lower(), name)
            first, last = _ends(table)
            call = f"{quote(table.args['db'].name)}.{quote(table.name + SUFFIX)}(TIMESTAMP '{_literal(at)}')"
            edits.append((first, last, call if table.alias else f"{call} AS {quote(table.name)}"))
        elif name.lower() not in names_of_subqueries:
            present.setdefault(name.lower(), name)
    for column in [*tree.find_all(exp.Column), *tree.find_all(exp.Star)]:
        edits += _without_database(column, past)
    text = statement
    for first, last, replacement in sorted(edits, reverse=True):
        text = text[:first] + replacement + text[last + 1 :]
    return PastStatement(text, [*past.values()], [*present.values()])


def _without_database(column: Any, past: Collection[str]) -> list[tuple[int, int, str]]:
    """The edit that leaves out the database in front of a column of a replaced table, whose alias has none."""
    database, table = column.args.get("db"), column.args.get("table")
    if database is None or table is None or f"{database.name}.{table.name}".lower() not in past:
        return []
    first = column.args.get("catalog") or database
    return [(first.meta["start"], table.meta["start"] - 1, "")]


def _ends(table: Any) -> tuple[int, int]:
    """The places of the first and the last character of a table's name in the statement."""
    parts = [table.args[part] for part in ("catalog", "db", "this") if table.args.get(part)]
    return parts[0].meta["start"], parts[-1].meta["end"]


def _literal(at: datetime) -> str:
    return at.isoformat(sep=" ").replace("+00:00", "Z")
