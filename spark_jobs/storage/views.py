"""The names that users read: views over the physical tables, filtered by the publication in force.

A row of a history table is visible iff its token is published, it is known before `published`, and nothing visible has
closed it. One row of `trace.published` decides all of this for all tables of a source, so one commit publishes them
all.

In every view the publication stands *left* of the history: Spark resolves a query's relations from left to right and
each table once a query, so the publication's snapshot is never newer than the history's, and every name in one query
sees the same publication. (A history newer than the publication is no harm: its additional rows are not yet visible.)
"""

from __future__ import annotations

from spark_jobs.sources import Source
from spark_jobs.storage.schema import Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import CHUNK_LIST, LATE, PUBLISHED, STATE, chunks

VISIBLE = "(h.token <= p.settled OR array_contains(p.tokens, h.token))"


def create_view(database: str, view: str, comment: str, select: str) -> str:
    """CREATE OR REPLACE VIEW, with its comment."""
    return f"CREATE OR REPLACE VIEW {qualified(database, view)} COMMENT {literal(comment)} AS {select}"


def publication(source: str | None = None) -> str:
    """The publication in force as a relation: of one source, or of all."""
    where = f" WHERE source = {literal(source)}" if source else ""
    return f"(SELECT * FROM {qualified(PUBLISHED.database, PUBLISHED.table)}{where})"


def held(table: Table, identity: list[str], *, source: str | None, columns: str, at: str | None = None) -> str:
    """What holds of a history table whose rows are told apart by `identity`: now, or at a time.

    `at` is a relation in place of the publication with a column `at_time`; rows are those of that visible time, its
    argument `at` bounds what is read. A row is closed by a `closing` row of the same identity and `known_from`; both
    are few between two foldings, so the anti join is a broadcast.
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
    return (
        f"SELECT {columns} FROM {relation} p JOIN {physical} h ON {opened} AND {VISIBLE} {by_source}"
        f" LEFT ANTI JOIN ({closings}) c ON {same}"
    )


def window_view(source: Source, definition: str, table: Table, identity: list[str], final: str) -> str:
    """`silver.<definition>`: the published windows. `final` is the SQL condition under which no drop can change one
    any more."""
    validity = {"known_from", "known_to", "revision", "era", "token"}
    plain = ", ".join(f"h.{name(c)}" for c in table.column_names if c not in validity)
    columns = f"{plain}, {final} AS final, h.revision, h.known_from"
    return create_view(
        "silver",
        definition,
        f"Windows {definition} of {source.source} as published now.",
        held(table, identity, source=source.source, columns=columns),
    )


def late_view() -> str:
    """`silver.late`: the late rows that are published and were not taken back."""
    columns = [c for c in LATE.column_names if c not in ("diff", "token", "known_from")]
    listed = ", ".join(f"h.{name(c)}" for c in columns)
    return create_view(
        "silver",
        "late",
        LATE.comment,
        f"SELECT {listed}, min(h.known_from) AS known_from FROM {publication()} p"
        f" JOIN {qualified(LATE.database, LATE.table)} h"
        f" ON h.source = p.source AND h.known_from < p.published AND {VISIBLE} GROUP BY {listed}"
        " HAVING sum(h.diff) > 0",
    )


def state_view() -> str:
    """`gold.state`: the current state of every entity of every source."""
    validity = {"known_to", "era", "token"}
    columns = ", ".join(f"h.{name(c)}" for c in STATE.column_names if c not in validity)
    return create_view(
        "gold",
        "state",
        "Current state of every entity, as published.",
        held(STATE, ["source", "entity"], source=None, columns=columns),
    )


def state_columns(source: Source) -> tuple[str, list[Column]]:
    """SQL over `h` of a state with the entity and each component under its own name, and the columns that it gives."""
    assert source.state is not None, "callers look whether the source has state"
    vector, value = ("ints", "BIGINT") if source.state.datatype == "int64" else ("floats", "DOUBLE")
    entity = Column(source.entity, "STRING", "The entity.")
    components = [Column(c, value, f"Component {c} of the state.") for c in source.state.components]
    whole = [] if components else [Column("vector", f"ARRAY<{value}>", "The vector.")]
    rest = [c for c in STATE.columns if c.name in ("timestamp", "delta_count", "known_from")]
    selected = [
        f"h.entity AS {name(source.entity)}",
        *[f"h.{vector}[{i}] AS {name(c.name)}" for i, c in enumerate(components)],
        *[f"h.{vector} AS {name(c.name)}" for c in whole],
        *[f"h.{name(c.name)}" for c in rest],
    ]
    return ", ".join(selected), [entity, *components, *whole, *rest]


def source_state_view(source: Source) -> str:
    """`gold.<source>`: the current state with the entity and each component under its own name."""
    columns, _ = state_columns(source)
    return create_view(
        "gold",
        source.source,
        f"Current state of the entities of {source.source}, as published.",
        held(STATE, ["source", "entity"], source=source.source, columns=columns),
    )


def landed_chunks(source: Source) -> str:
    """The chunks of a source that count: their landing is in the ledger."""
    return (
        f"SELECT h.* FROM (SELECT DISTINCT landing FROM bronze.files WHERE source = {literal(source.source)}) f"
        f" JOIN {qualified('bronze', chunks(source).table)} h ON h.landing = f.landing"
    )


def chunks_view(sources: list[Source]) -> str:
    """`bronze.chunks`: what all sources' chunks have in common, bounds per timeline as a map."""
    selects = []
    for source in sources:
        bounds = ", ".join(
            f"{literal(t)}, named_struct('min', min_{t}, 'max', max_{t}, 'sorted', sorted_{t}, 'times', t_{t})"
            for t in source.timelines
        )
        components = ", ".join(f"{literal(c)}, to_json(c_{c})" for c in source.columns)
        listed = ", ".join(name(c) for c in CHUNK_LIST)
        selects.append(
            f"SELECT {literal(source.source)} AS source, {listed}, map({bounds}) AS timelines,"
            f" map({components}) AS components"
            f" FROM ({landed_chunks(source)})"
        )
    return create_view("bronze", "chunks", "All landed chunks, one row each.", " UNION ALL ".join(selects))


