"""The past in SQL: table functions that answer "as it was known at T", and the changelog with the updates that caused
it.

    SELECT * FROM silver.departure_delays_as_of('2013-01-02')        -- windows as they were known then
    SELECT * FROM gold.flights_as_of('2013-01-02')                   -- states as they were known then
    SELECT * FROM silver.departure_delays_changes WHERE origin = 'JFK' ORDER BY time
    SELECT * FROM silver.departure_delays_causes WHERE origin = 'JFK' AND time = …

An argument is a literal to the query that calls the function, so Delta skips the files that it excludes. Without an
argument a function answers for now. A time that is not published yet, below since, or before the first publication ends
the query with the refusal's code. So no function gives an answer that could still change, or that there never was.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.descriptions.tables import (
    COUNTS,
    FRONTIERS,
    LATE,
    PUBLISHED,
    SOURCE,
    STATE,
    TOKEN,
    UPDATE,
    VALIDITY,
    row_columns,
    updates,
)
from spark_jobs.storage.names.views import VISIBLE, create_view, publication, rows_in_force, state_columns

AT = Column("at", "TIMESTAMP", "The visible time to read at; without it the newest that is published.")
OF_SOURCE = Column("of_source", "STRING", "Name of the source.")
TIME = Column("time", "TIMESTAMP", "Visible time of the change, which is that of its publication.")
DIFF = Column("diff", "BIGINT", "+1 the row came, -1 it went; a changed row has both.")
RUN = Column("run_id", "STRING", "The run that published the change.")
TICK = "INTERVAL '0.000001' SECOND"

_UPDATE = ("row_id", "seq_no", "entity", "event_time", "delta_id", "time", "diff", "token")
_FRONTIERS, _PUBLISHED = (qualified(table.database, table.table) for table in (FRONTIERS, PUBLISHED))


def create_function(
    database: str, function: str, comment: str, arguments: Sequence[Column], returns: Sequence[Column], select: str
) -> str:
    """CREATE OR REPLACE of a table function; the last argument, a time, may be left out."""
    taken = [f"{name(a.name)} {a.type} COMMENT {literal(a.comment)}" for a in arguments[:-1]]
    last = arguments[-1]
    taken.append(f"{name(last.name)} {last.type} DEFAULT NULL COMMENT {literal(last.comment)}")
    return (
        f"CREATE OR REPLACE FUNCTION {qualified(database, function)}({', '.join(taken)})"
        f" RETURNS TABLE ({', '.join(column.ddl() for column in returns)}) COMMENT {literal(comment)} RETURN {select}"
    )


def publication_at(source: str) -> str:
    """The publication in force with `at_time`, the checked time to read at. `source` is SQL of the source's name.

    One row without nulls even where nothing is published, so that no join drops it before its time is checked.
    """
    newest = f"(q.published - {TICK})"
    nothing = _refusal("not_published", "'something published of '", source, "', found nothing; run its drops first'")
    too_new = _refusal(
        "not_published", "'a time up to '", newest, "', found '", "at", "'; run the drops up to that time first'"
    )
    too_old = _refusal("below_since", "'a time from since, '", "f.since", "', found '", "at", "'; ask later'")
    first = f"(coalesce(f.first, q.published) - {TICK})"
    too_early = _refusal(
        "before_first_publication",
        "'a time from the first publication on, '",
        first,
        "', found '",
        "at",
        "'; ask later: a run of several drops publishes them at the time of its end, `--each` each at its own'",
    )
    checked = (
        f"CASE WHEN q.published IS NULL THEN {nothing} WHEN at IS NULL THEN {newest} WHEN at > {newest} THEN {too_new}"
        f" WHEN at < f.since THEN {too_old} WHEN at < {first} THEN {too_early} ELSE at END"
    )
    # the seal 1970 means that nothing of a source is published; every later move notes the publication of its time
    since = (
        "(SELECT source, max(since) AS since, min(IF(published > timestamp_micros(0), published, NULL)) AS first"
        f" FROM {_FRONTIERS} GROUP BY source)"
    )
    return (
        f"(SELECT {source} AS source, coalesce(q.settled, 0L) AS settled, coalesce(q.tokens, array()) AS tokens,"
        f" {checked} AS at_time FROM VALUES (1) AS one(row)"
        f" LEFT JOIN {_PUBLISHED} q ON q.source = {source} LEFT JOIN {since} f ON f.source = q.source)"
    )


def _refusal(code: str, *parts: str) -> str:
    return f"raise_error(concat({literal(code + ': expected ')}, {', '.join(parts)}))"


def window_as_of(source: Source, definition: str, table: Table, identity: list[str]) -> str:
    """`silver.<definition>_as_of(at)`: the windows as they were known at `at`."""
    hidden = {"known_to", "era", "token"}
    returns = [c for c in table.columns if c.name not in hidden]
    select = rows_in_force(
        table,
        identity,
        source=source.source,
        columns=", ".join(f"h.{name(c.name)}" for c in returns),
        at=publication_at(literal(source.source)),
    )
    comment = f"Windows {definition} of {source.source} as they were known at a visible time."
    return create_function("silver", f"{definition}_as_of", comment, [AT], returns, select)


def state_as_of() -> str:
    """`gold.state_as_of(of_source, at)`: the states of a source's entities as they were known at `at`."""
    returns = [c for c in STATE.columns if c.name not in {"known_to", "era", "token"}]
    select = rows_in_force(
        STATE,
        ["source", "entity"],
        source=None,
        columns=", ".join(f"h.{name(c.name)}" for c in returns),
        at=publication_at("of_source"),
    )
    comment = "States of a source's entities as they were known at a visible time."
    return create_function("gold", "state_as_of", comment, [OF_SOURCE, AT], returns, select)


