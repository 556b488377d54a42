"""The choice of an erasure: the rows that have one value in one declared column."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import Flags
from spark_jobs.engine.records import texts_of
from spark_jobs.errors import ParameterError
from spark_jobs.sources import Source, as_typed
from spark_jobs.storage.descriptions.column_types import arrow_type_of

_EQUALITY = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))\s*=\s*"
    r"(?:'(?P<text>(?:[^']|'')+)'|(?P<number>-?[0-9]+(?:\.[0-9]+)?)|(?P<truth>true|false))\s*"
)


@dataclass(frozen=True)
class Choice:
    """The rows whose `column` has this `value`, a text as `texts_of` gives it.

    `kind`: the type of the column. `is_entity`: the column is the source's entity.
    """

    column: str
    value: str
    kind: pa.DataType
    is_entity: bool

    @property
    def recorded_column(self) -> str | None:
        """The column as erasures record it: None for the entity, whatever its column is called."""
        return None if self.is_entity else self.column

    @property
    def stored(self) -> str:
        """The name of the column in the tables of updates and chunks. A chunk has one entity for all rows, and a list
        of the values of any other column."""
        return "entity" if self.is_entity else f"c_{self.column}"

    @property
    def condition(self) -> pc.Expression | None:
        """The condition on `stored` by which files of updates are skipped; None if values are compared as texts."""
        return pc.field(self.stored) == self.value if pa.types.is_string(self.kind) else None

    def flags(self, values: pa.Array | pa.ChunkedArray) -> Flags:
        """A flag for each value of the column: True if it is the chosen one."""
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        same = pc.fill_null(pc.equal(texts_of(whole), self.value), False)
        return same.to_numpy(zero_copy_only=False).astype(np.bool_)

    def of_rows(self, rows: pa.Table) -> Flags:
        """A flag for each row of a table with the column `stored`: True if it is chosen."""
        return self.flags(rows[self.stored])

    def of_json(self, rows: list[str | None]) -> Flags:
        """A flag for each row that is stored as JSON (see `storage.descriptions.row_json`): True if it is chosen."""
        values = [None if row is None else json.loads(row).get(self.stored) for row in rows]
        if self.is_entity:
            return self.flags(pa.array(values, pa.string()))
        if pa.types.is_decimal(self.kind):
            values = [None if value is None else Decimal(value) for value in values]
        return self.flags(_typed_array(values, self.kind))


def of_entity(source: Source, entity: str) -> Choice:
    """The choice of all rows of an entity."""
    return Choice(source.entity, entity, pa.string(), is_entity=True)


def of_condition(source: Source, condition: str) -> Choice:
    """The choice that a condition such as `customer = 'c0354'` says: a declared column equals a literal.

    Raises:
        ParameterError: the condition is not of this form, the source declares no such column, or the literal is not a
            value of it.
    """
    match = _EQUALITY.fullmatch(condition)
    if match is None:
        raise _refusal(source, "a declared column, `=` and one literal", repr(condition))
    column = match["quoted"] or match["plain"]
    if column not in source.columns:
        raise _refusal(source, f"a column that {source.name} declares", repr(column))
    declared = source.columns[column]
    literal: Any = None if match["text"] is None else match["text"].replace("''", "'")
    if match["truth"] is not None:
        literal = match["truth"] == "true"
    elif match["number"] is not None:
        number = Decimal(match["number"])
        literal = float(number) if declared.kind == "float" else match["number"]
        if declared.kind == "int" and number == int(number):
            literal = int(number)
        elif declared.kind in ("string", "timestamp", "date", "int"):
            raise _refusal(source, f"a literal of the type of {column}, {declared.type}", match["number"])
    try:
        value = as_typed(literal, declared)
    except ValueError:
        raise _refusal(source, f"a literal of the type of {column}, {declared.type}", repr(literal)) from None
    kind = arrow_type_of(declared)
    text = texts_of(_typed_array([value], kind))[0].as_py()
    if column == source.entity:
        return of_entity(source, text)
    return Choice(column, text, kind, is_entity=False)


def _typed_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array: times are whole microseconds, dates whole days."""
    plain = pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind
    return pa.array(values, plain).cast(kind)


def _refusal(source: Source, expected: str, finding: str) -> ParameterError:
    return ParameterError(
        expected=f"{expected}, such as {source.entity} = 'a'",
        found=finding,
        consequence="nothing was erased",
        next_step="erase by one value of one column at a time; texts and times are in '…', numbers, true and false are"
        f" not; {source.name} declares {', '.join(source.columns)}",
    )
