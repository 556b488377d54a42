"""The page of rejections: the rules of quarantine, and the names under which SQL refuses people's statements.

The names are in the code. Their meanings are here, since the code's own sentences are about one record or statement; a
test compares the names.
"""

from __future__ import annotations

from docs.generate.markdown import anchored_code, prose, section, table, whole_page
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings

OF_RECORDS = {
    "too_long": "The record is longer than `landing.max_record`.",
    "unclosed_quote": "A quote that the line opens is not closed before the record's limit.",
    "bad_utf8": "The text is not in the declared encoding.",
    "bad_quote": "Text follows a closing quote, in place of a delimiter or the end of the record.",
    "bad_json": "The line, or the member of the array, is not one JSON object.",
    "tombstone": "The record has no value; `tombstones: skip` leaves such records out.",
    "truncate": "The change event empties a table, and names no entity.",
    "no_row_change": "The change event changes no single row.",
    "duplicate_column": "The object has a key twice.",
    "wrong_column_count": "The record has another number of values than the header.",
    "unknown_column": "The record has a column that the source file does not declare (`unknown_columns`).",
    "missing_column": "The record of JSON lacks a column that is not optional (`unknown_columns`).",
    "nested_value": "A value is an object or a list, where a single value is declared.",
    "bad_int": "A value is no whole number.",
    "int_overflow": "A whole number does not fit into 64 bits.",
    "bad_float": "A value is no finite number.",
    "bad_decimal": "A value is no decimal number, or has an exponent, or is a floating number.",
    "decimal_overflow": "A decimal has more digits before the point than its type.",
    "inexact_decimal": "A decimal has more digits after the point than its type, other than zeros.",
    "bad_bool": "A value is neither true nor false.",
    "bad_string": "A value is no text.",
    "bad_timestamp": "A value is no time in one of the declared formats.",
    "bad_date": "A value is no date in one of the declared formats.",
    "ambiguous_local_time": "The zone has the local time twice; `dst` chooses one.",
    "skipped_local_time": "The zone's clocks skip the local time; `dst` chooses an instant.",
    "missing_entity": "The row has no entity.",
    "missing_time": "The row has none of the times in `event_time`.",
    "missing_delta_id": "The row has no value in a column of `delta_id`.",
    "erased": "The record has a value that was erased; nothing of it is kept.",
}
"""Rule -> its meaning, of rules that reject one record."""

OF_FILES = {
    "empty_file": "The file has no record.",
    "truncated_file": "The compressed file lacks its end.",
    "unreadable_file": "The file can't be read, or its bytes are not of the format.",
    "bad_header": "The first record is no header of column names.",
    "duplicate_header": "The header has a column twice.",
    "changed_file": "The file changed while it was read.",
    "columns_missing": "The file lacks a declared column that is not `optional: true`.",
    "not_a_file": "The name is that of a directory or a device.",
    "not_a_directory": "The place of the drop is no directory.",
    "outside_landing": "The path leads out of the landing directory.",
    "bad_name": "The file's name is no printable text.",
    "too_many_lines": "The file has more lines than `landing.max_lines`.",
    "wrong_delimiter": "The header fits another delimiter than the declared one.",
    "expands_too_far": "The file decompresses to more than `landing.max_expansion` times its size, and 256 MiB.",
}
"""Rule -> its meaning, of rules that reject a file whole."""

OF_SQL = {
    "not_allowed": "The role may not run the statement, or use a function, option, property, table or setting in it.",
    "login_refused": "The user or the password is not right.",
    "limit_size": "The statement would become too large when its names are resolved.",
}
"""Name -> its meaning, of refusals of SQL that no setting is about."""

_OF_CHECKS = (
    "A row that breaks a check with `treatment: quarantine` has the rule `check.<name>`, after the check's name."
)
_INTRODUCTION = """
A rejected record or file is in `bronze.quarantine` with its rule, a reason in words, and its place.
`tidemark quarantine list` counts them. Commands and Python have [error codes](errors.md).
"""


def page() -> str:
    """The page, with a table for each kind of rejection."""
    return whole_page(
        "Rejections",
        _INTRODUCTION.strip(),
        section(2, "Rules that reject a record", prose(_OF_CHECKS), _table("rule", OF_RECORDS)),
        section(2, "Rules that reject a file", _table("rule", OF_FILES)),
        section(2, "Refusals of SQL", _table("name", OF_SQL | limits_of_readers())),
    )


def limits_of_readers() -> dict[str, str]:
    """Name -> its meaning, of the limits of a reader's statements: each has a setting."""
    knobs = {knob: field for knob, field in Settings.model_fields.items() if knob.startswith("reader_")}
    return {
        f"limit_{knob.removeprefix('reader_')}": f"A limit of readers, `{ENVIRONMENT_PREFIX}{knob.upper()}`: "
        f"{field.description}."
        for knob, field in knobs.items()
    }


def _table(header: str, meanings: dict[str, str]) -> str:
    rows = [[anchored_code(name, name), prose(meaning)] for name, meaning in meanings.items()]
    return table([header, "meaning"], rows)
