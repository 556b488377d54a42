"""The columns of a guess: their names, types and values, with the evidence for each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from spark_jobs.engine.records import Cell, ColumnSpec
from spark_jobs.landing.dialects import VALUE, unreadable_sample
from spark_jobs.landing.guessed_kinds import Kind, read_by
from spark_jobs.landing.guessed_numbers import decimal_of, marks_of, text_evidence
from spark_jobs.landing.guessed_order import settled_orders
from spark_jobs.landing.guessed_times import compact_of, epoch_of
from spark_jobs.landing.guessed_types import NULLS, kind_of
from spark_jobs.landing.sampling import Sample
from spark_jobs.sources.checks import RESERVED_COLUMNS, RESERVED_IN_WINDOWS
from spark_jobs.sources.section import check_identifier, is_identifier

_MOST_SHOWN = 4
_ID_WORDS = r"nr|no|num|number|nummer|key|code|uuid|guid|ref"
_ID_NAME = re.compile(rf"(.*_)?({_ID_WORDS})|.*(id|number|nummer)")
"""The name of a column that may identify rows: it ends in `id` or in a word for a number or key."""
_ID_TYPES = ("int", "string", "decimal")
_OFFSET = re.compile(r".*(Z|z|UTC|GMT|[+-]\d{2}(:?\d{2})?)\s*")


@dataclass(slots=True)
class GuessedColumns:
    """The columns of a guess by their names in the source file: headers, types, and the values that read as these
    types. Of its `n_rows` rows, `n_distinct` differ: a row that came again is equal in each column.

    `landing`: the keys of the landing that say how the file is written. `evidence`: sentences on how it is written and
    on columns with another name. `no_ids`: columns whose values do not identify rows, each with a sentence.
    """

    headers: dict[str, str]
    kinds: dict[str, Kind]
    values: dict[str, list[str]]
    optional: frozenset[str]
    n_rows: int
    n_distinct: int
    landing: dict[str, Any]
    evidence: list[str]
    no_ids: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """The column that people call `name`: as in the source file, or as in the files; else `name` itself."""
        by_header = {header.casefold(): column for column, header in reversed(self.headers.items())}
        plain = name.strip()
        if plain in self.kinds:
            return plain
        column = by_header.get(plain.casefold(), identifier(plain))
        return column if column in self.kinds else name

    def of_types(self, *wanted: str) -> list[str]:
        """The names of the columns of these types."""
        return [column for column, kind in self.kinds.items() if kind.type in wanted]

    def ids(self, entity: str) -> list[str]:
        """The columns that could be the `delta_id`: named like an id, and equal only in rows that came again."""
        named = [c for c in self.id_columns(entity) if _ID_NAME.fullmatch(c)]
        return sorted(named, key=lambda column: not column.endswith("id"))

    def id_columns(self, entity: str) -> list[str]:
        """The columns of numbers and texts that have the same value only in rows that came again."""
        able = [c for c, kind in self.kinds.items() if c.endswith("id") or kind.type.startswith(_ID_TYPES)]
        able = [c for c in able if c not in self.no_ids and c != entity]
        # a row that came again has its id again
        return [c for c in able if len(self.values[c]) == self.n_rows and len(set(self.values[c])) == self.n_distinct]

    def without_id(self, entity: str) -> str:
        """A sentence on a source without a `delta_id`, with a column that could be it."""
        able = self.id_columns(entity)
        again = self.n_rows - self.n_distinct
        doubled = f"{again:,} {'line comes' if again == 1 else 'lines come'} twice"
        if able:
            which = f"the same value only in equal lines ({doubled})" if again else "another value in each line"
            remark = f"`{able[0]}` has {which}: `delta_id: {able[0]}`"
        else:
            remark = f"no column of numbers or texts has another value in each line ({doubled})"
        return f"delta_id: none, so a line that comes twice counts twice; {remark}"

    def without_offset(self, column: str) -> int:
        """The number of times in a column that have no offset from UTC; none for dates and for times since 1970."""
        kind = self.kinds[column]
        if kind.type != "timestamp" or kind.format.startswith("epoch") or "%z" in kind.format:
            return 0
        return sum(_OFFSET.fullmatch(text) is None for text in self.values[column])

    def as_key(self, column: str) -> str:
        """The name of a column as a window's key. A name that published tables have for a column of their own gets an
        underscore."""
        if column not in RESERVED_COLUMNS | RESERVED_IN_WINDOWS:
            return column
        key = f"{column}_"
        for each in (self.headers, self.kinds, self.values):
            items = [(key if name == column else name, value) for name, value in each.items()]
            each.clear()
            each.update(items)  # type: ignore[arg-type]
        self.evidence.append(f"`{column}` is `{key}`: published tables have a column of that name of their own")
        return key


def columns_of(samples: Sequence[Sample], dates: Sequence[date | None]) -> GuessedColumns:
    """The columns of the samples of one source. `dates`: the date in the name of each sample's file.

    Raises:
        ParameterError: the samples have no column, or begin with values in place of names.
    """
    cells: dict[str, list[Cell]] = {}
    for sample in samples:
        for header, of_file in sample.columns.items():
            cells.setdefault(header, []).extend(of_file)
    if not cells:
        raise unreadable_sample("a sample file with columns", "none", "name another file")
    landing: dict[str, Any] = {**samples[0].landing}
    form, of_first = samples[0].form, " in the first file" if len(samples) > 1 else ""
    evidence = [f"{samples[0].evidence}{of_first}"] if samples[0].evidence else []
    if form == "csv":
        marks = marks_of(cells.values(), landing.get("delimiter", ","), NULLS)
        landing |= marks.keys
        evidence += [marks.evidence] if marks.evidence else []
    headers, renamed = _names(cells)
    kinds = _kinds(samples, cells, headers, landing)
    by_file = {c: [sample.columns.get(h, []) for sample in samples] for c, h in headers.items()}
    kinds |= settled_orders(kinds, by_file, dates)
    if form == "csv":
        _refuse_values_as_names(headers, kinds)
    null_texts = {text for c, h in headers.items() if kinds[c].type != "string" for _, text in cells[h]} & {*NULLS}
    if null_texts:
        landing["null_values"] = ["", *sorted(null_texts)]
        evidence.append(f"{', '.join(sorted(null_texts))} in columns of numbers and times mean no value")
    values = {}
    for column, header in headers.items():
        # a text that means no value in other columns does so here
        values[column] = _values(cells[header], kinds[column], _spec(column, header, landing, sorted(null_texts)))
    partial = {h for sample in samples for h in sample.partial}
    partial |= {h for h in cells for sample in samples if h not in sample.columns}
    optional = frozenset(c for c, h in headers.items() if h in partial)
    n_rows = sum(sample.n_rows for sample in samples)
    return GuessedColumns(headers, kinds, values, optional, n_rows, _distinct(samples), landing, [*evidence, *renamed])


def _kinds(
    samples: Sequence[Sample], cells: dict[str, list[Cell]], headers: dict[str, str], landing: dict[str, Any]
) -> dict[str, Kind]:
    """The type of each column: that of the file's own schema, else the one that its values have."""
    kinds_of_file = {header: kind for sample in samples for header, kind in sample.types.items()}
    specs = {c: _spec(c, h, landing, NULLS) for c, h in headers.items()}
    kinds = {
        c: Kind(kinds_of_file[h]) if h in kinds_of_file else kind_of(c, cells[h], specs[c]) for c, h in headers.items()
    }
    for column, header in headers.items():
        kind, of_column = kinds[column], cells[header]
        if kind.type == "float" and samples[0].form in ("ndjson", "json"):
            kinds[column] = decimal_of(of_column, NULLS) or kind
        elif kind.type == "string" and not kind.evidence:
            kinds[column] = replace(kind, evidence=text_evidence(of_column, NULLS))
    # names like those of times first; a column of digits alone may be anything
    for guessed in (
        epoch_of,
        lambda _, kind, *arguments: compact_of(*arguments),
        lambda _, *arguments: epoch_of(None, *arguments),
    ):
        if any(kind.is_time for kind in kinds.values()):
            break
        for column, header in headers.items():
            kinds[column] = guessed(column, kinds[column], cells[header], specs[column]) or kinds[column]
    return kinds


