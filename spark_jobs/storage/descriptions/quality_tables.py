"""Tables of the database `quality`: checks and their results, runs, the changes of each landing, overrides by
people, and reads of states.

All of them are records (see `storage.delta.records`).
"""

from __future__ import annotations

from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import SOURCE, TOKEN

_RUN = Column("run_id", "STRING", "The run.")
_FIRST = Column("drop_lo", "TIMESTAMP", "Start of the first drop that the run is about.")
_LAST = Column("drop_hi", "TIMESTAMP", "End of its last drop, exclusive.")

RESULTS = Table(
    "quality",
    "results",
    "Checks with their verdicts: one row per check and run. Gates, the checks of source files, suites of"
    " one's own, drift and dbt's tests alike. Of several rows of one (source, run_id, gate, name) the"
    " greatest token counts.",
    (
        SOURCE,
        TOKEN,
        _RUN,
        _FIRST,
        _LAST,
        Column(
            "gate", "STRING", "Gate that checked it: bronze, trace, silver, gold, metrics, marts; audit: beside runs."
        ),
        Column(
            "kind",
            "STRING",
            "invariant: what the engine promises. check: from the source file. suite: from expectations/custom. drift:"
            " a drop against those before it. mart_test: a test of dbt. overflow: sums that do not fit and are null."
            " memory: rows that workers flushed to their disks, as their memory was full.",
        ),
        Column("relation", "STRING", "The table or mart that it is about, such as silver.departure_delays."),
        Column("name", "STRING", "Name of the check; of an invariant its measure."),
        Column("expectation", "STRING", "The expectation in words."),
        Column("severity", "STRING", "Severity in the words of Great Expectations: critical, warning or info."),
        Column(
            "treatment",
            "STRING",
            "The effect of a failure: fail (nothing is published), quarantine (of the rows; others land), warn.",
        ),
        Column(
            "verdict",
            "STRING",
            "passed. failed: the run stopped. warned: it was broken, and the run continued. quarantined: rows went to"
            " bronze.quarantine. overridden: it was broken, and a person let the run continue. error: it could not be"
            " checked.",
        ),
        Column("observed", "STRING", "The value found."),
        Column("expected", "STRING", "The bounds or values that it was compared with."),
        Column("failing", "BIGINT", "Rows that break it; null where no row does by itself."),
        Column("sample", "STRING", "Up to 20 of them, a JSON list of objects; null where there are none to show."),
        Column(
            "because", "STRING", "Of an overridden one the reason, of a drift what it was compared with; else null."
        ),
        Column("on_failure", "STRING", "The person who acts, and the action; null if the check passed."),
        Column("known_from", "TIMESTAMP", "Seal of the run."),
        Column("recorded_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
    ("token",),
)

RUNS = Table(
    "quality",
    "runs",
    "The manifest of each run: its inputs and its results. One row when it publishes, or when a stage of it"
    " fails; of several rows of one run the greatest token counts.",
    (
        SOURCE,
        TOKEN,
        _RUN,
        _FIRST,
        _LAST,
        Column("outcome", "STRING", "published or failed; a run with nothing new leaves no row."),
        Column("failed_stage", "STRING", "The stage that failed, else null."),
        Column("error_code", "STRING", "Its error by name, such as gate_failed, else null."),
        Column("error", "STRING", "Its message, else null."),
        Column("started_at", "TIMESTAMP", "Begin of its first stage, by the machine's clock."),
        Column("ended_at", "TIMESTAMP", "Time at which its row was written."),
        Column("source_version", "STRING", "Hash of the source file as the run read it."),
        Column("definition", "STRING", "Hash of each part of the definition that results depend on, as JSON."),
        Column("code_version", "STRING", "Version of Tidemark, with a hash of its files."),
        Column("published_before", "TIMESTAMP", "The publication that it began with; null before the first."),
        Column("published", "TIMESTAMP", "The publication in force when its row was written; null before the first."),
        Column(
            "inputs",
            "STRING",
            "Files that it took in, a JSON list: path, seq_no, bytes, checksum, version, landing and the counts.",
        ),
        Column("stages", "STRING", "Each stage's own report, a JSON list: stage, seconds, commits, rows and the like."),
        Column(
            "outputs",
            "STRING",
            "Its publication, a JSON object by table: rows that it wrote, and a hash of them which does not depend on"
            " their order, on times of publication or on tokens.",
        ),
    ),
    ("source",),
    ("token",),
)

METRICS = Table(
    "quality",
    "metrics",
    "The changes of a drop by each landing; the drop's totals are sums over its rows (of late_by_max the greatest). A"
    " row with trace_batches has the size of the trace after a run, and changes no drop.",
    (
        SOURCE,
        Column("seq_no", "BIGINT", "Number of the drop, counted from the source's start."),
        Column("drop_lo", "TIMESTAMP", "Start of the drop."),
        Column("drop_hi", "TIMESTAMP", "End of the drop, exclusive."),
        Column(
            "landing", "BIGINT", "Fence token of the landing, or of the stage after it; with the drop it is the key."
        ),
        Column("run_id", "STRING", "The run that landed it."),
        Column("files", "BIGINT", "Files that came, less those that were taken back."),
        Column(
            "bytes", "BIGINT", "Bytes of these files: bytes that came less bytes that went, also of a changed file."
        ),
        Column("rows", "BIGINT", "Rows that came to chunks, less those that went."),
        Column("rejects", "BIGINT", "Records that came to quarantine, less those that went."),
        Column("duplicates", "BIGINT", "Rows that became duplicates, less those that no longer are."),
        Column("late_rows", "BIGINT", "Rows with an event time before the drop's start: come less gone."),
        Column(
            "late_by_max", "BIGINT", "Microseconds from the least event time of the rows that came to the drop's start."
        ),
        Column("nulls", "STRING", "Per column of the file the rows without a value, come less gone, as a JSON object."),
        Column("rate", "DOUBLE", "Rows an hour of the drop: rows that came to chunks, less those that went."),
        Column(
            "busiest",
            "STRING",
            "The ten entities with the most of these rows, with their rows an hour, as a JSON object.",
        ),
        Column("trace_batches", "BIGINT", "Batches of the trace after the run; null in a row about a landing."),
        Column("trace_updates", "BIGINT", "Updates in these batches."),
        Column("trace_bytes", "BIGINT", "Bytes of their files."),
        Column("trace_consolidated", "DOUBLE", "Share of the updates that are in merged batches, from 0 to 1."),
    ),
    ("source",),
    ("seq_no", "landing"),
)

OVERRIDES = Table(
    "quality",
    "overrides",
    "Checks that a person let pass in one run, with the reason. Their results are in quality.results of the run.",
    (
        SOURCE,
        TOKEN,
        _RUN,
        _FIRST,
        _LAST,
        Column("name", "STRING", "Name of the check."),
        Column("because", "STRING", "Why, in the words of the person."),
        Column("overridden_by", "STRING", "Name of the account that did it."),
        Column("recorded_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
    ("token",),
)

READS = Table(
    "quality",
    "reads",
    "Reads of the states of a source, which the compaction strategy adaptive weighs against writes. A row has the reads"
    " that a home counted since its row before.",
    (
        SOURCE,
        Column(
            "entity_class",
            "BIGINT",
            "Of reads of one entity: binary digits of the number of its deltas. Null: the reads are of all entities.",
        ),
        Column("reads", "BIGINT", "Number of reads."),
        Column("count_id", "STRING", "The count that the row is from: rows of one count come in one commit."),
    ),
    ("source",),
)

QUALITY = (RESULTS, RUNS, METRICS, OVERRIDES, READS)