def source_deltas(source: Source) -> str:
    """The landed rows of a source, one per row, typed."""
    arrays = [f"t_{t}" for t in source.timelines] + [f"c_{c}" for c in source.columns]
    # a chunk none of whose rows has a value holds no array: zipping needs one all the same
    padded = [f"coalesce({name(a)}, array_repeat(null, rows)) AS {name(a)}" for a in ["delta_ids", *arrays, "extra"]]
    zipped = ", ".join(name(a) for a in ["row_ids", "event_times", "delta_ids", *arrays, "extra"])
    fields = ", ".join(
        ["r.row_ids AS row_id", "r.event_times AS event_time", "r.delta_ids AS delta_id"]
        + [f"r.{name(a)} AS {name(a[2:] if a.startswith('c_') else a)}" for a in arrays]
        + ["r.extra AS extra"]
    )
    return (
        f"SELECT entity AS _entity, seq_no, chunk_id, {fields} FROM (SELECT entity, seq_no, chunk_id, row_ids,"
        f" event_times, {', '.join(padded)} FROM ({landed_chunks(source)}))"
        f" LATERAL VIEW explode(arrays_zip({zipped})) AS r"
    )


def deltas_view(sources: list[Source]) -> str:
    """`bronze.deltas`: the landed rows of all sources; times and components as JSON."""
    selects = []
    for source in sources:
        times = ", ".join(f"{literal(t)}, t_{t}" for t in source.timelines)
        components = ", ".join(f"{literal(c)}, {name(c)}" for c in source.columns)
        selects.append(
            f"SELECT {literal(source.source)} AS source, _entity AS entity, event_time, row_id, delta_id,"
            f" seq_no, chunk_id, map({times}) AS times, to_json(named_struct({components})) AS components, extra"
            f" FROM ({source_deltas(source)})"
        )
    return create_view("bronze", "deltas", "All landed rows, one per row.", " UNION ALL ".join(selects))
