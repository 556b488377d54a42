"""A source's row as text that keeps every digit: to compare rows as they are, and to keep one in a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.storage.sql import name
from spark_jobs.storage.tables import row_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLAIN = {"TIMESTAMP": "BIGINT", "DATE": "INT"}
"""Types of a row's JSON in place of those whose text would lose digits."""


def as_json(source: Source, prefix: str = "") -> Column:
    """The columns of `tables.row_columns` (those whose names start with `prefix`) as text: `rows_of_json` reads it."""
    plain = {"TIMESTAMP": F.unix_micros, "DATE": F.unix_date}
    columns = [c for c in row_columns(source) if c.name.startswith(prefix)]
    return F.to_json(F.struct(*[plain.get(c.type, F.col)(name(c.name)).alias(c.name) for c in columns]))


def rows_of_json(frame: DataFrame, source: Source, *others: str) -> DataFrame:
    """The columns of `tables.row_columns` out of the column `row` of `frame`, and its columns `others`."""
    columns = row_columns(source)
    schema = ", ".join(f"{name(c.name)} {_PLAIN.get(c.type, c.type)}" for c in columns)
    whole = {"TIMESTAMP": F.timestamp_micros, "DATE": F.date_from_unix_date}
    parsed = frame.select(F.from_json("row", schema).alias("parsed"), *[F.col(o).alias(f"_{o}") for o in others])
    fields = [whole.get(c.type, F.col)(f"parsed.{name(c.name)}").alias(c.name) for c in columns]
    return parsed.select(*fields, *[F.col(f"_{o}").alias(o) for o in others])
