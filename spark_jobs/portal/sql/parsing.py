"""Statements as trees, by sqlglot."""

from __future__ import annotations

import logging
from typing import Any

from spark_jobs.errors import ParameterError

MOST_CHARACTERS = 50_000
"""The most characters of a statement that is parsed: more of them take a processor of the web server seconds."""


def parse_query(statement: str) -> Any:
    """The tree of a query, sqlglot's `Query`.

    Raises:
        ParameterError: the statement is another one, or can't be parsed.
    """
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    # its warnings repeat the statement, which is no log's business
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    if len(statement) > MOST_CHARACTERS:
        raise _no_query(f"{len(statement):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        parsed = Spark().parse(statement)
    except RecursionError:
        raise _no_query("too many brackets or operators within each other") from None
    except SqlglotError as error:
        raise _no_query("a statement whose tables cannot be told: " + str(error).partition("\n")[0]) from None
    tree = parsed[0] if len(parsed) == 1 else None
    if not isinstance(tree, exp.Query):
        raise _no_query("another statement" if len(parsed) == 1 else f"{len(parsed)} statements")
    return tree


def full_name(table: Any) -> str:
    """The name of a table of a tree as `database.table`; without a database the name alone."""
    catalog, database = table.catalog.lower(), table.db
    if catalog not in ("", "spark_catalog"):
        database = f"{catalog}.{database}"
    return f"{database}.{table.name}" if database else table.name


def _no_query(finding: str) -> ParameterError:
    return ParameterError(
        expected="one query (SELECT, WITH …) to be read as known at a time",
        found=finding,
        consequence="nothing was run",
        next_step="empty the control, and call the functions such as silver.<table>_as_of(TIMESTAMP '…') yourself",
    )
