"""The names that users read: views over the physical tables, filtered by the publication in force.

A row of a history table is visible iff its token is published, it is known before `published`, and nothing visible has
closed it. One row of `trace.published` decides all of this for all tables of a source, so one commit publishes them
all.

In every view the publication is *left* of the history. Spark resolves a query's relations from left to right, and each
table once a query. So the publication's snapshot is never newer than the history's, and every name in one query sees
the same publication. (A history newer than the publication is no harm: its additional rows are not yet visible.)
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.descriptions.tables import LATE, PUBLISHED, STATE, VALIDITY

VISIBLE = "(h.token <= p.settled OR array_contains(p.tokens, h.token))"


FINAL = Column("final", "BOOLEAN", "True if no drop that is still to come can change the row.")
_VALIDITY = {column.name: column for column in VALIDITY}


def create_view(database: str, view: str, comment: str, columns: Iterable[Column], select: str) -> str:
    """CREATE OR REPLACE VIEW, with its comment and those of its columns, in the order in which `select` gives them."""
    listed = ", ".join(column.of_view() for column in columns)
    return f"CREATE OR REPLACE VIEW {qualified(database, view)} ({listed}) COMMENT {literal(comment)} AS {select}"


def publication(source: str | None = None) -> str:
    """The publication in force as a relation: of one source, or of all."""
    where = f" WHERE source = {literal(source)}" if source else ""
    return f"(SELECT * FROM {qualified(PUBLISHED.database, PUBLISHED.table)}{where})"


def rows_in_force(table: Table, identity: list[str], *, source: str | None, columns: str, at: str | None = None) -> str:
    """SQL: the rows of a history table in force now, or at a time; `identity`: the columns that identify a row.

    `at`: a relation with a column `at_time`, in place of the publication; rows are those of that visible time. Its SQL
    argument `at` bounds the rows that are read. A row is closed by a `closing` row of the same identity and
    `known_from`; both are few between two foldings, so the anti join is a broadcast.
    """
    physical = qualified(table.database, table.table)
    relation = at or publication(source)
    by_source = "AND h.source = p.source" if source is None else f"AND h.source = {literal(source)}"
    if not any(column.name == "source" for column in table.columns):
        by_source = ""
    opened, closed = "h.era = 'live' AND h.known_from < p.published", "h.known_to < p.published"
    if at is not None:
        opened = (
            "h.era IN ('live', 'closed') AND h.known_from <= p.at_time AND (at IS NULL OR h.known_from <= at)"
            " AND (h.known_to IS NULL OR h.known_to > p.at_time)"
        )
        closed = "h.known_to <= p.at_time AND (at IS NULL OR h.known_to <= at)"
    same = " AND ".join(f"c.{name(column)} <=> h.{name(column)}" for column in [*identity, "known_from"])
    closings = (
        f"SELECT h.* FROM {relation} p JOIN {physical} h ON h.era = 'closing' AND {closed} AND {VISIBLE} {by_source}"
    )
    select = (
        f"SELECT {columns} FROM {relation} p JOIN {physical} h ON {opened} AND {VISIBLE} {by_source}"
        f" LEFT ANTI JOIN ({closings}) c ON {same}"
    )
    if at is None:
        return select
    # If no row of the history is old enough, Spark drops the join, and with it the check of the time. The second part
    # has no row, and Spark has to compute the time to know that.
    return f"{select} UNION ALL SELECT {columns} FROM {at} p LEFT JOIN {physical} h ON false WHERE p.at_time IS NULL"


def window_view(source: Source, definition: str, table: Table, identity: list[str], final: str) -> str:
    """`silver.<definition>`: the published windows. `final` is the SQL condition under which no drop can change a
    window any more."""
    columns = [column for column in table.columns if column.name not in _VALIDITY]
    return create_view(
        "silver",
        definition,
        f"Windows {definition} of {source.source} as published now.",
        [*columns, FINAL, _VALIDITY["revision"], _VALIDITY["known_from"]],
        rows_in_force(table, identity, source=source.source, columns=", ".join(window_columns(table, final))),
    )


def window_columns(table: Table, final: str) -> list[str]:
    """SQL over `h`, and over the publication `p` in `final`, of a window as users read it, by column."""
    plain = [f"h.{name(column)}" for column in table.column_names if column not in _VALIDITY]
    return [*plain, f"{final} AS final", "h.revision", "h.known_from"]


def late_view() -> str:
    """`silver.late`: the late rows that are published and were not taken back."""
    by_name = {column.name: column for column in LATE.columns}
    columns = [column for column in LATE.columns if column.name not in ("diff", "token", "known_from")]
    listed = ", ".join(f"h.{name(column.name)}" for column in columns)
    return create_view(
        "silver",
        "late",
        LATE.comment,
        [*columns, by_name["known_from"]],
        f"SELECT {listed}, min(h.known_from) AS known_from FROM {publication()} p"
        f" JOIN {qualified(LATE.database, LATE.table)} h"
        f" ON h.source = p.source AND h.known_from < p.published AND {VISIBLE} GROUP BY {listed}"
        " HAVING sum(h.diff) > 0",
    )


def state_view() -> str:
    """`gold.state`: the current state of every entity of every source."""
    validity = {"known_to", "era", "token"}
    columns = [column for column in STATE.columns if column.name not in validity]
    listed = ", ".join(f"h.{name(column.name)}" for column in columns)
    return create_view(
        "gold",
        "state",
        "Current state of every entity, as published.",
        columns,
        rows_in_force(STATE, ["source", "entity"], source=None, columns=listed),
    )


def state_columns(source: Source) -> tuple[list[str], list[Column]]:
    """SQL over `h` of a state with the entity and each component under its own name, by column, and the columns that it
    gives."""
    assert source.state is not None, "callers look whether the source has state"
    vector, value = ("ints", "BIGINT") if source.state.datatype == "int64" else ("floats", "DOUBLE")
    entity = Column(source.entity, "STRING", "The entity.")
    components = [Column(c, value, f"Component {c} of the state.") for c in source.state.components]
    whole = [] if components else [Column("vector", f"ARRAY<{value}>", "The vector.")]
    other_columns = [c for c in STATE.columns if c.name in ("timestamp", "delta_count", "known_from")]
    selected = [
        f"h.entity AS {name(source.entity)}",
        *[f"h.{vector}[{i}] AS {name(c.name)}" for i, c in enumerate(components)],
        *[f"h.{vector} AS {name(c.name)}" for c in whole],
        *[f"h.{name(c.name)}" for c in other_columns],
    ]
    return selected, [entity, *components, *whole, *other_columns]


def source_state_view(source: Source) -> str:
    """`gold.<source>`: the current state with the entity and each component under its own name."""
    columns, view_columns = state_columns(source)
    return create_view(
        "gold",
        source.source,
        f"Current state of the entities of {source.source}, as published.",
        view_columns,
        rows_in_force(STATE, ["source", "entity"], source=source.source, columns=", ".join(columns)),
    )
