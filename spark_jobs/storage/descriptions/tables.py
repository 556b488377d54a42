"""Every table of the lake. Tables that all sources share are constants; tables of one source are made by functions.

Times are TIMESTAMP in UTC with microseconds, the tick. `known_from` and `known_to` are visible times: a row is part
of the rows known at T iff `known_from <= T` and (`known_to` is null or `T < known_to`).
"""

from __future__ import annotations

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.column_types import sql_type_of
from spark_jobs.storage.descriptions.row_id_columns import FIRST_ROW_ID, LAST_ROW_ID
from spark_jobs.storage.descriptions.schema import Column, Table

DATABASES = {
    "bronze": "The rows of the files: dense chunks, the ledger of files, quarantine, duplicates.",
    "trace": "Updates behind frontiers: reads of sealed times give the same answers.",
    "silver": "Windows and sessions as published, with their history, and the late rows.",
    "gold": "State of entities as published, with its history.",
    "quality": "Checks with their verdicts, the runs, and the sizes of each drop.",
    "marts": "The marts that dbt builds: each as it last passed its tests.",
    "marts_staging": "Marts as dbt builds and tests them; people read `marts`.",
}

SOURCE = Column("source", "STRING", "Name of the source (its YAML file).")
TOKEN = Column(
    "token", "BIGINT", "Fence token of the attempt that wrote the row; it grows with every attempt of the source."
)

