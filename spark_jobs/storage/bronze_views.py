"""The names of bronze that users read: what the ledger counts, less what was taken back."""

from __future__ import annotations

from spark_jobs.model import ERASED
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.people_tables import DISMISSALS
from spark_jobs.storage.schema import Column, Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import DUPLICATES, FILES, LANDING_OF_ROWS, QUARANTINE, SOURCE, chunks
from spark_jobs.storage.views import create_view

_LEDGER = qualified(FILES.database, FILES.table)

CHUNK_COLUMNS = (
    Column("entity", "STRING", "The entity that the chunk's rows change."),
    Column("chunk_id", "STRING", "Identity of the chunk."),
    Column("seq_no", "BIGINT", "Number of the drop that brought the rows; of a merged chunk the last of them."),
    Column("rows", "INT", "Number of rows."),
    Column("row_ids", "ARRAY<BIGINT>", "Ids of the rows, ascending."),
    Column("event_times", "ARRAY<TIMESTAMP>", "Times on the primary timeline, one per row."),
    Column("event_min", "TIMESTAMP", "Least of them."),
    Column("event_max", "TIMESTAMP", "Greatest of them."),
    Column("diff", "BIGINT", "+1 the rows came, -1 they were taken back."),
    Column("landing", "BIGINT", "Fence token of the landing that brought the rows; of a merged chunk the last merged."),
)
CHUNK_LIST = tuple(column.name for column in CHUNK_COLUMNS)
"""The columns that the chunk tables of all sources have in common."""