def _names(cells: dict[str, list[Cell]]) -> tuple[dict[str, str], list[str]]:
    """The header of each column by its name in the source file, and sentences on names that had to differ."""
    headers: dict[str, str] = {}
    renamed: dict[str, list[str]] = {}
    for place, header in enumerate(cells, 1):
        plain = identifier(header)
        # a header without a letter of English
        plain = f"column_{place}" if plain == "c_" else plain
        others = sum(re.fullmatch(rf"{plain}(_\d+)?", taken) is not None for taken in headers)
        column = plain if plain not in headers else f"{plain}_{others + 1}"
        headers[column] = header
        reason = _reason(header, column)
        if reason:
            renamed.setdefault(reason, []).append(f"`{header}` is `{column}`")
    return headers, [f"{', '.join(names)}: {reason}" for reason, names in renamed.items()]


def _reason(header: str, column: str) -> str:
    """Why a column has another name than its header; empty for names that differ in the case of letters or in blanks
    alone."""
    lower = header.strip().lower()
    if column == f"{lower}_":
        return "SQL reserves the word"
    if re.fullmatch(r".*_\d+", column) and identifier(header) != "c_" and not re.search(r"\d\W*$", header):
        return "another column has that name"
    return "" if is_identifier(re.sub(r"\W+", "_", lower).strip("_")) else "a name has the letters a to z, digits and _"