FILES = Table(
    "bronze",
    "files",
    "The ledger: one row per file and landing that changed what of it counts. A chunk, reject or duplicate counts iff"
    " its (source, landing) is here.",
    (
        SOURCE,
        Column("seq_no", "BIGINT", "Number of the drop, counted from the source's start."),
        Column("drop_lo", "TIMESTAMP", "Start of the drop's interval."),
        Column("drop_hi", "TIMESTAMP", "End of the drop's interval, exclusive."),
        Column("path", "STRING", "File, relative to the landing root; null for a drop without files."),
        FIRST_ROW_ID,
        LAST_ROW_ID,
        Column("bytes", "BIGINT", "Size of the file."),
        Column("checksum", "STRING", "SHA-256 of the file's bytes."),
        Column("rows", "BIGINT", "Rows of the file that came to chunks."),
        Column("rejects", "BIGINT", "Rows of it (or the file itself) that came to bronze.quarantine."),
        Column("duplicates", "BIGINT", "Rows of it that came to bronze.duplicates."),
        Column("rows_back", "BIGINT", "Rows of the file that were in chunks and were taken back."),
        Column("rejects_back", "BIGINT", "Rows that were in bronze.quarantine and are no longer."),
        Column("duplicates_back", "BIGINT", "Rows that were in bronze.duplicates and are no longer."),
        Column(
            "version",
            "STRING",
            "landed: what counts of the file is this version. unreadable: it could not be read to its end, what counted"
            " before still does. retracted: nothing of it counts until it has other bytes or a run names it.",
        ),
        Column("replaces", "BIGINT", "The landing that wrote the file's row before this one, if any."),
        Column("landing", "BIGINT", "Fence token of the landing."),
        Column("run_id", "STRING", "The run that landed it."),
        Column("landed_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
    ("seq_no", "landing"),
)

QUARANTINE = Table(
    "bronze",
    "quarantine_history",
    "Records and files that could not be read, and those of them that landed or went since. bronze.quarantine is read.",
    (
        SOURCE,
        Column("seq_no", "BIGINT", "Number of the drop."),
        Column("file", "STRING", "File, relative to the landing root."),
        Column("line", "BIGINT", "Line of the record in the file, from 1; null when the file as a whole was rejected."),
        Column("rule", "STRING", "Id of the rule that rejected it."),
        Column("rule_version", "INT", "Version of the rules; it rises when one accepts or refuses what it did not."),
        Column("definition", "STRING", "Hash of the part of the source file that says how records are read."),
        Column("reason", "STRING", "The expected and the found value."),
        Column("raw", "STRING", "The record as it stood in the file; bytes that are not UTF-8 are shown escaped."),
        Column(
            "last_line",
            "BIGINT",
            "Of a range of rejected records, its last line; null of a single one. reason and raw are its first line's.",
        ),
        Column("records", "BIGINT", "Number of lines of the range that the rule rejected; null for a single record."),
        Column("diff", "BIGINT", "+1 it was rejected, -1 it no longer is."),
        Column(
            "ended",
            "STRING",
            "Why it no longer is: replayed (its line is readable now), replaced (rejected with other content or for"
            " another reason), gone (no such line any more), retracted. Null while it is.",
        ),
        Column("landing", "BIGINT", "Fence token of the landing."),
        Column("run_id", "STRING", "The run that landed it."),
    ),
    ("source",),
    ("seq_no", "landing"),
)

DUPLICATES = Table(
    "bronze",
    "duplicates_history",
    "Readable rows whose delta_id another row with a smaller row_id carries, and those that count since or went."
    " bronze.duplicates is read.",
    (
        SOURCE,
        Column("seq_no", "BIGINT", "Number of the drop."),
        Column("file", "STRING", "File, relative to the landing root."),
        Column("line", "BIGINT", "Line of the row in the file."),
        Column("row_id", "BIGINT", "Id of the duplicate row."),
        Column("delta_id", "STRING", "The id that both rows carry."),
        Column("counted_row_id", "BIGINT", "The row that counts."),
        Column("conflict", "BOOLEAN", "True if the two rows differ in any value."),
        Column("row", "STRING", "The row as JSON, times in microseconds since 1970, dates in days."),
        Column("diff", "BIGINT", "+1 it became a duplicate, -1 it no longer is one."),
        Column("landing", "BIGINT", "Fence token of the landing."),
        Column("run_id", "STRING", "The run that landed it."),
    ),
    ("source",),
    ("seq_no", "landing"),
)

FRONTIERS = Table(
    "trace",
    "frontiers",
    "History of each source's frontiers: one row per change, the newest (greatest token) is in force.",
    (
        SOURCE,
        TOKEN,
        Column("run_id", "STRING", "The run that moved them."),
        Column("moved_at", "TIMESTAMP", "Time of the move by the machine's clock; nothing is decided by it."),
        Column(
            "seal",
            "TIMESTAMP",
            "No update can be added below it any more; a read below it always gives the same answer.",
        ),
        Column("trace_upper", "TIMESTAMP", "Updates below it are in trace batches."),
        Column("since", "TIMESTAMP", "Visible times below it are no longer distinguished."),
        Column(
            "reached", "TIMESTAMP", "Greatest end of any interval run so far; deltas at or beyond it are future-dated."
        ),
        Column(
            "complete", "TIMESTAMP", "Start of the first drop, counted from the source's start, that has not landed."
        ),
        Column("published", "TIMESTAMP", "`published` when they moved; trace.publications is made of it."),
        Column("state", "STRING", "The arrangement's metadata as JSON: seal, since, unsealed and trace batches."),
    ),
    ("source",),
    ("token",),
)

PUBLISHED = Table(
    "trace",
    "published",
    "One row per source: the publication in force. Its replacement makes a run's results visible.",
    (
        SOURCE,
        TOKEN,
        Column("run_id", "STRING", "The run that published."),
        Column(
            "published",
            "TIMESTAMP",
            "Changes with a time below it are published. The default as-of time is one tick before.",
        ),
        Column(
            "reached",
            "TIMESTAMP",
            "Deltas with an event time at or beyond it are future-dated and in no published table.",
        ),
        Column("complete", "TIMESTAMP", "Start of the first drop that had not landed."),
        Column("settled", "BIGINT", "Rows written by tokens up to this one are all published, or were removed."),
        Column("tokens", "ARRAY<BIGINT>", "Tokens beyond `settled` whose rows are published."),
        Column("definition", "STRING", "Hash of each part of the definition that the published rows follow, as JSON."),
        Column(
            "tables",
            "STRING",
            "Version, checksum of its commit, and rows of each table that the publication rests on, as JSON; null of an"
            " older version of Tidemark.",
        ),
    ),
    ("source",),
    (),
)

LATE = Table(
    "silver",
    "late_history",
    "Rows that were late for a window of a definition, or are in none of its windows, with the action taken.",
    (
        SOURCE,
        Column("definition", "STRING", "Name of the window definition; null: the source's state."),
        Column("row_id", "BIGINT", "The late row."),
        Column("entity", "STRING", "Its entity."),
        Column("event_time", "TIMESTAMP", "Its own time in this definition."),
        Column("drop_lo", "TIMESTAMP", "Start of the drop that brought it."),
        Column(
            "late_by",
            "BIGINT",
            "Microseconds from the end of the first window it is late for to the start of its drop.",
        ),
        Column(
            "late_from", "TIMESTAMP", "End of the first window it is late for; a session counts as ending a gap on."
        ),
        Column("late_to", "TIMESTAMP", "The windows over it that end from late_from to here are those it is late for."),
        Column(
            "counts_from",
            "TIMESTAMP",
            "It counts in the windows over it that end here or later; null: in none of them.",
        ),
        Column("moved_to", "TIMESTAMP", "It counts as a row at this instant instead (next_window), else null."),
        Column(
            "action",
            "STRING",
            "reemit: counted. discard: in no late window. partial: counted where allowed. next_window: at moved_to. "
            "below_horizon: not counted. kept_below_horizon: gone, counted. null_key: a key without "
            "a value. out_of_range: a window beyond years 1 to 9999.",
        ),
        Column("diff", "BIGINT", "+1 the row came, -1 it was taken back."),
        Column("known_from", "TIMESTAMP", "Visible time of the change."),
        TOKEN,
    ),
    ("source",),
    ("known_from", "token"),
)

VALIDITY = (
    Column("known_from", "TIMESTAMP", "Visible time from which the row is known."),
    Column("known_to", "TIMESTAMP", "Visible time from which it is no longer in force; null while it is."),
    Column("revision", "INT", "Number of earlier publications of this row, 0 the first time."),
    Column(
        "era",
        "STRING",
        "live: holds, or is closed by a `closing` row. closing: says that the live row with the same key and "
        "known_from ended at known_to. closed: history.",
    ),
    TOKEN,
)

STATE = Table(
    "gold",
    "state_history",
    "State of every entity as published, with its history: each row is a checkpoint at its timestamp.",
    (
        SOURCE,
        Column("entity", "STRING", "The entity."),
        Column("timestamp", "TIMESTAMP", "Event time of the last delta folded in."),
        Column("at_delta", "BIGINT", "row_id of the last delta folded in."),
        Column("delta_count", "BIGINT", "Deltas folded in."),
        Column("names", "ARRAY<STRING>", "Components of the vector, in order."),
        Column("ints", "ARRAY<BIGINT>", "The vector of an int64 state, else null. Null element: the value is null."),
        Column("floats", "ARRAY<DOUBLE>", "The vector of a floating point state, else null."),
        Column("seen", "ARRAY<BOOLEAN>", "True if a delta has set the component, also to null."),
        *VALIDITY,
    ),
    ("source", "era"),
    ("entity", "timestamp", "known_from", "known_to", "token"),
)

SHARED = (FILES, QUARANTINE, DUPLICATES, FRONTIERS, PUBLISHED, LATE, STATE)


def row_columns(source: Source) -> tuple[Column, ...]:
    """The columns of one row of a source, as landing reads them and the trace keeps them."""
    timelines = [Column(f"t_{t}", "TIMESTAMP", f"The row's time on the timeline {t}.") for t in source.timelines]
    values = [Column(f"c_{c}", sql_type_of(spec), f"Column {c} of the file.") for c, spec in source.columns.items()]
    return (
        Column("row_id", "BIGINT", "Drop, place of the file and line of the row; ties in time go to the greater."),
        Column("seq_no", "BIGINT", "Number of the drop that brought the row."),
        Column("entity", "STRING", "The entity that the row changes."),
        Column("event_time", "TIMESTAMP", "The row's time on the primary timeline."),
        Column("delta_id", "STRING", "Identity of the delta; null if the source declares none."),
        *timelines,
        *values,
        Column("extra", "MAP<STRING, STRING>", "Values of columns that the source file does not declare."),
    )


UPDATE = (
    Column("batch", "STRING", "The batch of the update."),
    Column("time", "TIMESTAMP", "Time at which the update becomes visible."),
    Column("diff", "BIGINT", "+1 the row is added, -1 it is taken back."),
)
"""The columns that a data plane's table has besides its data."""

BELOW_HORIZON = Column(
    "below_horizon",
    "INT",  # Delta keeps no statistics of booleans
    "1 if the row lay below the horizon when it came or went: it changes nothing that is published. Else null.",
)
COUNTS = f"{BELOW_HORIZON.name} IS NULL"
"""SQL condition: an update affects published rows. Every reader of updates for their meaning applies it."""


def updates(source: Source) -> Table:
    """`trace.<source>_updates`: the source's updates in unsealed batches and trace batches; `batch` names the batch.

    It is partitioned by batch, so that a batch is read and removed by its name alone, whatever else is in the table.
    """
    bounded = ("time", "diff", "event_time", "seq_no", "row_id", "token", BELOW_HORIZON.name)
    return Table(
        "trace",
        f"{source.source}_updates",
        f"Updates of {source.source}: (row, time, diff) by batch. Which batches count, trace.frontiers says.",
        (*UPDATE, *row_columns(source), BELOW_HORIZON, TOKEN),
        ("batch",),
        (*bounded, *[f"t_{t}" for t in source.timelines]),
    )


LANDINGS = Column(
    "landings", "ARRAY<BIGINT>", "Of a merged chunk the landing of each row; null where all are of `landing`."
)
LANDING_OF_ROWS = f"coalesce({LANDINGS.name}, array_repeat(landing, rows))"
"""SQL: the landing of each row of a chunk."""


def chunks(source: Source) -> Table:
    """`bronze.<source>_chunks`: one row per chunk of one entity, dense arrays, bounds per timeline."""
    timelines: list[Column] = []
    for timeline in source.timelines:
        timelines += [
            Column(f"t_{timeline}", "ARRAY<TIMESTAMP>", f"Times on the timeline {timeline}, one per row."),
            Column(f"min_{timeline}", "TIMESTAMP", f"Least time on {timeline}."),
            Column(f"max_{timeline}", "TIMESTAMP", f"Greatest time on {timeline}."),
            Column(f"sorted_{timeline}", "BOOLEAN", f"True if times on {timeline} do not decrease."),
        ]
    values = [
        Column(f"c_{c}", f"ARRAY<{sql_type_of(spec)}>", f"Column {c} of the file, one value per row.")
        for c, spec in source.columns.items()
    ]
    return Table(
        "bronze",
        f"{source.source}_chunks",
        f"Rows of {source.source} as dense chunks: one entity each, one array per timeline and per column.",
        (
            Column("chunk_id", "STRING", "Identity of the chunk."),
            Column("entity", "STRING", "The entity."),
            Column("seq_no", "BIGINT", "Number of the drop; of a merged chunk that of its last row."),
            Column("rows", "INT", "Number of rows."),
            Column("row_ids", "ARRAY<BIGINT>", "Ids of the rows, ascending."),
            Column("event_times", "ARRAY<TIMESTAMP>", "Primary times, one per row."),
            Column("event_min", "TIMESTAMP", "Least primary time."),
            Column("event_max", "TIMESTAMP", "Greatest primary time."),
            Column("delta_ids", "ARRAY<STRING>", "Identities of the deltas, one per row."),
            *timelines,
            *values,
            Column("extra", "ARRAY<MAP<STRING, STRING>>", "Undeclared columns' values, one map per row."),
            Column("diff", "BIGINT", "+1 the rows came, -1 they were taken back."),
            LANDINGS,
            Column(
                "landing",
                "BIGINT",
                "Fence token of the landing that brought the rows; of a merged chunk the last merged.",
            ),
        ),
        (),
        (
            "entity",
            "seq_no",
            "event_min",
            "event_max",
            "diff",
            "landing",
            *[f"{b}_{t}" for t in source.timelines for b in ("min", "max")],
        ),
    )


def windows(source: Source, definition: str, values: list[Column], identity: list[str]) -> Table:
    """`silver.<definition>_history`: the published windows of one definition with their history.

    `values` are the key columns and the aggregates, as the window kernel names and types them; `identity` the columns
    that identify a window among those in force at the same time.
    """
    # Delta keeps no statistics of booleans, and refuses a table that asks for them
    first_key = [column.name for column in values[:1] if column.type != "BOOLEAN"]
    return Table(
        "silver",
        f"{definition}_history",
        f"Windows of {source.source}.{definition} with their history; silver.{definition} is what is published.",
        (*values, *VALIDITY),
        ("era",),
        ("window_start", "window_end", "known_from", "known_to", "token", *first_key),
        (source.source, *identity),
    )
