"""The table of chains: segments of deltas with their checkpoints, of all sources that keep them."""

from __future__ import annotations

from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import SOURCE, VALIDITY

CHAINS_PART = "chains"
"""Name of the part of a definition that says that chains are kept."""
COMPACTION = "compaction"
"""Era of the rows that report a run's compaction."""

METRICS = (
    Column("chains", "BIGINT", "Chains of which the run wrote a segment."),
    Column("checkpoints", "BIGINT", "Segments on a checkpoint that it wrote."),
    Column("merged", "BIGINT", "Deltas that it folded into the chains' newest checkpoints."),
    Column("bytes_before", "BIGINT", "Bytes of the deltas that came and of the segments that it replaced."),
    Column("bytes_after", "BIGINT", "Bytes of the segments that it wrote, before files are compressed."),
)
"""The columns that a row of the era compaction fills, besides `dropped`; they are null in other rows."""

CHAINS = Table(
    "gold",
    "chain_history",
    "Chains of deltas in segments, with their history: a checkpoint and the deltas after it, up to the next one. Times "
    "but known_from and known_to are microseconds since 1970; lists are per delta, or empty if they would say nothing. "
    "Rows of the era compaction say what a run's compaction did instead; gold.compactions is read.",
    (
        SOURCE,
        Column("entity", "STRING", "The entity."),
        Column("start_time", "BIGINT", "Event time of the last delta before the segment; null where the chain begins."),
        Column("start_row", "BIGINT", "row_id of that delta."),
        Column("end_time", "BIGINT", "start_time of the entity's next segment; null for the last one."),
        Column(
            "settled",
            "BIGINT",
            "The checkpoint is valid as known from this visible time on; null: as known at any time.",
        ),
        Column("settled_end", "BIGINT", "Nothing before or in the segment has changed since; null: ever."),
        Column("timestamp", "BIGINT", "Event time of the last delta folded into the checkpoint; null: none was."),
        Column("at_delta", "BIGINT", "row_id of that delta."),
        Column("delta_count", "BIGINT", "Deltas folded into the checkpoint."),
        Column("deleted", "BOOLEAN", "True if the checkpoint is a tombstone."),
        Column("names", "ARRAY<STRING>", "Components of the vector, in order; null for vectors without names."),
        Column("ints", "ARRAY<BIGINT>", "The checkpoint's vector of an int64 state, else null."),
        Column("floats", "ARRAY<DOUBLE>", "The checkpoint's vector of a floating point state, else null."),
        Column("seen", "ARRAY<BOOLEAN>", "True if a delta has set the component, also to null."),
        Column("encoding", "STRING", "sparse, dense or changes: which took fewer bytes."),
        Column("saved_bytes", "BIGINT", "Bytes by which the encoding is smaller than the other."),
        Column("deltas", "BIGINT", "Deltas in the segment that count."),
        Column("dropped", "BIGINT", "Deltas of the entity that retention let this publication leave behind."),
        Column(
            "ages_from",
            "BIGINT",
            "Event time of its first delta, if compaction parts the segment once that is old enough; the least number "
            "if it is due and left to background compaction; else null.",
        ),
        Column("event_times", "ARRAY<BIGINT>", "Event time of each delta."),
        Column("row_ids", "ARRAY<BIGINT>", "row_id of each delta."),
        Column("known", "ARRAY<BIGINT>", "Visible time from which it is known; empty: its event time."),
        Column("known_until", "ARRAY<BIGINT>", "Visible time from which it is taken back; null while it counts."),
        Column(
            "ops",
            "ARRAY<TINYINT>",
            "create 0, dense 1, sparse 2, scale 3, offset 4, add 5, transform 6, delete 7, upsert 8.",
        ),
        Column(
            "refusals", "ARRAY<TINYINT>", "Why the chain skips it, 0 if it does not; gold.refused has them in words."
        ),
        Column("sizes", "ARRAY<INT>", "Number of its values."),
        Column("indices", "ARRAY<INT>", "Components that sparse, add and upsert change, delta after delta."),
        Column("delta_ints", "ARRAY<BIGINT>", "Values of an int64 state, delta after delta."),
        Column("delta_floats", "ARRAY<DOUBLE>", "Values of a floating point state, delta after delta."),
        Column("given", "ARRAY<BOOLEAN>", "In dense encoding: whether the delta gives this component."),
        Column("scalar_ints", "ARRAY<BIGINT>", "Factor of scale and term of offset in an int64 state."),
        Column("scalar_floats", "ARRAY<DOUBLE>", "The same in a floating point state."),
        Column("transforms", "ARRAY<STRING>", "Name of its transform."),
        Column("delta_ids", "ARRAY<STRING>", "Its identity, where rows declare parents."),
        Column("parents", "ARRAY<STRING>", "The delta that it declares as its parent."),
        Column("sequences", "ARRAY<STRING>", "Its sequence, as a text that orders as the source's `sequence` does."),
        *METRICS,
        *VALIDITY,
    ),
    ("source", "era"),
    ("entity", "start_time", "end_time", "settled_end", "ages_from", "known_from", "known_to", "token"),
)

SEGMENT = ("source", "entity", "start_time", "start_row")
"""Columns that identify a segment among those in force at the same time."""
