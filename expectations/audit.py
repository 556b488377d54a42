"""The audit's invariants: they are about all rows that ever landed, in any run. The audit by itself stops nothing."""

from expectations.invariant import Invariant

_BRONZE = (
    "The rows in bronze differ from the rows in the landed files. Take the files named below back and land them again"
    " (`tidemark retract SOURCE --drop D --file F`, then `tidemark run SOURCE --from D --to D --file F`), or"
    " `tidemark restore` a backup into an empty home."
)
_TABLE = (
    "Set the table named below back to its version before (deltalake: `DeltaTable(FOLDER).restore(VERSION)`) if nothing"
    " was committed to it since, of any source: that would go. Else `tidemark restore` a backup into an empty home;"
    " without one, `tidemark source reset SOURCE` and land its files again, which forgets what was known when."
)
_TRACE = f"The trace differs from bronze: every answer about these rows is wrong. {_TABLE} Then run the audit again."
_PUBLISHED = f"Published rows differ from rows that are computed anew from the trace. {_TABLE}"
_VALUES = f"{_PUBLISHED} A change of the window or state that is accepted (`--accept-definition`) corrects it, too."

INVARIANTS = (
    Invariant(
        "records_at_odds",
        "The records of the lake agree: one publication, one state of the frontiers a token, no batch without files.",
        "Do as each finding says; `tidemark doctor --deep` shows them, too.",
    ),
    Invariant(
        "tables_changed",
        "Since the publication no table has lost commits, nobody but Tidemark has changed rows, and a sample of files"
        " is as it was written.",
        "`tidemark doctor --deep` names each table and file and the way back; `tidemark doctor --repair` works windows,"
        " late rows and states out anew from the trace.",
    ),
    Invariant(
        "rows_read_otherwise",
        "Files read whole have the rows, bounds and sums that reads by the log's bounds find.",
        "Reads skip files that have wanted rows: do not trust the published tables. `tidemark doctor --deep` says"
        " whether files are damaged; if none is, report it with the table and file named below.",
    ),
    Invariant(
        "files_with_other_rows",
        "For every file, bronze has as many rows as the ledger counts, and every row in bronze belongs to a file.",
        _BRONZE,
    ),
    Invariant(
        "files_with_other_rejects",
        "Of every file bronze.quarantine_history has as many records as the ledger counts.",
        _BRONZE,
    ),
    Invariant(
        "files_with_other_duplicates",
        "Of every file bronze.duplicates_history has as many rows as the ledger counts.",
        _BRONZE,
    ),
    Invariant(
        "files_that_read_otherwise",
        "A sample of unchanged files is read again and gives the rows of bronze, value by value.",
        _BRONZE,
    ),
    Invariant(
        "files_that_the_trace_has_otherwise",
        "For every file, the trace has the rows that bronze has, value by value.",
        _TRACE,
    ),
    Invariant(
        "chunks_out_of_shape",
        "The number, bounds, order and drop that every chunk of bronze states are those of its rows.",
        _BRONZE,
    ),
    Invariant(
        "rejects_that_read_otherwise",
        "A sample of unchanged files is read again and gives the records of quarantine.",
        _BRONZE,
    ),
    Invariant(
        "updates_out_of_place",
        "Every update of the trace is of the drop of its row, and visible at its own time or at a seal.",
        _TRACE,
    ),
    Invariant(
        "broken_histories",
        "Of every window and state one version follows the other, each known from and to the time of a publication.",
        _PUBLISHED,
    ),
    Invariant(
        "unlisted_late_rows",
        "silver.late lists, for every definition, the rows that are late for its windows, and no others.",
        _PUBLISHED,
    ),
    Invariant("updates_of_several", "Every update of the trace adds one row or takes one back.", _TRACE),
    Invariant(
        "repeated_windows", "A key has one published window per start (a session: per start and end).", _PUBLISHED
    ),
    Invariant(
        "windows_otherwise", "Every published window equals the window that is computed anew from the trace.", _VALUES
    ),
    Invariant("repeated_entities", "Every entity has one current state.", _PUBLISHED),
    Invariant(
        "states_otherwise", "Every published state equals the state that is computed anew from the trace.", _VALUES
    ),
    Invariant(
        "versions_otherwise",
        "A chain gives, at every event time, the state that the trace gives when it is computed anew.",
        _PUBLISHED,
    ),
)
