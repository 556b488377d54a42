"""The delimiter of a CSV sample, and the layouts of CSV that no reader of Tidemark reads."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spark_jobs.engine.records import DELIMITER_LINE, DELIMITERS
from spark_jobs.errors import ParameterError

_UNUSUAL = (" ", ":", "~", "^", "\x1f", "\x01")
"""Delimiters that are tried where none of the usual ones parts the lines."""
_TRIED_RECORDS, _TRIED_CHARACTERS = 1_000, 1 << 20
_MOST_IN_FRONT = 100
"""The most lines in front of a header that are recognised."""
_LEAST_SHARE = 0.9
VALUE = re.compile(r"[+-]?\d+([.,]\d+)?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?")
"""A number or a time, as values are and names of columns are not."""
_NAMES = {"\t": "a tab", " ": "a blank"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of a CSV file. `evidence`: the numbers that speak for the delimiter."""

    delimiter: str
    escape: str
    evidence: str


@dataclass(frozen=True, slots=True)
class _Parted:
    """Records parted by a delimiter: their widths, with the usual one, and the lines in which they end."""

    delimiter: str
    records: list[list[str]]
    lines: list[int]
    usual: int
    share: float

    @property
    def fits(self) -> bool:
        """True if the header has as many values, at least two, as most lines."""
        return self.usual > 1 and len(self.records[0]) == self.usual

    @property
    def rank(self) -> tuple[bool, bool, bool, int, bool]:
        """The order of delimiters: one that fits the header, parts lines at all, parts nearly all of them alike, gives
        the most values, and is no comma."""
        return self.fits, self.usual > 1, self.share >= _LEAST_SHARE, self.usual, self.delimiter != ","


def guess_dialect(text: str, name: str) -> tuple[Dialect, str]:
    """The dialect of the text of a CSV file, and the text from its header on. `name`: the file in refusals.

    Raises:
        ParameterError: the file has a layout that can't be declared in a source file.
    """
    escape = "\\" if '\\"' in text else ""
    if "\n" not in text and "\r" in text:
        finding = f"{name}, whose lines end in carriage returns alone"
        raise unreadable_sample("lines that end in a newline", finding, r"convert it: tr '\r' '\n' < FILE > NEW")
    first, _, body = text.partition("\n")
    if first.startswith(DELIMITER_LINE.decode()):
        delimiter = first.strip()[len(DELIMITER_LINE) :]
        return Dialect(delimiter, escape, f"the line `{first.strip()}` names the delimiter"), body
    begin = text[: text.rfind("\n", 0, _TRIED_CHARACTERS) + 1] if len(text) > _TRIED_CHARACTERS else text
    parted = [_part(begin, delimiter, escape) for delimiter in DELIMITERS]
    best = max(parted, key=lambda each: each.rank)
    if not best.fits:
        unusual = [_part(begin, d, escape) for d in _UNUSUAL]
        unusual = [each for each in unusual if each.fits and each.share >= _LEAST_SHARE]
        best = max(unusual, key=lambda each: each.rank, default=best)
    if best.usual < 2:
        # most lines are no records: the header decides
        best = max(parted, key=lambda each: len(each.records[0]) if each.records else 0)
    _refuse_layout(best, text, name)
    delimiter_name = _NAMES.get(best.delimiter, f"`{best.delimiter}`")
    width = len(best.records[0]) if best.records else 0
    alike = sum(len(record) == width for record in best.records)
    first = "the first " if len(best.records) == _TRIED_RECORDS else ""
    evidence = f"{delimiter_name} parts {alike:,} of {first}{len(best.records):,} lines into {width} values"
    return Dialect(best.delimiter, escape, evidence), text


def read_records(text: str, delimiter: str, escape: str, most: int) -> tuple[list[list[str]], list[int]]:
    """At most `most` records of CSV, without empty ones, and for each the line in which it ends. A line with a quote
    that nothing closes is left out, as the reader rejects it."""
    lines = text.splitlines(keepends=True) if "\r" in text else text.split("\n")
    options: dict[str, Any] = {"escapechar": escape} if escape else {}
    records: list[list[str]] = []
    ends: list[int] = []
    begin = 0
    while begin < len(lines) and len(records) < most:
        reader = csv.reader(islice(lines, begin, None), delimiter=delimiter, **options)
        before = begin
        with suppress(csv.Error):  # a field beyond the limit of the module
            for record in reader:
                end = begin + reader.line_num
                if end == len(lines) and _is_open(lines[before:end]):
                    break
                if record and len(records) < most:
                    records.append(record)
                    ends.append(end)
                before = end
                if len(records) == most:
                    break
        begin = max(before + 1, begin + 1)
    return records, ends


def _is_open(lines: Sequence[str]) -> bool:
    """True if lines have a quote that nothing closes."""
    return len(lines) > 1 and sum(line.count('"') for line in lines) % 2 == 1


def _part(text: str, delimiter: str, escape: str) -> _Parted:
    records, lines = read_records(text, delimiter, escape, _TRIED_RECORDS)
    widths = Counter(map(len, records))
    usual, n = max(widths.items(), key=lambda item: item[1], default=(0, 0))
    return _Parted(delimiter, records, lines, usual, n / max(len(records), 1))


def _refuse_layout(parted: _Parted, text: str, name: str) -> None:
    """Refuse lines before the header, values within single quotes, and columns aligned by blanks."""
    records, usual = parted.records, parted.usual
    for place in range(max(map(len, records), default=0)):
        values = [record[place].strip() for record in records[1:] if place < len(record)]
        if len(values) > 1 and sum(bool(re.fullmatch(r"'.*'", value)) for value in values) > _LEAST_SHARE * len(values):
            finding = f"{name}, in which single quotes are around values such as {values[0]}"
            raise unreadable_sample(
                'values in double quotes (`"`) or none', finding, "write the file with double quotes"
            )
    in_front = next((n for n, record in enumerate(records) if len(record) == usual), 0)
    alike = sum(len(record) == usual for record in records)
    if 0 < in_front <= _MOST_IN_FRONT and usual > 1 and len(records[0]) < usual and alike > len(records) / 2:
        line = parted.lines[in_front]
        first = f"{name}, whose line {line} has the first {usual} values, and whose line 1 is {records[0][0][:60]!r}"
        if any(VALUE.fullmatch(value.strip()) for value in records[in_front]):
            step = "write the line of names with as many names as the other lines have values, with the same delimiter"
            raise unreadable_sample(f"{usual} names in the first line, as other lines have {usual} values", first, step)
        step = f"remove the lines in front: tail -n +{line} FILE > NEW"
        raise unreadable_sample("a file of CSV that begins with the names of its columns", first, step)
    first = text.partition("\n")[0]
    if (usual < 2 or parted.delimiter == " ") and len(re.split(r"\s{2,}", first.strip())) > 1:
        finding = f"{name}, in which blanks align the columns"
        step = "put commas between them (sed -E 's/ {2,}/,/g' FILE > NEW), or read the format with a plugin"
        raise unreadable_sample("a delimiter between the columns", finding, step)


def unreadable_sample(expected: str, finding: str, next_step: str) -> ParameterError:
    """The error of a sample from which nothing can be guessed."""
    return ParameterError(expected=expected, found=finding, consequence="nothing was written", next_step=next_step)
