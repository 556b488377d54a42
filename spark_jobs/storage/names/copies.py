"""Copies of published rows in tables of their own: pins and environments are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_jobs.storage.descriptions.schema import Column
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.lakes.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_copy(lake: Lake, database: str, table: str, rows: DataFrame, comment: str, columns: Iterable[Column]) -> None:
    """Create a table with `rows`, or replace the one of that name. `columns` have the comments of its columns, by
    name."""
    comments = {column.name: column.short_comment for column in columns}
    for name in rows.columns:
        if name in comments:
            rows = rows.withMetadata(name, {"comment": comments[name]})
    written = rows.writeTo(qualified(database, table)).using("delta")
    written.tableProperty("delta.enableDeletionVectors", "false").createOrReplace()
    lake.catalog.define(f"COMMENT ON TABLE {qualified(database, table)} IS {literal(comment)}")
