"""The notation of numbers in a file: decimal comma, marks between thousands, decimals as texts, currencies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.engine.records import NULL, TEXT, Cell
from spark_jobs.landing.guessed_kinds import Kind

_COMMA_FIRST = ((",", ""), (",", "."), (",", " "))
_POINT_FIRST = ((".", ","), (".", "'"), (".", " "), (".", "_"))
_NUMBER_LIKE = re.compile(r"[+-]?\d[\d.,' _]*")
_PLAIN = re.compile(r"[+-]?\d+(\.\d+)?")
_FIXED = re.compile(r"[+-]?\d{1,38}\.(\d{1,6})")
_SIGN = r"(?:[$€£¥₹%]|[A-Z]{3})"
_CURRENCY = re.compile(rf"[+-]?\s*{_SIGN}\s*[+-]?[\d.,' ]*\d|[+-]?\d[\d.,' ]*\s*{_SIGN}|\([\d.,]*\d\)")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-4]):[0-5]\d(:[0-5]\d(\.\d+)?)?( ?[AaPp][Mm])?")
_OF_TIMES = "times of day", "no type has them without a date, so write date and time in one column"
_OF_NUMBERS = "numbers with a sign or unit", "no type reads them, so write the numbers alone"
_LEAST_DIGITS = 18
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys `decimal` and `thousands` of a landing, and the evidence for them; both are empty where numbers have a
    decimal point alone."""

    keys: dict[str, str]
    evidence: str = ""


def marks_of(columns: Iterable[Sequence[Cell]], delimiter: str, nulls: Sequence[str]) -> Marks:
    """The marks that explain all values of the most columns, of which some is not written with a point alone.

    Commas in a file whose values have commas between them are those of English, elsewhere decimal commas are likelier.
    """
    texts = [
        Counter(text.strip() for kind, text in cells if kind == TEXT and text and text not in nulls)
        for cells in columns
    ]
    marked = [of_column for of_column in texts if _has_marks(of_column)]
    ordered = (*_POINT_FIRST, *_COMMA_FIRST) if delimiter == "," else (*_COMMA_FIRST, *_POINT_FIRST)
    read = {marks: [_explains(marks, of_column) for of_column in marked] for marks in ordered}
    counts = {marks: sum(bool(of_column) for of_column in columns) for marks, columns in read.items()}
    best = max(counts, key=counts.__getitem__)
    if not counts[best]:
        return Marks({})
    decimal, thousands = best
    keys = ({"decimal": decimal} if decimal != "." else {}) | ({"thousands": thousands} if thousands else {})
    examples = sorted(text for of_column in read[best] for text in of_column if not _PLAIN.fullmatch(text))
    between = f", with {thousands!r} between thousands" if thousands else ""
    evidence = f"numbers have a decimal {'comma' if decimal == ',' else 'point'}{between}: nearly all values of"
    evidence += f" {counts[best]:,} of {len(texts):,} columns read so, such as {examples[0]}"
    threes = all(re.fullmatch(r"[+-]?\d{1,3}[.,]\d{3}", text) for text in examples)
    return Marks(keys, evidence + (" (three digits after each mark: it may also be the other one)" if threes else ""))


def _has_marks(texts: Counter[str]) -> bool:
    """True if the texts of nearly all rows look like numbers, and some has another mark than a point."""
    others = sum(n for text, n in texts.items() if not _NUMBER_LIKE.fullmatch(text))
    return others <= (1 - _NEARLY_ALL) * texts.total() and any(not _PLAIN.fullmatch(text) for text in texts)


def _explains(marks: tuple[str, str], texts: Counter[str]) -> set[str]:
    """The texts that are numbers with these marks, if those of nearly all rows are and some has the mark by which they
    differ from others; else none. `texts`: number of rows by text."""
    decimal, thousands = marks
    group = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+" if thousands else r"\d+"
    number = re.compile(rf"[+-]?(?:{group}|\d+)(?:{re.escape(decimal)}\d+)?")
    numbers = {text for text in texts if number.fullmatch(text)}
    needed = [","] if decimal == "," else []
    needed += [thousands] if thousands else []
    # codes such as 030 123 are grouped as well, but have no point
    needed += ["."] if decimal == "." and thousands != "," else []
    is_number = sum(texts[text] for text in numbers) >= _NEARLY_ALL * texts.total()
    return numbers if is_number and all(any(mark in text for text in numbers) for mark in needed) else set()


def decimal_of(cells: Sequence[Cell], nulls: Sequence[str]) -> Kind | None:
    """The decimal of a column of JSON whose values are texts with always as many digits after the point; None for
    others. A sender writes numbers as texts to keep their digits."""
    filled_cells = [(kind, text) for kind, text in cells if kind != NULL and text and text not in nulls]
    matches = [_FIXED.fullmatch(text) for kind, text in filled_cells if kind == TEXT]
    scales = {len(match[1]) for match in matches if match is not None}
    if len(matches) < len(filled_cells) or len(scales) != 1 or not all(matches):
        return None
    (scale,) = scales
    longest = max(len(text.lstrip("+-").replace(".", "")) for _, text in filled_cells)
    precision = _LEAST_DIGITS if longest <= _LEAST_DIGITS else 38
    count = len(filled_cells)
    evidence = f"{count:,} of {count:,} values are texts with {scale} digits after the point, as JSON writes money"
    return Kind(f"decimal({precision}, {scale})", evidence=evidence)


def text_evidence(cells: Sequence[Cell], nulls: Sequence[str]) -> str:
    """A sentence on a column of text whose values are mostly times of day, or numbers with a sign or unit; else
    empty."""
    texts = [text.strip() for kind, text in cells if kind == TEXT and text and text not in nulls]
    for pattern, what in ((_TIME_OF_DAY, _OF_TIMES), (_CURRENCY, _OF_NUMBERS)):
        fitting = [text for text in texts if pattern.fullmatch(text)]
        if len(fitting) > len(texts) / 2:
            notation, step = what
            return f"{len(fitting):,} of {len(texts):,} values are {notation}, such as {fitting[0]}: {step}"
    return ""
