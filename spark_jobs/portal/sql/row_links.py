"""Links from the rows of a result to the reasons for them, where the rows are those of one published table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import ParameterError
from spark_jobs.portal.links import Links
from spark_jobs.portal.sql.parsing import full_name, parse_query
from spark_jobs.reads.row_keys import PublishedTable, published_table
from spark_jobs.sources import Source

_PAGE = "sql.html"
_PARTS = {"expressions", "from", "from_", "where", "order", "limit", "offset"}
"""The parts of a query that choose and sort rows, and make none."""
_PARTS_OF_TABLE = {"this", "db", "catalog", "alias"}


@dataclass(frozen=True)
class Selection:
    """A query whose rows are rows of one table.

    `table`: its name as `database.table`, in lower case. `has_all`: true if all columns are selected. `columns`: those
    that are selected by name, as they are. `computed`: the names of columns that are not the table's own values.
    """

    table: str
    has_all: bool
    columns: frozenset[str]
    computed: frozenset[str]

    def has(self, column: str) -> bool:
        """True if the result's column of this name has the values of the table's column."""
        return (self.has_all or column in self.columns) and column not in self.computed


def selection(statement: str) -> Selection | None:
    """The selection that a statement is; None if its rows may be others than those of one table."""
    from sqlglot import exp

    try:
        tree = parse_query(statement)
    except ParameterError:
        return None
    table = getattr(tree.args.get("from") or tree.args.get("from_"), "this", None)
    if type(tree) is not exp.Select or not _has_only(tree, _PARTS) or not isinstance(table, exp.Table):
        return None
    if not isinstance(table.this, exp.Identifier) or not _has_only(table, _PARTS_OF_TABLE):
        return None
    has_all, columns, computed = False, set(), set()
    for each in tree.expressions:
        if each.is_star:
            star = each if isinstance(each, exp.Star) else each.this
            has_all = True
            if not _has_only(star, {"this", "except", "except_"}):
                return None
        elif isinstance(each, exp.Column) and each.table.lower() in ("", table.alias_or_name.lower()):
            columns.add(each.name.lower())
        else:
            computed.add(each.alias_or_name.lower())
    return Selection(full_name(table).lower(), has_all, frozenset(columns), frozenset(computed))


def _has_only(node: Any, parts: set[str]) -> bool:
    return all(name in parts for name, value in node.args.items() if value)


def row_links(
    statement: str, sources: Mapping[str, Source], names: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> list[str | None]:
    """The link of each row of a result to the reasons for it, from the SQL page; empty if the rows have none.

    Args:
        statement: the statement as it was typed.
        sources: the sources by name.
        names: the names of the result's columns.
        rows: the values as texts; instants are in UTC.
    """
    selected = selection(statement)
    published = None if selected is None else _find_published(selected.table, sources)
    if selected is None or published is None:
        return []
    source, table = published
    by_name = [name.lower() for name in names]
    places = []
    for column in table.key:
        known_as = next((name.lower() for name, key in table.also.items() if key == column), column.lower())
        if by_name.count(known_as) != 1 or not selected.has(known_as):
            return []
        places.append(by_name.index(known_as))
    links = Links(_PAGE)
    keys = ([row[place] for place in places] for row in rows)
    return [None if None in key else links.why(source.name, table.name, key) for key in keys]  # type: ignore[arg-type]


def _find_published(name: str, sources: Mapping[str, Source]) -> tuple[Source, PublishedTable] | None:
    """The published table of a name in lower case, and its source; None if no source publishes it."""
    database, _, table = name.partition(".")
    for source in sources.values():
        states = [source.name] if source.state is not None else []
        for each in {"silver": [*source.windows], "gold": states}.get(database, []):
            if each.lower() == table:
                return source, published_table(source, f"{database}.{each}")
    return None
