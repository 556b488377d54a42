"""The audit's look at tables as files: whether they are as the publication left them, and read alike in two ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_jobs.definitions.catalog import source_tables
from spark_jobs.jobs.in_force import changed_tables
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.quality_tables import QUALITY
from spark_jobs.storage.schema import Table

Rows = list[dict[str, Any]]


def audited_tables(lake: Lake, source: Source, shown: Publication) -> dict[str, Rows]:
    """By measure the tables, files and columns that are otherwise than they should be, each with what was `found`."""
    changed = [{"table": table, "found": found} for table, found in changed_tables(lake, source, shown).items()]
    tables = [table for table in source_tables(source) if table not in QUALITY]
    return {
        "tables_changed": [*changed, *(row for table in tables for row in _differing(lake, source, table))],
        "rows_read_otherwise": [row for table in tables for row in _misread(lake, source, table)],
    }


def _differing(lake: Lake, source: Source, table: Table) -> Iterator[dict[str, Any]]:
    return ({"table": table.qualified, **row} for row in lake.differing_files(table, source.name))


def _misread(lake: Lake, source: Source, table: Table) -> Iterator[dict[str, Any]]:
    return ({"table": table.qualified, **row} for row in lake.misread_rows(table, source.name))