def quarantine_view() -> str:
    """`bronze.quarantine`: every record that was ever rejected, with what became of it."""
    identity = ("source", "seq_no", "file", "line", "rule", "reason", "raw", "last_line", "records")
    listed = ", ".join(f"h.{column}" for column in identity)
    records = (
        f"SELECT {listed}, max_by(h.rule_version, h.landing) AS rule_version,"
        " max_by(h.definition, h.landing) AS definition,"
        f" IF(sum(h.diff) > 0, IF(h.rule = {literal(ERASED)}, {literal(ERASED)}, 'open'), max_by(h.ended, h.landing))"
        " AS replay_state,"
        " min(h.landing) AS landing, min_by(h.run_id, h.landing) AS run_id, min(f.landed_at) AS first_seen,"
        " IF(sum(h.diff) > 0, max(l.landed_at), max(f.landed_at)) AS last_seen, max(l.checksum) AS checksum"
        f" FROM ({_counted(QUARANTINE)}) h JOIN ({_landings()}) f ON f.source = h.source AND f.landing = h.landing"
        f" JOIN (SELECT source, path, max(landed_at) AS landed_at, max_by(checksum, landing) AS checksum"
        f" FROM {_LEDGER} GROUP BY source, path) l ON l.source = h.source AND l.path = h.file GROUP BY {listed}"
    )
    covered = ("source", "file", "checksum", "rule")
    said = ", ".join(f"max_by({c}, dismissed_at) AS {c}" for c in ("because", "dismissed_by"))
    dismissed = (
        f"SELECT {', '.join(covered)}, {said}, max(dismissed_at) AS dismissed_at"
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
    held = {column.name: column for column in (*QUARANTINE.columns, *DISMISSALS.columns)}
    columns = [
        *(held[c] for c in identity[:-1]),
        Column(
            "records", "BIGINT", "How many records the row stands for: 1, or those of the range that its rule rejected."
        ),
        *(held[c] for c in ("rule_version", "definition")),
        Column(
            "replay_state", "STRING", "open, dismissed, erased, or why it ended: replayed, replaced, gone, retracted."
        ),
        Column("landing", "BIGINT", "Fence token of the landing that rejected it first."),
        Column("run_id", "STRING", "The run that rejected it first."),
        Column("first_seen", "TIMESTAMP", "When a landing met it first, by the clock of the machine."),
        Column("last_seen", "TIMESTAMP", "When a landing of its file met it last."),
        *(held[c] for c in ("because", "dismissed_by", "dismissed_at")),
    ]
    return create_view("bronze", "quarantine", comment, columns, select)


def duplicates_view() -> str:
    """`bronze.duplicates`: the rows that another one stands for."""
    hidden = ("diff", "landing", "run_id")
    shown = [column for column in DUPLICATES.columns if column.name not in hidden]
    listed = ", ".join(f"h.{column.name}" for column in shown)
    select = (
        f"SELECT {listed}, max(h.landing) AS landing, max_by(h.run_id, h.landing) AS run_id"
        f" FROM ({_counted(DUPLICATES)}) h GROUP BY {listed} HAVING sum(h.diff) > 0"
    )
    comment = "Readable rows whose delta_id another row with a smaller row_id carries: that one counts."
    by_name = {column.name: column for column in DUPLICATES.columns}
    return create_view("bronze", "duplicates", comment, [*shown, by_name["landing"], by_name["run_id"]], select)


def _landings() -> str:
    return f"SELECT source, landing, max(landed_at) AS landed_at FROM {_LEDGER} GROUP BY source, landing"


def _counted(table: Table) -> str:
    physical = qualified(table.database, table.table)
    return f"SELECT t.* FROM {physical} t LEFT SEMI JOIN {_LEDGER} c ON c.source = t.source AND c.landing = t.landing"


def _json_values(source: Source, text: str, prefix: str = "") -> dict[str, str]:
    """Per declared column SQL of what stands in JSON: decimals as `text`, as readers would take them for doubles."""
    columns = {column: name(prefix + column) for column in source.columns}
    return {c: sql if source.columns[c].digits is None else f"CAST({sql} AS {text})" for c, sql in columns.items()}


def landed_chunks(source: Source) -> str:
    """The chunks of a source that count: their landing is in the ledger."""
    return (
        f"SELECT h.* FROM (SELECT DISTINCT landing FROM bronze.files WHERE source = {literal(source.source)}) f"
        f" JOIN {qualified('bronze', chunks(source).table)} h ON h.landing = f.landing"
    )


def chunks_of(source: Source) -> str:
    """A source's part of `bronze.chunks`: what all sources' chunks have in common, bounds per timeline as a map."""
    bounds = ", ".join(
        f"{literal(t)}, named_struct('min', min_{t}, 'max', max_{t}, 'sorted', sorted_{t}, 'times', t_{t})"
        for t in source.timelines
    )
    values = _json_values(source, "ARRAY<STRING>", "c_")
    components = ", ".join(f"{literal(c)}, to_json({sql})" for c, sql in values.items())
    listed = ", ".join(name(c) for c in CHUNK_LIST)
    return (
        f"SELECT {literal(source.source)} AS source, {listed}, map({bounds}) AS timelines,"
        f" map({components}) AS components FROM ({landed_chunks(source)})"
    )


def chunks_view(selects: list[str]) -> str:
    """`bronze.chunks`, made of each source's part."""
    return create_view(
        "bronze",
        "chunks",
        "All landed chunks, one row each: diff 1 of rows that came, -1 of rows that were taken back.",
        [
            SOURCE,
            *CHUNK_COLUMNS,
            Column("timelines", "", "By timeline: min, max, whether its times are sorted, and the times, one per row."),
            Column("components", "", "By column of the file: its values as a JSON list, one per row."),
        ],
        " UNION ALL ".join(selects),
    )


def source_deltas(source: Source, landing_of_rows: str = LANDING_OF_ROWS) -> str:
    """The landed rows of a source that were not taken back, one per row, typed."""
    arrays = [f"t_{t}" for t in source.timelines] + [f"c_{c}" for c in source.columns]
    # a chunk none of whose rows has a value holds no array: zipping needs one all the same
    padded = [f"coalesce({name(a)}, array_repeat(null, rows)) AS {name(a)}" for a in ["delta_ids", *arrays, "extra"]]
    zipped = ", ".join(name(a) for a in ["row_ids", "event_times", "delta_ids", *arrays, "extra", "landing"])
    fields = ", ".join(
        ["r.row_ids AS row_id", "r.event_times AS event_time", "r.delta_ids AS delta_id"]
        + [f"r.{name(a)} AS {name(a[2:] if a.startswith('c_') else a)}" for a in arrays]
        + ["r.extra AS extra", f"shiftright(r.row_ids, {PLACE_BITS}) AS seq_no", "r.landing AS landing"]
    )
    came = (
        f"SELECT entity AS _entity, chunk_id, {fields} FROM (SELECT entity, chunk_id, row_ids, event_times,"
        f" {', '.join(padded)}, {landing_of_rows} AS landing FROM ({landed_chunks(source)}) WHERE diff > 0)"
        f" LATERAL VIEW explode(arrays_zip({zipped})) AS r"
    )
    went = (
        "SELECT r.row_ids AS row_id, max(r.landing) AS landing"
        f" FROM (SELECT row_ids, {landing_of_rows} AS landing FROM ({landed_chunks(source)}) WHERE diff < 0)"
        " LATERAL VIEW explode(arrays_zip(row_ids, landing)) AS r GROUP BY r.row_ids"
    )
    return f"SELECT c.* FROM ({came}) c LEFT ANTI JOIN ({went}) g ON g.row_id = c.row_id AND g.landing > c.landing"


def deltas_of(source: Source, landing_of_rows: str = LANDING_OF_ROWS) -> str:
    """A source's part of `bronze.deltas`: its landed rows, components as JSON. `landing_of_rows`: SQL that a table of
    chunks understands."""
    times = ", ".join(f"{literal(t)}, t_{t}" for t in source.timelines)
    components = ", ".join(f"{literal(c)}, {sql}" for c, sql in _json_values(source, "STRING").items())
    return (
        f"SELECT {literal(source.source)} AS source, _entity AS entity, event_time, row_id, delta_id,"
        f" seq_no, chunk_id, map({times}) AS times, to_json(named_struct({components})) AS components, extra"
        f" FROM ({source_deltas(source, landing_of_rows)})"
    )


def deltas_view(selects: list[str]) -> str:
    """`bronze.deltas`, made of each source's part."""
    columns = [
        SOURCE,
        Column("entity", "STRING", "The entity that the row changes."),
        Column("event_time", "TIMESTAMP", "The row's time on the primary timeline."),
        Column("row_id", "BIGINT", "Id of the row; ties in time go to the greater."),
        Column("delta_id", "STRING", "Identity of the delta; null if the source declares none."),
        Column("seq_no", "BIGINT", "Number of the drop that brought the row."),
        Column("chunk_id", "STRING", "The chunk that holds the row."),
        Column("times", "MAP<STRING, TIMESTAMP>", "The row's time by timeline."),
        Column("components", "STRING", "The row's values by column of the file, as JSON."),
        Column("extra", "MAP<STRING, STRING>", "Values of columns that the source file does not declare."),
    ]
    comment = "All landed rows that were not taken back, one per row."
    return create_view("bronze", "deltas", comment, columns, " UNION ALL ".join(selects))