def source_state_as_of(source: Source) -> str:
    """`gold.<source>_as_of(at)`: as `gold.<source>`, each component under its own name."""
    columns, returns = state_columns(source)
    select = rows_in_force(
        STATE,
        ["source", "entity"],
        source=source.source,
        columns=", ".join(columns),
        at=publication_at(literal(source.source)),
    )
    comment = f"States of the entities of {source.source} as they were known at a visible time."
    return create_function("gold", f"{source.source}_as_of", comment, [AT], returns, select)


def late_as_of() -> str:
    """`silver.late_as_of(of_source, at)`: the late rows that were known at `at`."""
    returns = [c for c in LATE.columns if c.name not in {"diff", "token"}]
    grouped = ", ".join(f"h.{name(c.name)}" for c in returns if c.name != "known_from")
    select = (
        f"SELECT {grouped}, min(h.known_from) AS known_from FROM {publication_at('of_source')} p"
        f" JOIN {qualified(LATE.database, LATE.table)} h"
        f" ON h.source = p.source AND h.known_from <= p.at_time AND {VISIBLE} GROUP BY {grouped} HAVING sum(h.diff) > 0"
    )
    comment = "Late rows of a source as they were known at a visible time."
    return create_function("silver", "late_as_of", comment, [OF_SOURCE, AT], returns, select)


