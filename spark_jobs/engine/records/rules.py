"""The rules by which a record or a file is rejected, and the sentences for people: what was expected and found.

Kernels use a rule's number (its place in `RULES`; 0: no rule); tables have its name. A name never changes its meaning;
`RULES_VERSION` rises when a rule accepts or refuses values that it did not before.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.engine.records.erased import ERASED
from spark_jobs.engine.records.spec import ColumnSpec, RecordSpec, RowCheck

RULES_VERSION = 4
RULES = (
    "",
    # the record as a whole
    "too_long",
    "unclosed_quote",
    "bad_utf8",
    "bad_quote",
    "bad_json",
    "tombstone",
    "truncate",
    "no_row_change",
    "duplicate_column",
    "wrong_column_count",
    "unknown_column",
    "missing_column",
    # one of the record's values
    "nested_value",
    "bad_int",
    "int_overflow",
    "bad_float",
    "bad_decimal",
    "decimal_overflow",
    "inexact_decimal",
    "bad_bool",
    "bad_string",
    "bad_timestamp",
    "bad_date",
    "ambiguous_local_time",
    "skipped_local_time",
    # what a row needs
    "missing_entity",
    "missing_time",
    "missing_delta_id",
    # the values that were erased
    ERASED,
)
NUMBER = {name: number for number, name in enumerate(RULES)}
DRIFT_RULES = frozenset({"unknown_column", "missing_column", "columns_missing"})
"""Rules about columns that differ from the declared ones. A reject under one of them fails the run of a source whose
`unknown_columns` is `fail`. If it is `keep`, `unknown_column` and `missing_column` do not apply."""
FILE_RULES = frozenset(
    {"empty_file", "truncated_file", "unreadable_file", "bad_header", "duplicate_header", "changed_file"}
    | {
        "columns_missing",
        "not_a_file",
        "not_a_directory",
        "outside_landing",
        "bad_name",
        "too_many_lines",
        "wrong_delimiter",
        "expands_too_far",
    }
)
"""Rules that reject a file whole; the one row for such a file has no line."""
BAD_VALUE = {
    "int": NUMBER["bad_int"],
    "float": NUMBER["bad_float"],
    "decimal": NUMBER["bad_decimal"],
    "string": NUMBER["bad_string"],
    "bool": NUMBER["bad_bool"],
    "timestamp": NUMBER["bad_timestamp"],
    "date": NUMBER["bad_date"],
}
ERASED_REASON = "expected no record with a value that was erased, found one; nothing of it is kept"
"""The sentence for each record under the rule `erased`, whichever value it has."""
_LONGEST_QUOTE = 60
_MOST_NAMES = 5
_EXPECTED = {
    "nested_value": "a single value",
    "bad_int": "a whole number",
    "int_overflow": "a whole number from -2^63 to 2^63 - 1",
    "bad_float": "a finite number",
    "bad_decimal": "a decimal number",
    "bad_bool": "true or false",
    "bad_string": "text, or a number without point and exponent",
    "bad_date": "a date of the years 0001 to 9999",
}


def rule_name(number: int, spec: RecordSpec) -> str:
    """The name of a rule by its number; numbers beyond `RULES` are the source's checks."""
    return RULES[number] if number < len(RULES) else spec.checks[number - len(RULES)].rule


def check_reason(check: RowCheck, column: ColumnSpec, text: str) -> str:
    """The sentence for a record that breaks a check; `text` is the value of `column` as it is in the file."""
    value = "none" if check.kind == "not_null" else _quote(text)
    return f"column `{column.name}`: expected {check.expected} (check {check.name}), found {value}"


def value_reason(rule: str, column: ColumnSpec, text: str) -> str:
    """The sentence for a value of `column` that breaks `rule`; `text` is the value as it is in the file."""
    quoted = _quote(text)
    if rule == "ambiguous_local_time":
        expected = f"a local time that {column.timezone} has once, found {quoted}, which it has twice"
        return f"column `{column.name}`: expected {expected}"
    if rule == "skipped_local_time":
        expected = f"a local time that {column.timezone} has, found {quoted}, which its clocks skip"
        return f"column `{column.name}`: expected {expected}"
    if column.digits is not None and rule in ("decimal_overflow", "inexact_decimal"):
        precision, scale = column.digits
        side = "before" if rule == "decimal_overflow" else "after"
        digits = precision - scale if side == "before" else scale
        expected = f"at most {digits} digits {side} the point of a decimal({precision}, {scale})"
        return f"column `{column.name}`: expected {expected}, found {quoted}"
    forms = " or ".join(column.time_formats)
    expected = _EXPECTED.get(rule) or f"an instant of the years 0001 to 9999 ({forms})"
    if rule == "bad_date" and forms != "iso":
        expected += f" ({forms})"
    if rule == "bad_decimal" and _is_number(text):
        expected += " without an exponent, and not a floating one"
    return f"column `{column.name}`: expected {expected}, found {quoted}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")


def record_reason(rule: str, spec: RecordSpec, argument: int, width: int, unknown: Iterable[str] = ()) -> str:
    """The sentence for a record that breaks `rule`; `argument` is the rule's own number, `width` the number of columns
    in the header, `unknown` the names of undeclared columns.
    """
    if rule == "unknown_column":
        return _unknown_reason(sorted(unknown))
    if rule == "too_long":
        return f"expected a record of at most {spec.max_record_bytes} bytes, found a longer one"
    if rule == "wrong_column_count":
        return f"expected {width} values as in the header, found {argument}"
    if rule == "missing_column":
        return f"expected a value for `{spec.columns[argument].header}`, found none in the record"
    if rule == "missing_time":
        return f"expected a time on {' or '.join(spec.event_time)}, found none"
    if rule == "missing_entity":
        return f"expected an entity in column `{spec.entity}`, found none"
    if rule == "missing_delta_id":
        return f"expected a value in column `{spec.columns[argument].name}`, part of delta_id, found none"
    return _RECORD_REASONS[rule].format(encoding=spec.encoding.upper())


def _unknown_reason(names: list[str]) -> str:
    quoted = [
        repr(name if len(name) <= _LONGEST_QUOTE else name[:_LONGEST_QUOTE] + "…") for name in names[:_MOST_NAMES]
    ]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"expected declared columns only, found {', '.join(quoted)}{more}"


_RECORD_REASONS = {
    "unclosed_quote": "expected a closing quote for the one that this line opens, found none before the record's limit",
    "bad_utf8": "expected text in {encoding}, found other bytes (shown as \\x…; a backslash of the record's own is "
    "doubled)",
    "bad_quote": "expected a delimiter or the end of the record after a closing quote, found other text",
    "bad_json": "expected one JSON object in the line, found something else",
    "tombstone": "expected the change of a row, found a tombstone (`tombstones: skip` leaves them out)",
    "truncate": "expected the change of one row, found a truncated table, which names no entity: rows of op d say it",
    "no_row_change": "expected the change of a row (created, updated, deleted, read), found an event that names none",
    "duplicate_column": "expected each key once in the object, found one twice",
    ERASED: ERASED_REASON,
}


def show_raw(record: bytes, *, escape: bool) -> str:
    """The record as text. With `escape` (rule `bad_utf8`), bytes that are not UTF-8 become `\\xNN` and backslashes are
    doubled, so that no byte is lost.
    """
    if not escape:
        return record.decode("utf-8", "replace")
    return record.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
