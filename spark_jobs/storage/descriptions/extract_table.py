"""The table of extracts: which part of a table or topic was read for which drop, and into which files."""

from __future__ import annotations

from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import SOURCE

EXTRACTS = Table(
    "bronze",
    "extracts",
    "Readings of drops that come from tables and topics: one row per drop and reading. Files land iff one names them.",
    (
        SOURCE,
        Column("seq_no", "BIGINT", "Number of the drop."),
        Column("number", "BIGINT", "Number of the reading, counted over all drops of the source."),
        Column("origin", "STRING", "The table, query or topic."),
        Column("range", "STRING", "The range that was read, as JSON: bounds of the increasing column, or offsets."),
        Column("rows", "BIGINT", "Rows that came to files of this drop by this reading."),
        Column("gone", "BIGINT", "Rows of earlier readings that were not there any more, and left their files."),
        Column("files", "STRING", "The files that it wrote or wrote anew, with bytes and SHA-256, as JSON."),
        Column("run_id", "STRING", "The run that read it."),
        Column("extracted_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
)
