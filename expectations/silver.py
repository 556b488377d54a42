"""The gate after `window`: the windows that the run would publish are well formed. A failure stops the run before the
state is folded."""

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
    Invariant("windows_without_rows", "A published window has at least one row.", _AGAIN),
    Invariant("windows_without_key", "Every window has its key, its start and its end.", _AGAIN),
    Invariant(
        "changed_without_revision",
        "A window that replaces a published one carries the next revision, and closes the one it replaces.",
        _AGAIN,
    ),
    Invariant(
        "changes_at_wrong_time",
        "Every change of this run is known from one tick before the new publication, and ends the version known there.",
        _AGAIN,
    ),
    Invariant("closings_of_nothing", "Every closing row closes a row that is published.", _AGAIN),
    Invariant(
        "late_rows_due",
        "Every row that is late for a window of a definition, has no key or is out of range is in silver.late, once a"
        " definition, and no other.",
        _AGAIN,
        "equal",
        "late_rows_recorded",
    ),
    Invariant(
        "rows_due",
        "Nothing is lost: every row that came or went is counted by each definition, discarded as late, or in none of"
        " its windows for a reason: no key, time or value, or a time out of range.",
        _AGAIN,
        "equal",
        "rows_accounted",
    ),
    Invariant("rows_astray", "New windows have the rows that the late policy accepts, and no others.", _AGAIN),
    Invariant(
        "rows_counted",
        "If a definition counts each row once, its windows gain and lose exactly the rows that came and went.",
        _AGAIN,
        "equal",
        "rows_windowed",
    ),
)
