"""The header of a CSV file, the columns that every file must have, and the errors of files that are rejected whole."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import NamedTuple

from spark_jobs.engine.records.delimiters import likely_delimiter
from spark_jobs.engine.records.slow import split_csv
from spark_jobs.engine.records.spec import RecordSpec
from spark_jobs.errors import TidemarkError

DELIMITER_LINE = b"sep="
"""Beginning of a line before the header, in which Excel looks for the delimiter."""
_MOST_MISSING = 5
"""The most missing columns that an error names."""


class FileRejectedError(TidemarkError):
    """A file is rejected whole: no row of it counts. Fact `rule`: one of `rules.FILE_RULES`."""

    code = "file_rejected"
    rule: str

    def __init__(self, rule: str, *, expected: str, found: str) -> None:
        super().__init__(expected=expected, found=found, consequence="the file is in quarantine as a whole", rule=rule)

    @property
    def reason(self) -> str:
        """The sentence for `bronze.quarantine`."""
        return f"expected {self.expected}, found {self.found}"


class Header(NamedTuple):
    """The columns of a CSV file in their order: `names`, then the columns at the end without a name (`unnamed`), as
    `column N`."""

    names: list[str]
    unnamed: tuple[str, ...]


def header_of(record: bytes, spec: RecordSpec) -> Header:
    """The header in the bytes of a record. Raises FileRejectedError."""
    if b"\0" in record:
        expected, found = (
            f"text in {spec.encoding.upper()}",
            "bytes of zero, as UTF-16 has them (`encoding: utf-16-le`)",
        )
        raise FileRejectedError("bad_header", expected=expected, found=found)
    if b"\r" in record.replace(b"\r\n", b""):
        # the whole file would be read as one header, without any record
        expected = "lines that end in a newline, with or without a carriage return before it"
        raise FileRejectedError("bad_header", expected=expected, found="carriage returns alone")
    try:
        names = [name.decode().strip() for name in split_csv(record, spec.delimiter, spec.escape)]
    except UnicodeDecodeError:
        raise FileRejectedError(
            "bad_header",
            expected=f"a header in {spec.encoding.upper()}",
            found="other bytes (`encoding:` names theirs)",
        ) from None
    header = without_unnamed(names)
    repeated = sorted({name for name in header.names if header.names.count(name) > 1})
    if repeated:
        raise FileRejectedError(
            "duplicate_header",
            expected="each column once in the header",
            found=f"{', '.join(map(repr, repeated))} again",
        )
    check_delimiter(record, header.names, spec)
    check_present(header.names, spec)
    return header


def without_unnamed(names: list[str]) -> Header:
    """The header with these names. Empty names at the end, which spreadsheets leave, become `unnamed` columns."""
    named = len(names)
    while named > 1 and not names[named - 1]:
        named -= 1
    return Header(names[:named], tuple(f"column {n}" for n in range(named + 1, len(names) + 1)))


def check_delimiter_line(record: bytes, spec: RecordSpec) -> None:
    """Raise FileRejectedError if a line `sep=…` names another delimiter than the declared one."""
    seeming = record.removeprefix(DELIMITER_LINE).decode("utf-8", "replace")
    if seeming != spec.delimiter:
        raise wrong_delimiter(spec.delimiter, seeming)


def check_delimiter(record: bytes, names: Iterable[str], spec: RecordSpec) -> None:
    """Raise FileRejectedError for a header without a declared name in which another delimiter would give declared
    ones."""
    declared = {column.header for column in spec.columns}
    other = None if declared.intersection(names) else likely_delimiter(record, declared, spec.delimiter)
    if other is not None:
        raise wrong_delimiter(spec.delimiter, other)


def wrong_delimiter(declared: str, seeming: str) -> FileRejectedError:
    """The error of a file whose header fits another delimiter than the declared one."""
    return FileRejectedError(
        "wrong_delimiter",
        expected=f"columns separated by {declared!r}, as declared",
        found=f"a header that seems to be separated by {seeming!r}",
    )


def empty_file() -> FileRejectedError:
    """The error of a file without a record."""
    return FileRejectedError("empty_file", expected="a file with records", found="an empty one")


def check_present(names: Collection[str], spec: RecordSpec) -> None:
    """Raise FileRejectedError if `names`, the columns of a file, lack a declared column that is not optional."""
    declared = [column.header for column in spec.columns]
    missing = [column.header for column in spec.columns if not column.optional and column.header not in names]
    if not missing:
        return
    others = {name.casefold(): name for name in names if name not in declared}
    found = []
    for name in missing[:_MOST_MISSING]:
        near = difflib.get_close_matches(name.casefold(), others, n=1)
        found.append(f"no `{name}`" + (f" (the file has `{others[near[0]]}`)" if near else ""))
    more = len(missing) - len(found)
    raise FileRejectedError(
        "columns_missing",
        expected="each declared column that is not `optional: true`",
        found=", ".join(found) + (f" and {more} more" if more else ""),
    )


def check_lines(last_line: int, spec: RecordSpec) -> None:
    """Raise FileRejectedError if a file has more lines than `spec.max_lines`."""
    if last_line > spec.max_lines:
        expected = f"at most {spec.max_lines} lines (`landing.max_lines`)"
        raise FileRejectedError("too_many_lines", expected=expected, found="more")
