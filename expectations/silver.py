"""Gate after `window`: what the run would publish as windows is well formed. Stops before the state is folded."""

from expectations.invariant import Invariant

_AGAIN = (
    "Nothing was published; silver reads as before the run. Run the interval again; if it fails again, report it with"
    " the examples below."
)
_DEFINITION = (
    "Nothing was published. Look at the definition's change with `tidemark plan`; then run the interval again."
)

INVARIANTS = (
    Invariant("repeated_windows", "A key has one published window per start (a session: per start and end).", _AGAIN),
    Invariant(
        "windows_of_wrong_length",
        "A window is as long as its definition says; a session's end is not before its start.",
        _DEFINITION,
    ),
    Invariant("windows_without_rows", "A published window holds at least one row.", _AGAIN),
    Invariant("windows_without_key", "Every window has its key, its start and its end.", _AGAIN),
    Invariant(
        "changed_without_revision",
        "A window that replaces a published one carries the next revision, and closes the one it replaces.",
        _AGAIN,
    ),
    Invariant(
        "changes_at_wrong_time",
        "Every change of this run is known from one tick before the new publication, and ends what was known there.",
        _AGAIN,
    ),
    Invariant("closings_of_nothing", "Every closing row closes a row that is published.", _AGAIN),
    Invariant(
        "late_rows_counted_nowhere",
        "A late row is recorded in silver.late with what was done with it.",
        _AGAIN,
    ),
)
