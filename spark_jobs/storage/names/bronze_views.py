"""The views of the database bronze that users read: the rows of landings in the ledger, less those that were taken
back."""

from __future__ import annotations

from spark_jobs.model import ERASED
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, LANDING_OF_ROWS, QUARANTINE, SOURCE, chunks
from spark_jobs.storage.names.views import create_view

_LEDGER = qualified(FILES.database, FILES.table)


def quarantine_view() -> str:
    """`bronze.quarantine`: every record that was ever rejected, with its present state and the landings that met it."""
    identity = ("source", "seq_no", "file", "line", "rule", "reason", "raw", "last_line", "records")
    listed = ", ".join(f"h.{column}" for column in identity)
    records = (
        f"SELECT {listed}, max_by(h.rule_version, h.landing) AS rule_version,"
        " max_by(h.definition, h.landing) AS definition,"
        f" IF(sum(h.diff) > 0, IF(h.rule = {literal(ERASED)}, {literal(ERASED)}, 'open'), max_by(h.ended, h.landing))"
        " AS replay_state,"
        " min(h.landing) AS landing, min_by(h.run_id, h.landing) AS run_id, min(f.landed_at) AS first_seen,"
        " IF(sum(h.diff) > 0, max(l.landed_at), max(f.landed_at)) AS last_seen, max(l.checksum) AS checksum"
        f" FROM ({_rows_of_ledger(QUARANTINE)}) h JOIN ({_landings()}) f"
        " ON f.source = h.source AND f.landing = h.landing"
        f" JOIN (SELECT source, path, max(landed_at) AS landed_at, max_by(checksum, landing) AS checksum"
        f" FROM {_LEDGER} GROUP BY source, path) l ON l.source = h.source AND l.path = h.file GROUP BY {listed}"
    )
    covered = ("source", "file", "checksum", "rule")
    newest_dismissal = ", ".join(f"max_by({c}, dismissed_at) AS {c}" for c in ("because", "dismissed_by"))
    dismissed = (
        f"SELECT {', '.join(covered)}, {newest_dismissal}, max(dismissed_at) AS dismissed_at"
        f" FROM {qualified(DISMISSALS.database, DISMISSALS.table)} GROUP BY {', '.join(covered)}"
    )
    select = (
        f"SELECT {', '.join(f'q.{column}' for column in identity[:-1])}, coalesce(q.records, 1) AS records,"
        " q.rule_version, q.definition,"
        " IF(q.replay_state = 'open' AND d.because IS NOT NULL, 'dismissed', q.replay_state) AS replay_state,"
        " q.landing, q.run_id, q.first_seen, q.last_seen, d.because, d.dismissed_by, d.dismissed_at"
        f" FROM ({records}) q LEFT JOIN ({dismissed}) d ON {' AND '.join(f'd.{c} = q.{c}' for c in covered)}"
    )
    comment = (
        "Records and files that could not be read, kept as they were, with the reason. replay_state: open, dismissed by"
        " a person until the file changes, erased (nothing of it is kept), or why it is no longer here (replayed,"
        " replaced, gone, retracted)."
        " first_seen and last_seen: when a landing met it."
    )
    by_name = {column.name: column for column in (*QUARANTINE.columns, *DISMISSALS.columns)}
    columns = [
        *(by_name[c] for c in identity[:-1]),
        Column(
            "records", "BIGINT", "Number of records of the row: 1, or the number in the range that its rule rejected."
        ),
        *(by_name[c] for c in ("rule_version", "definition")),
        Column(
            "replay_state", "STRING", "open, dismissed, erased, or why it ended: replayed, replaced, gone, retracted."
        ),
        Column("landing", "BIGINT", "Fence token of the landing that rejected it first."),
        Column("run_id", "STRING", "The run that rejected it first."),
        Column("first_seen", "TIMESTAMP", "Time of the first landing that met it, by the clock of the machine."),
        Column("last_seen", "TIMESTAMP", "Time of the last landing of its file that met it."),
        *(by_name[c] for c in ("because", "dismissed_by", "dismissed_at")),
    ]
    return create_view("bronze", "quarantine", comment, columns, select)


def duplicates_view() -> str:
    """`bronze.duplicates`: the rows that do not count, since another row with the same delta_id counts."""
    hidden = ("diff", "landing", "run_id")
    columns = [column for column in DUPLICATES.columns if column.name not in hidden]
    listed = ", ".join(f"h.{column.name}" for column in columns)
    select = (
        f"SELECT {listed}, max(h.landing) AS landing, max_by(h.run_id, h.landing) AS run_id"
        f" FROM ({_rows_of_ledger(DUPLICATES)}) h GROUP BY {listed} HAVING sum(h.diff) > 0"
    )
    comment = "Readable rows whose delta_id another row with a smaller row_id carries: that one counts."
    by_name = {column.name: column for column in DUPLICATES.columns}
    return create_view("bronze", "duplicates", comment, [*columns, by_name["landing"], by_name["run_id"]], select)


