"""The slow, obvious twin of the record readers: one record after another, one value after another, no blocks.

It defines what the readers return; tests compare both on random bytes. Rows are dictionaries with the names of
`spec.schema()`, times as microseconds, dates as days, `extra` as a list of pairs.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any

from spark_jobs.engine.records import slow
from spark_jobs.engine.records.erased import ERASED, Erasures
from spark_jobs.engine.records.headers import FileRejectedError, check_lines, check_present, empty_file, wrong_delimiter
from spark_jobs.engine.records.rules import RULES, check_reason, record_reason, show_raw, value_reason
from spark_jobs.engine.records.spec import COLUMN_PREFIX, TIMELINE_PREFIX, ColumnSpec, RecordSpec
from spark_jobs.engine.records.tokens import NULL, TEXT
from spark_jobs.engine.twins.record_checks import first_broken_check
from spark_jobs.engine.twins.record_values import Broken, read_value

Row = dict[str, Any]
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  local times are naive on purpose


def naive_csv(data: bytes, spec: RecordSpec) -> list[Row]:
    """The rows that `read_csv` returns for a file with these bytes."""
    records = _csv_records(data.removeprefix(b"\xef\xbb\xbf"), spec)
    first = next(records, None)
    if first is not None and first[1].startswith(b"sep="):
        if first[1] != b"sep=" + spec.delimiter.encode():
            raise wrong_delimiter(spec.delimiter, first[1][4:].decode("utf-8", "replace"))
        first = next(records, None)
    if first is None:
        raise empty_file()
    if first[2] == "bad_quote":
        _refuse_delimiter(first[1].decode("utf-8", "replace"), [], spec)
    header = _header(first[2])
    _refuse_delimiter(first[1].decode(), header, spec)
    check_present(header, spec)
    rows = []
    for line, raw, fields in records:
        rule, argument, members = _csv_members(raw, fields, header, len(first[2]))
        rows.append(_row(line, raw, rule, argument, members, spec, len(first[2])))
    return _limit(rows, spec)


def naive_ndjson(data: bytes, spec: RecordSpec) -> list[Row]:
    """The rows that `read_ndjson` returns for a file with these bytes."""
    rows, objects, tombstones = [], list[dict[str, slow.Cell]](), False
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if len(raw) > spec.max_record_bytes:
            rows.append(_row(line, raw[: spec.max_record_bytes], "too_long", 0, {}, spec, 0))
        elif raw.strip(b" \t\r"):
            record = raw.removesuffix(b"\r")
            members = slow.parse_object(record.decode(), spec) if _is_utf8(record) else "bad_utf8"
            if members == "tombstone" and spec.skip_tombstones:
                tombstones = True
                continue
            broken = members if isinstance(members, str) else None
            objects += [] if isinstance(members, str) else [members]
            rows.append(_row(line, record, broken, 0, {} if isinstance(members, str) else members, spec, 0))
    if not rows and not tombstones:
        raise empty_file()
    limited = _limit(rows, spec)
    if objects:
        check_present(set().union(*objects), spec)
    return limited


def _limit(rows: list[Row], spec: RecordSpec) -> list[Row]:
    """The rows, with the rejects of each rule beyond its limit as one range at the end."""
    if rows:
        check_lines(rows[-1]["line"], spec)
    singles, ranges, seen = [], dict[str, Row](), Counter[str | None]()
    for row in rows:
        seen[row["rule"]] += 1
        if row["rule"] is None or seen[row["rule"]] <= spec.max_rejects:
            singles.append(row)
        else:
            of_rule = ranges.setdefault(row["rule"], row | {"records": 0})
            of_rule["last_line"], of_rule["records"] = row["line"], of_rule["records"] + 1
    order = [*RULES, *(check.rule for check in spec.checks)]
    return singles + sorted(ranges.values(), key=lambda row: order.index(row["rule"]))


def _is_utf8(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True


def _csv_records(data: bytes, spec: RecordSpec) -> Iterator[tuple[int, bytes, list[bytes] | str]]:
    """The records as `(line, raw, fields or the rule that is broken)`."""
    pos, line, limit, delimiter, escape = 0, 1, spec.max_record_bytes, spec.delimiter.encode(), spec.escape.encode()
    while pos < len(data):
        if data[pos : pos + 1] == b"\n" or data[pos : pos + 2] == b"\r\n" or data[pos:] == b"\r":
            pos = data.find(b"\n", pos) + 1 or len(data)
            line += 1
            continue
        end, closed = _record_end(data, pos, delimiter, escape)
        newline = data.find(b"\n", pos)
        inner = 0 <= newline < end and newline - pos <= limit
        if (end - pos > limit or not closed) and inner:
            yield line, data[pos:newline], "unclosed_quote"
            end, newlines = newline, 1
        elif end - pos > limit:
            yield line, data[pos : pos + limit], "too_long"
            end, newlines = newline if newline >= 0 else len(data), 1
        elif not closed:
            yield line, data[pos:end], "unclosed_quote"
            newlines = 1
        else:
            raw = data[pos:end].removesuffix(b"\r")
            yield line, raw, _split(raw, delimiter, escape)
            newlines = data[pos:end].count(b"\n") + 1
        pos, line = end + 1, line + newlines


def _record_end(data: bytes, start: int, delimiter: bytes, escape: bytes) -> tuple[int, bool]:
    """The position of the newline that ends the record (or the end of the data), and True if that is outside quotes."""
    quoted, at_start, pos = False, True, start
    while pos < len(data):
        byte = data[pos : pos + 1]
        if quoted:
            if data[pos : pos + 2] == b'""' or (escape and data[pos : pos + 2] in (escape + b'"', escape * 2)):
                pos += 1
            elif byte == b'"':
                quoted = False
        elif at_start and byte == b'"':
            quoted = True
        elif byte == b"\n":
            return pos, True
        at_start = not quoted and byte == delimiter
        pos += 1
    return len(data), not quoted


def _split(raw: bytes, delimiter: bytes, escape: bytes) -> list[bytes] | str:
    pairs = (b'""', escape + b'"', escape * 2) if escape else (b'""',)
    fields, remainder, bad = [], raw, False
    while True:
        if remainder[:1] == b'"':
            value, remainder = b"", remainder[1:]
            while remainder[:2] in pairs or not remainder.startswith(b'"'):
                remainder = remainder[1:] if remainder[:2] in pairs else remainder
                value, remainder = value + remainder[:1], remainder[1:]
            after, separator, remainder = remainder[1:].partition(delimiter)
            bad = bad or after != b""
        else:
            value, separator, remainder = remainder.partition(delimiter)
        fields.append(value)
        if not separator:
            return "bad_quote" if bad else fields


def _header(fields: list[bytes] | str) -> list[str]:
    if isinstance(fields, str) or not all(map(_is_utf8, fields)):
        raise FileRejectedError("bad_header", expected="a header of column names", found="something else")
    if any(b"\r" in field.replace(b"\r\n", b"") for field in fields):
        raise FileRejectedError("bad_header", expected="lines that end in a newline", found="carriage returns alone")
    if any(b"\0" in field for field in fields):
        raise FileRejectedError("bad_header", expected="text", found="bytes of zero")
    names = [field.decode().strip() for field in fields]
    while len(names) > 1 and not names[-1]:
        del names[-1]
    if len(set(names)) < len(names):
        raise FileRejectedError("duplicate_header", expected="each column once in the header", found="one again")
    return names


def _refuse_delimiter(text: str, header: list[str], spec: RecordSpec) -> None:
    """Raise FileRejectedError for a header without a declared column in which another delimiter would give two of them,
    or the only one."""
    declared = [column.header for column in spec.columns]
    if any(name in declared for name in header):
        return
    fits: dict[str, int] = {}
    for other in ",;\t|".replace(spec.delimiter, ""):
        names = [part.strip().strip('"').strip() for part in text.split(other)]
        fits[other] = sum(name in names for name in declared)
    quoted = [part.strip().strip('"').strip() for part in text.split(spec.delimiter)]
    if max(fits.values()) >= min(2, len(declared)) and not any(name in quoted for name in declared):
        raise wrong_delimiter(spec.delimiter, max(fits, key=lambda other: fits[other]))


def _csv_members(
    raw: bytes, fields: list[bytes] | str, header: list[str], width: int
) -> tuple[str | None, int, dict[str, slow.Cell]]:
    if isinstance(fields, str) and fields != "bad_quote":
        return fields, 0, {}
    if not _is_utf8(raw):
        return "bad_utf8", 0, {}
    if isinstance(fields, str):
        return fields, 0, {}
    if len(fields) != width:
        return "wrong_column_count", len(fields), {}
    named = {name: (TEXT, field.decode()) for name, field in zip(header, fields, strict=False)}
    unnamed = {f"column {n}": (TEXT, field.decode()) for n, field in enumerate(fields, 1) if n > len(header) and field}
    return None, 0, named | unnamed


def _row(
    line: int, raw: bytes, rule: str | None, argument: int, members: dict[str, slow.Cell], spec: RecordSpec, width: int
) -> Row:
    row: Row = dict.fromkeys(spec.schema().names) | {"line": line}
    reason = None
    if rule is None:
        rule, argument = _drift(members, spec)
    if rule is None:
        rule, reason, argument = _fill(row, members, spec)
    if rule is None:
        return row
    rejected = dict.fromkeys(row) | {"line": line, "rule": rule}
    unknown = {*members} - {column.header for column in spec.columns}
    rejected["reason"] = reason or record_reason(rule, spec, argument, width, unknown)
    text = rejected["raw"] = show_raw(raw, escape=rule == "bad_utf8")
    if rule == ERASED or (spec.erased is not None and spec.erased.mentioned_in(text)):
        rejected |= {"rule": ERASED, "reason": record_reason(ERASED, spec, 0, 0), "raw": None}
    return rejected


def _drift(members: dict[str, slow.Cell], spec: RecordSpec) -> tuple[str | None, int]:
    headers = [column.header for column in spec.columns]
    if spec.unknown_columns != "keep" and set(members) - set(headers):
        return "unknown_column", 0
    lacking = [place for place, c in enumerate(spec.columns) if not c.optional and c.header not in members]
    if spec.unknown_columns != "keep" and lacking:
        return "missing_column", lacking[0]
    return None, 0


def _fill(row: Row, members: dict[str, slow.Cell], spec: RecordSpec) -> tuple[str | None, str | None, int]:
    """Fill a row's values. Returns `(rule, reason, argument)` of the first rule that it breaks; rule None: it breaks
    none."""
    instants: dict[str, int | None] = {}
    headers = {column.header for column in spec.columns}
    extra = [(key, None if kind == NULL else text) for key, (kind, text) in members.items() if key not in headers]
    for column in spec.columns:
        cell = members.get(column.header, (NULL, ""))
        try:
            value, instant, note = read_value(column, *cell)
        except Broken as broken:
            return str(broken), value_reason(str(broken), column, cell[1]), 0
        row[COLUMN_PREFIX + column.name], instants[column.name] = value, instant
        extra += [("@dst:" + column.name, note)] if note else []
    for name, column_name in spec.timelines:
        row[TIMELINE_PREFIX + name] = instants[column_name]
    present = [row[TIMELINE_PREFIX + name] for name in spec.event_time if row[TIMELINE_PREFIX + name] is not None]
    row["entity"], row["extra"] = _key_text(spec.columns[spec.place(spec.entity)], row), extra
    row["event_time"] = present[0] if present else None
    row["arrival"] = row[TIMELINE_PREFIX + spec.arrival] if spec.arrival else None
    parts = [_key_text(spec.columns[spec.place(name)], row) for name in spec.delta_id or ()]
    if not row["entity"]:
        return "missing_entity", None, 0
    if not present:
        return "missing_time", None, 0
    if None in parts:
        return "missing_delta_id", None, spec.place((spec.delta_id or ())[parts.index(None)])
    if spec.erased is not None and _has_erased(row, spec, spec.erased):
        return ERASED, None, 0
    if spec.delta_id:
        row["delta_id"] = "|".join((part or "").replace("\\", "\\\\").replace("|", "\\|") for part in parts)
    first = first_broken_check(row, spec)
    if first is None:
        return None, None, 0
    check, place = first[0], spec.place(first[1])
    _, text = members.get(spec.columns[place].header, (NULL, ""))
    return check.rule, check_reason(check, spec.columns[place], text), place


def _has_erased(row: Row, spec: RecordSpec, erased: Erasures) -> bool:
    values = [(None, row["entity"])] + [(c, _key_text(spec.columns[spec.place(c)], row)) for c in erased.columns]
    return any(text is not None and erased.has(text, column) for column, text in values)


def _key_text(column: ColumnSpec, row: Row) -> str | None:
    value = row[COLUMN_PREFIX + column.name]
    if value is None or column.type == "string":
        return value
    if column.type == "bool":
        return "true" if value else "false"
    if column.type == "date":
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    if column.type == "timestamp":
        return f"{(_EPOCH + dt.timedelta(microseconds=value)).isoformat()}Z"
    return str(value)