def publications_view() -> str:
    """`trace.publications`: every publication so far, with the frontiers of the one before it.

    Between two publications the frontiers move, and each move notes the publication: so the seals that were once
    published are known without a table of their own.
    """
    seals = f"SELECT source, published AS seal FROM {_PUBLISHED} UNION SELECT source, published FROM {_FRONTIERS}"
    # a seal goes up but where a run withdrew what an interrupted one had sealed: what came before that withdrawal has a
    # smaller token than a row below the seal
    below = (
        "SELECT source, seal, max(max(token)) OVER (PARTITION BY source ORDER BY seal"
        f" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS withdrawn FROM {_FRONTIERS} GROUP BY source, seal"
    )
    # the first run to seal there published; later moves of the frontiers (holds, upkeep) keep the seal
    each = (
        "SELECT source, seal AS published, max(f.reached) AS reached, min_by(f.run_id, f.token) AS run_id"
        f" FROM ({seals}) JOIN ({below}) USING (source, seal) JOIN {_FRONTIERS} f USING (source, seal)"
        # the seal 1970 means that nothing of a source is published
        " WHERE seal > timestamp_micros(0) AND f.token > coalesce(withdrawn, -1) GROUP BY source, seal"
    )
    before = "lag({}) OVER (PARTITION BY source ORDER BY published)"
    select = (
        f"SELECT source, run_id, published - {TICK} AS known_from, published, reached,"
        f" coalesce({before.format('published')}, timestamp_micros(0)) AS published_before,"
        f" coalesce({before.format('reached')}, timestamp_micros(0)) AS reached_before FROM ({each})"
    )
    comment = (
        "Every publication of every source: its changes carry the time known_from. It took in the updates with time <"
        " published and event_time < reached that had not both been so before."
    )
    columns = [
        SOURCE,
        Column("run_id", "STRING", "The run that published."),
        Column("known_from", "TIMESTAMP", "Visible time that its changes carry."),
        Column("published", "TIMESTAMP", "Changes with a time below it are published with it."),
        Column("reached", "TIMESTAMP", "Deltas with an event time at or beyond it are in no table of it."),
        Column("published_before", "TIMESTAMP", "`published` of the publication before, 1970 for the first."),
        Column("reached_before", "TIMESTAMP", "`reached` of the publication before, 1970 for the first."),
    ]
    return create_view("trace", "publications", comment, columns, select)


def changes_view(database: str, view: str, source: Source, table: Table, values: Sequence[Column]) -> str:
    """`<view>_changes`: the changelog as updates (row, time, diff), with the run that published each."""
    row = ", ".join(f"h.{name(c.name)}" for c in values)
    physical = qualified(table.database, table.table)
    of_source = f" AND h.source = {literal(source.source)}" if _is_shared(table) else ""
    halves = [
        f"SELECT {row}, h.{time} AS time, CAST({diff} AS BIGINT) AS diff, h.revision FROM"
        f" {publication(source.source)} p JOIN {physical} h"
        f" ON h.era IN {eras} AND h.{time} < p.published AND {VISIBLE}{of_source}"
        for time, diff, eras in (
            ("known_from", 1, "('live', 'closed')"),
            ("known_to", -1, "('closing', 'closed')"),
        )
    ]
    select = (
        f"SELECT c.*, p.run_id FROM ({' UNION ALL '.join(halves)}) c LEFT JOIN trace.publications p"
        f" ON p.source = {literal(source.source)} AND p.known_from = c.time"
    )
    comment = f"Changelog of {database}.{view}: updates (row, time, diff); summed up to a time they are its rows then."
    revision = next(column for column in VALIDITY if column.name == "revision")
    return create_view(database, f"{view}_changes", comment, [*values, TIME, DIFF, revision, RUN], select)


