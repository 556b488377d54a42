"""The gate after `land`: the content of the files is in bronze, once, in well-formed chunks. A failure stops the run
before rows enter the trace."""

from expectations.invariant import Invariant

_LANDING = (
    "Nothing was sealed. Run the interval again: landing is repeatable. If it fails again, report it with the run's id."
)
_KERNEL = (
    "Nothing was sealed. The chunk builder broke its contract: report it with the examples below; the files are"
    " untouched."
)

INVARIANTS = (
    Invariant(
        "ledger_rows",
        "Every row that the ledger bronze.files adds or removes is in exactly one chunk, and no other row is.",
        _LANDING,
        "equal",
        "chunk_rows",
    ),
    Invariant(
        "ledger_rejects",
        "Every record that the ledger counts as rejected, or as no longer so, is in bronze.quarantine_history.",
        _LANDING,
        "equal",
        "quarantine_rows",
    ),
    Invariant(
        "ledger_duplicates",
        "Every duplicate that the ledger counts as come or gone is in bronze.duplicates_history.",
        _LANDING,
        "equal",
        "duplicate_rows",
    ),
    Invariant("repeated_row_ids", "No landing adds a row id twice or removes a row id twice.", _KERNEL),
    Invariant("chunks_with_unordered_row_ids", "The row ids of a chunk strictly ascend.", _KERNEL),
    Invariant("chunks_with_foreign_row_ids", "The row ids of a chunk belong to the chunk's drop.", _KERNEL),
    Invariant("chunks_with_uneven_arrays", "Every array of a chunk has one element per row.", _KERNEL),
    Invariant(
        "chunks_with_loose_bounds",
        "A chunk's least and greatest times are those of its rows, on every timeline: queries skip chunks by them.",
        _KERNEL,
    ),
    Invariant("chunks_falsely_sorted", "A timeline that a chunk calls sorted never decreases in it.", _KERNEL),
    Invariant("chunks_without_entity", "Every chunk has an entity; rows without one are in quarantine.", _KERNEL),
    Invariant("rows_without_event_time", "Every row has an event time; rows without one are in quarantine.", _KERNEL),
)
