"""Conversion of the rows of a point-in-time join to questions to chains, and of answers to rows.

The columns may have any name, and times may be of every type of an instant. Rows are sent in a struct whose fields are
numbered, so nothing depends on the names of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW = "row"
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_DAY_US, _HOUR_US, _MINUTE_US = 86_400_000_000, 3_600_000_000, 60_000_000


def questions_of(df: DataFrame, *, entity: str, time: str, known_at: str) -> DataFrame:
    """The rows of `df` as `entity` (text), `asked_time`, `asked_known` (ticks) and the row itself.

    Raises:
        ParameterError: a name is not that of exactly one column, or a column is of no type for instants.
    """
    places = [_place(df, name) for name in (entity, time, known_at)]
    numbered = df.toDF(*_number(df))
    kinds = df.schema.fields
    asked = [_ticks(F.col(_field(p)), kinds[p].dataType, kinds[p].name) for p in places[1:]]
    return numbered.select(
        F.col(_field(places[0])).cast("string").alias("entity"), asked[0].alias("asked_time"),
        asked[1].alias("asked_known"), F.struct(*numbered.columns).alias(ROW),
    )  # fmt: skip


def answered_type(df: DataFrame, values: Sequence[DataType]) -> StructType:
    """The schema of rows with their answers: the row, and a numbered column for each value."""
    fields = zip(_number(df), df.schema.fields, strict=True)
    row = StructType([StructField(name, field.dataType) for name, field in fields])
    return StructType([StructField(ROW, row), *(StructField(answer(i), kind) for i, kind in enumerate(values))])


def answered(rows: DataFrame, df: DataFrame, names: Sequence[str], *, time: str, stamp: int) -> DataFrame:
    """Rows of `answered_type` with the column names of `df` and `names`.

    The value at the place `stamp` is in ticks; it becomes a timestamp unless `time` of `df` has whole numbers."""
    kind = df.schema.fields[_place(df, time)].dataType
    left_columns = [F.col(f"{ROW}.{_field(i)}").alias(field.name) for i, field in enumerate(df.schema.fields)]
    values = [F.col(answer(i)) for i in range(len(names))]
    if not isinstance(kind, _WHOLE):
        values[stamp] = F.timestamp_micros(values[stamp])
    return rows.select(*left_columns, *[value.alias(name) for value, name in zip(values, names, strict=True)])


def refuse_taken(df: DataFrame, names: Sequence[str]) -> None:
    """Raise ParameterError for columns of `df` whose names are equal to joined ones, whatever the case of letters."""
    joined = {name.casefold() for name in names}
    taken = sorted(name for name in df.columns if name.casefold() in joined)
    if taken:
        raise ParameterError(
            expected="columns of df that no component is called like", found=", ".join(taken),
            next_step="give a prefix for the joined columns",
        )  # fmt: skip


def answer(place: int) -> str:
    """The name of the column with the answer's value at this place, while it is on its way."""
    return f"answer_{place}"


def _field(place: int) -> str:
    return f"c{place}"


def _number(df: DataFrame) -> list[str]:
    return [_field(i) for i in range(len(df.columns))]


def _place(df: DataFrame, name: str) -> int:
    """The index of the column of that name: exactly or, as in SQL, whatever the case of its letters."""
    exact = [i for i, column in enumerate(df.columns) if column == name]
    places = exact or [i for i, column in enumerate(df.columns) if column.casefold() == name.casefold()]
    if len(places) != 1:
        raise ParameterError(
            expected=f"one column {name!r}", found=f"{len(places)} among {', '.join(map(repr, df.columns))}",
            next_step="name a column of df itself; give columns of one name different ones",
        )  # fmt: skip
    return places[0]


def _ticks(column: Column, kind: DataType, name: str) -> Column:
    """A column of instants as ticks. Times without a zone are in UTC; a date is its midnight in UTC."""
    if isinstance(kind, _WHOLE):
        return column.cast("bigint")
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, DateType):
        return F.unix_date(column) * F.lit(_DAY_US)
    if isinstance(kind, TimestampNTZType):
        # by its parts: a cast would read it as a time in the zone of the session
        whole = F.unix_date(column.cast("date")) * F.lit(_DAY_US) + F.hour(column) * F.lit(_HOUR_US)
        seconds = F.extract(F.lit("SECOND"), column) * F.lit(1_000_000)
        return whole + F.minute(column) * F.lit(_MINUTE_US) + seconds.cast("bigint")
    raise ParameterError(
        expected=f"whole numbers, timestamps or dates in {name!r}", found=kind.simpleString(),
        next_step="cast the column: what is less than a tick, or reads otherwise, is not cut off unasked",
    )  # fmt: skip