def _landings() -> str:
    return f"SELECT source, landing, max(landed_at) AS landed_at FROM {_LEDGER} GROUP BY source, landing"


def _rows_of_ledger(table: Table) -> str:
    physical = qualified(table.database, table.table)
    return f"SELECT t.* FROM {physical} t LEFT SEMI JOIN {_LEDGER} c ON c.source = t.source AND c.landing = t.landing"


def deltas_view(source: Source) -> str:
    """`bronze.<source>_deltas`: the landed rows of a source that were not taken back, its columns as JSON.

    The metastore accepts at most 32,700 characters of a view, so the SQL names each column as seldom as possible.
    """
    times = ", ".join(f"{literal(timeline)}, {name(f'_t_{timeline}')}" for timeline in source.timelines)
    columns = [
        SOURCE,
        Column("entity", "STRING", "The entity that the row changes."),
        Column("event_time", "TIMESTAMP", "The row's time on the primary timeline."),
        Column("row_id", "BIGINT", "Id of the row; ties in time go to the greater."),
        Column("delta_id", "STRING", "Identity of the delta; null if the source declares none."),
        Column("seq_no", "BIGINT", "Number of the drop that brought the row."),
        Column("chunk_id", "STRING", "The chunk that has the row."),
        Column("times", "MAP<STRING, TIMESTAMP>", "The row's time by timeline."),
        Column("components", "STRING", "The row's values by column of the file, as JSON."),
        Column("extra", "MAP<STRING, STRING>", "Values of columns that the source file does not declare."),
    ]
    select = (
        f"SELECT {literal(source.source)} AS source, _entity AS entity, _event_time AS event_time, _row_id AS row_id,"
        f" _delta_id AS delta_id, shiftright(_row_id, {PLACE_BITS}) AS seq_no, _chunk_id AS chunk_id,"
        f" map({times}) AS times, to_json(_values) AS components, _extra AS extra"
        f" FROM ({_rows_that_came(source)}) c LEFT ANTI JOIN ({_rows_that_went(source)}) g"
        " ON g.row_id = c._row_id AND g.landing > c._landing"
    )
    comment = f"Landed rows of {source.source} that were not taken back, one per row."
    return create_view("bronze", f"{source.source}_deltas", comment, columns, select)


def _landed_chunks(source: Source) -> str:
    """SQL: the chunks of a source that count, which are those whose landing is in the ledger."""
    return (
        f"SELECT h.* FROM (SELECT DISTINCT landing FROM {_LEDGER} WHERE source = {literal(source.source)}) f"
        f" JOIN {qualified('bronze', chunks(source).table)} h ON h.landing = f.landing"
    )


def _rows_that_came(source: Source) -> str:
    """SQL: each row of each chunk that came. `_values` is a struct of the source's columns. Decimals are texts in it,
    since readers of JSON would take them for doubles. Our own names begin with `_`, which no name of a source's column
    does."""
    fields = {
        "_row_id": "row_ids",
        "_event_time": "event_times",
        "_delta_id": "delta_ids",
        "_extra": "extra",
        "_landing": LANDING_OF_ROWS,
        **{f"_t_{timeline}": name(f"t_{timeline}") for timeline in source.timelines},
    }
    # a chunk without any value of a column stores no array of it, but zipping needs all arrays
    padded = ", ".join(f"coalesce({sql}, _null) AS {name(alias)}" for alias, sql in fields.items())
    values = ", ".join(f"coalesce({_readable(source, column)}, _null) AS {name(column)}" for column in source.columns)
    zipped = ", ".join(name(column) for column in source.columns)
    return (
        f"SELECT _entity, _chunk_id, r.* FROM (SELECT *, arrays_zip({zipped}) AS _values"
        f" FROM (SELECT entity AS _entity, chunk_id AS _chunk_id, {padded}, {values}"
        f" FROM (SELECT *, array_repeat(null, rows) AS _null FROM ({_landed_chunks(source)}) WHERE diff > 0)))"
        f" LATERAL VIEW inline(arrays_zip({', '.join(map(name, fields))}, _values)) r"
    )


def _readable(source: Source, column: str) -> str:
    values = name(f"c_{column}")
    return values if source.columns[column].digits is None else f"CAST({values} AS ARRAY<STRING>)"


def _rows_that_went(source: Source) -> str:
    """SQL: the id of each row that was taken back, with the last landing that took it back."""
    return (
        "SELECT r.row_ids AS row_id, max(r.landing) AS landing"
        f" FROM (SELECT row_ids, {LANDING_OF_ROWS} AS landing FROM ({_landed_chunks(source)}) WHERE diff < 0)"
        " LATERAL VIEW explode(arrays_zip(row_ids, landing)) AS r GROUP BY r.row_ids"
    )