def identifier(header: str) -> str:
    """A name for a column or source that SQL takes without quotes: accents are left out."""
    bare = unicodedata.normalize("NFKD", header.casefold())
    plain = re.sub(r"[^a-z0-9]+", "_", "".join(c for c in bare if not unicodedata.combining(c))).strip("_")[:60]
    plain = plain if plain[:1].isalpha() else f"c_{plain}"
    try:
        return str(check_identifier(plain))
    except ValueError:
        return f"{plain}_"


def _refuse_values_as_names(headers: dict[str, str], kinds: dict[str, Kind]) -> None:
    """Refuse a file of CSV whose first line is a row: the header of each column of numbers or times is one of them."""
    typed = [
        header for column, header in headers.items() if kinds[column].type in ("int", "float", "timestamp", "date")
    ]
    if typed and all(VALUE.fullmatch(header) for header in typed):
        first_headers = ", ".join(list(headers.values())[:_MOST_SHOWN])
        raise unreadable_sample(
            "a first line with the names of the columns",
            f"one with values: {first_headers}",
            "put a line of names in front, such as `id,meter,at,load`: without one, the first row would be lost",
        )


def _distinct(samples: Sequence[Sample]) -> int:
    """The number of rows that differ from each other."""
    rows: set[tuple[tuple[str, Cell], ...]] = set()
    for sample in samples:
        columns = sorted(sample.columns.items())
        named = [[(header, cell) for cell in cells] for header, cells in columns]
        rows.update(zip(*named, strict=True))
    return len(rows)


def _spec(column: str, header: str, landing: dict[str, Any], nulls: Sequence[str]) -> ColumnSpec:
    marks = {key: landing[key] for key in ("decimal", "thousands") if key in landing}
    return ColumnSpec(column, header, "string", ("", *nulls), **marks)


def _values(cells: Sequence[Cell], kind: Kind, spec: ColumnSpec) -> list[str]:
    """The values that read as the type `kind`; numbers have a decimal point."""
    if kind.type.startswith("decimal"):
        return [text for _, text in cells if text and text not in spec.null_values]
    typed = replace(spec, type=kind.type, time_formats=(kind.format,))  # type: ignore[arg-type]
    texts = [text for (_, text), good in zip(cells, read_by(typed, cells), strict=True) if good]
    if kind.type in ("int", "float"):
        return [text.replace(spec.thousands or " ", "").replace(spec.decimal, ".").strip() for text in texts]
    return texts
