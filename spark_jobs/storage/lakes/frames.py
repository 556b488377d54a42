"""Frames of a table's columns made of a few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_jobs.storage.descriptions.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
    """A small frame with the table's columns; a missing key is null."""
    values = [tuple(row.get(column) for column in table.column_names) for row in rows]
    return spark.createDataFrame(values, table.schema()).coalesce(1)
