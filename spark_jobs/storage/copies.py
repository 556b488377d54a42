"""Copies of published rows in tables of their own: what pins and environments are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import literal, qualified

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_copy(lake: Lake, database: str, table: str, rows: DataFrame, comment: str) -> None:
    """A table that holds `rows`, in place of one of that name."""
    written = rows.writeTo(qualified(database, table)).using("delta")
    written.tableProperty("delta.enableDeletionVectors", "false").createOrReplace()
    lake.define(f"COMMENT ON TABLE {qualified(database, table)} IS {literal(comment)}")
