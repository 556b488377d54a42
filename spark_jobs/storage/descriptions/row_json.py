"""A source's row as text that keeps every digit, for exact comparison of rows, and to store a row in a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Column as TableColumn
from spark_jobs.storage.descriptions.sql import name
from spark_jobs.storage.descriptions.tables import row_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _plain(column: TableColumn) -> tuple[str, Callable[[Column], Column], Callable[[Column], Column]]:
    """The form of a column's values in the JSON of its row: the type there, the conversion to it, and the conversion
    back. Times as text would lose digits; decimals would lose digits in readers of the JSON."""
    if column.type == "TIMESTAMP":
        return "BIGINT", F.unix_micros, F.timestamp_micros
    if column.type == "DATE":
        return "INT", F.unix_date, F.date_from_unix_date
    if column.type.startswith("DECIMAL"):
        return "STRING", lambda value: value.cast("string"), lambda text: text.cast(column.type)
    return column.type, lambda value: value, lambda value: value


def as_json(source: Source, prefix: str = "") -> Column:
    """The columns of `tables.row_columns` (only names that start with `prefix`) as text, which `rows_of_json` reads."""
    columns = [c for c in row_columns(source) if c.name.startswith(prefix)]
    return F.to_json(F.struct(*[_plain(c)[1](F.col(name(c.name))).alias(c.name) for c in columns]))


def rows_of_json(frame: DataFrame, source: Source, *others: str) -> DataFrame:
    """The columns of `tables.row_columns`, read from the column `row` of `frame`, and the columns `others` of
    `frame`."""
    columns = row_columns(source)
    schema = ", ".join(f"{name(c.name)} {_plain(c)[0]}" for c in columns)
    parsed = frame.select(F.from_json("row", schema).alias("parsed"), *[F.col(o).alias(f"_{o}") for o in others])
    fields = [_plain(c)[2](F.col(f"parsed.{name(c.name)}")).alias(c.name) for c in columns]
    return parsed.select(*fields, *[F.col(f"_{o}").alias(o) for o in others])
