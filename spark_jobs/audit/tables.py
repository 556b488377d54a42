"""The part of the audit that checks tables as files.

They must be as the publication left them, and two ways to read them must give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_jobs.definitions.catalog import source_tables
from spark_jobs.jobs.in_force import changed_tables
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.plain_reading import differing_files, misread_rows
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import Lake

Rows = list[dict[str, Any]]


def audited_tables(lake: Lake, source: Source, current_publication: Publication) -> dict[str, Rows]:
    """The tables, files and columns with a fault, by measure, each with the fault in words."""
    changed = [
        {"table": table, "found": change} for table, change in changed_tables(lake, source, current_publication).items()
    ]
    tables = [table for table in source_tables(source) if table not in QUALITY]
    return {
        "tables_changed": [*changed, *(row for table in tables for row in _misread_tables(lake, source, table))],
        "rows_read_otherwise": [row for table in tables for row in _misread(lake, source, table)],
    }


def _misread_tables(lake: Lake, source: Source, table: Table) -> Iterator[dict[str, Any]]:
    return (
        {"table": table.qualified, **row}
        for row in differing_files(lake.folder.handle(table), _of_source(table, source))
    )


def _misread(lake: Lake, source: Source, table: Table) -> Iterator[dict[str, Any]]:
    return (
        {"table": table.qualified, **row}
        for row in misread_rows(lake.folder.handle(table), table.skipping, _of_source(table, source))
    )


def _of_source(table: Table, source: Source) -> dict[str, str]:
    """The values of partition columns that a source's files have."""
    return {"source": source.name} if "source" in table.partitions else {}