def causes_view(database: str, view: str, source: Source, identity: Sequence[str], behind: str) -> str:
    """`<view>_causes`: for each change of a published row, the updates that touch it and that its publication took in.

    `behind` is the SQL condition that the update `u` can affect the row of the change `c`. Rows that an update leaves
    as they were have no change, so they are not here. Updates up to since are not here either: merged batches have them
    at one time, so their publication can't be determined any more.
    """
    listed = ", ".join(f"c.{name(column)}" for column in identity)
    updates_read = ", ".join(f"u.{column} AS update_{column}" for column in _UPDATE)
    taken_in = (
        "u.time < p.published AND u.event_time < p.reached"
        " AND (u.time >= p.published_before OR u.event_time >= p.reached_before)"
        " AND u.time > coalesce(s.since, timestamp_micros(0))"
    )
    since = f"SELECT max(since) AS since FROM {_FRONTIERS} WHERE source = {literal(source.source)}"
    select = (
        f"SELECT {listed}, c.time, c.diff, c.run_id, {updates_read}"
        f" FROM {qualified(database, f'{view}_changes')} c"
        f" JOIN trace.publications p ON p.source = {literal(source.source)} AND p.known_from = c.time"
        f" CROSS JOIN ({since}) s JOIN ({stored_rows(source, 'trace')}) u ON {behind} AND {taken_in}"
    )
    comment = f"The updates after since behind each change of {database}.{view}; the row id has drop, file and line."
    of_row = [Column(column, "", f"{column} of the row that changed.") for column in identity]
    of_update = {column.name: column.comment for column in (*row_columns(source), *UPDATE, TOKEN)}
    updates_shown = [Column(f"update_{c}", "", f"Of the update: {of_update[c]}") for c in _UPDATE]
    return create_view(database, f"{view}_causes", comment, [*of_row, TIME, DIFF, RUN, *updates_shown], select)


_DUE = Column("time", "TIMESTAMP", "Time at which the update takes effect.")


def window_corrections_view(source: Source, definition: str, identity: Sequence[Column], keep_us: int) -> str:
    """`silver.<definition>_corrections`: the retractions of published windows that are kept for a while; the date of
    each follows from the window's end."""
    listed = ", ".join(name(column.name) for column in identity)
    select = (
        f"SELECT {listed}, timestamp_micros(unix_micros(window_end) + {keep_us - 1}L) AS time,"
        f" CAST(-1 AS BIGINT) AS diff FROM {qualified('silver', definition)}"
    )
    comment = (
        f"Updates (row, time, diff) dated in the future: windows {definition} of {source.source} that will leave. One"
        " leaves with the first run that reaches beyond its time."
    )
    diff = Column("diff", "BIGINT", "-1: the window leaves.")
    return create_view("silver", f"{definition}_corrections", comment, [*identity, _DUE, diff], select)


def future_deltas_view(source: Source) -> str:
    """`trace.<source>_corrections`: the deltas of a source that are dated in the future; no published table has them
    yet."""
    columns = ("entity", "row_id", "event_time", "time", "diff")
    select = (
        f"SELECT {', '.join(f'u.{column}' for column in columns)} FROM {publication(source.source)} p"
        f" JOIN ({stored_rows(source, 'trace', 'unsealed')}) u ON u.time >= p.published OR u.event_time >= p.reached"
    )
    comment = (
        f"Updates (row, time, diff) of {source.source} dated in the future: deltas whose event time no run has reached."
        " One takes effect with the first run that reaches beyond its time."
    )
    by_name = {column.name: column for column in (*row_columns(source), *UPDATE)}
    return create_view(
        "trace", f"{source.source}_corrections", comment, [by_name[column] for column in columns], select
    )


def stored_rows(source: Source, *kinds: str) -> str:
    """SQL: the updates that count in the arrangement's batches, as the publication in force had them. `kinds`: `trace`,
    `unsealed` or both."""
    handles_of_kinds = [
        f"from_json(get_json_object(max_by(state, token), '$.arrangement.{kind}'), 'ARRAY<STRUCT<handle: STRING>>')"
        for kind in kinds
    ]
    handles = f"SELECT explode(concat({', '.join(handles_of_kinds)}).handle) AS batch FROM {_FRONTIERS}"
    published = f"SELECT max(published) FROM {publication(source.source)}"
    of_source = f"{handles} WHERE source = {literal(source.source)} AND seal <= ({published})"
    table = qualified("trace", updates(source).table)
    return f"SELECT * FROM {table} LEFT SEMI JOIN ({of_source}) USING (batch) WHERE {COUNTS}"


def _is_shared(table: Table) -> bool:
    return any(column.name == "source" for column in table.columns)
