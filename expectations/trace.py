"""The gate after `seal`, and after merges in `compact`: the arrangement's invariants. A failure stops the run before
anything is computed from the trace, or published."""

from expectations.invariant import Invariant

_SEAL = "Nothing was published. Reads below the previous seal would change: don't retry, report it with the run's id."
_AGAIN = (
    "Nothing was published. Run the interval again: the attempt's batches are replaced. If it fails again, report it."
)
_FILES = (
    "Nothing was published. If only `files` have changed, somebody has changed the trace's files:"
    " `tidemark doctor --deep` names those that are damaged; set the table back to its version before, or"
    " `tidemark restore` a backup into an empty home. Else report it."
)

INVARIANTS = (
    Invariant(
        "updates_below_previous_seal",
        "No update was added below the seal that was in force before the run: reads below it give the same answers.",
        _SEAL,
    ),
    Invariant(
        "updates_outside_batch",
        "Every update lies where its batch says: in a trace batch's [lower, upper), or at or before the since it was"
        " merged under; at or beyond the seal if unsealed.",
        _AGAIN,
    ),
    Invariant("updates_without_diff", "No update has a diff of 0 or none at all.", _AGAIN),
    Invariant(
        "repeated_updates", "A trace batch is consolidated: it has no row twice at one time with one sign.", _AGAIN
    ),
    Invariant("updates_without_identity", "Every update has a row id, an entity and an event time.", _AGAIN),
    Invariant("updates_out_of_order", "A batch is in the order of entity, event time and row id.", _AGAIN),
    Invariant("visible_before_event", "No update becomes visible before its event time.", _AGAIN),
    Invariant(
        "rows_landed",
        "Every row that the run landed was added to the trace once, and nothing else was.",
        _AGAIN,
        "equal",
        "updates_added",
    ),
    Invariant("trace_upper_us", "The trace ends at or before the seal.", _SEAL, "at_most", "seal_us"),
    Invariant("previous_seal_us", "The seal did not go back.", _SEAL, "at_most", "seal_us"),
    Invariant("previous_since_us", "The since frontier did not go back.", _SEAL, "at_most", "since_us"),
    Invariant(
        "reached_us", "The seal is at or beyond the end of every interval that was run.", _SEAL, "at_most", "seal_us"
    ),
    Invariant(
        "batches_not_as_stated",
        "Every batch has the number of updates and the bounds of time that the frontiers state.",
        _AGAIN,
    ),
    Invariant(
        "batches_changed",
        "A batch that outlives a publication keeps its updates, bounds and level: the frontiers state them as before,"
        " and its files are those that were written.",
        _FILES,
    ),
    Invariant(
        "broken_invariants",
        "Sequence ranges don't overlap, batches are contiguous and below the seal, their levels never increase, none"
        " was merged beyond since.",
        _SEAL,
    ),
    Invariant("broken_batch_chain", "Trace batches are contiguous: each starts where the one before ends.", _SEAL),
)
