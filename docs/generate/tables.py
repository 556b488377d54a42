"""The page of stored tables: every table that all sources share, and the tables of the shipped sources."""

from __future__ import annotations

import functools

from docs.generate.documents import ROOT
from docs.generate.markdown import code, prose, section, table, whole_page
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.extract_table import EXTRACTS
from spark_jobs.storage.descriptions.people_tables import PINS, SOURCE_CHANGES
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import DATABASES

_OF_SOME = (CHAINS, EXTRACTS, PINS, SOURCE_CHANGES)
"""Tables that only exist once something needs them: chains, tables and topics to read, pins, renamed sources."""
_INTRODUCTION = """
All tables are Delta tables with times in UTC. Most people read the [views](views.md), which show what is published;
a stored table also has what runs have not published yet, and what was true before. Tables of one source have its name
or that of its window: here they are those of the shipped sources, `flights` and `weather`. The columns of a source's
file and of its windows follow its source file.
"""


def page() -> str:
    """The page, with a section for each database."""
    by_database: dict[str, list[Table]] = {database: [] for database in DATABASES}
    for described in stored_tables():
        by_database.setdefault(described.database, []).append(described)
    sections = [_database(database, of_it) for database, of_it in by_database.items() if of_it]
    return whole_page("Stored tables", _INTRODUCTION.strip(), *sections)


@functools.cache
def shipped_sources() -> list[Source]:
    """The sources whose files are in the repository."""
    return [load_source(file) for file in sorted((ROOT / "dags" / "sources").glob("*.yml"))]


@functools.cache
def stored_tables() -> list[Table]:
    """All tables, each once."""
    tables = [*(t for source in shipped_sources() for t in source_tables(source)), *_OF_SOME]
    return list({described.qualified: described for described in tables}.values())


def _database(database: str, tables: list[Table]) -> str:
    return section(2, f"{database} {{#{database}}}", prose(DATABASES.get(database, "")), *map(_section, tables))


def _section(described: Table) -> str:
    by = f"Partitioned by {', '.join(map(code, described.partitions))}." if described.partitions else ""
    columns = table(["column", "type", "meaning"], map(_row, described.columns))
    heading = f"{code(described.qualified)} {{#{described.qualified}}}"
    return section(3, heading, prose(described.comment), by, columns)


def _row(column: Column) -> list[str]:
    return [code(column.name), code(column.type), prose(column.comment)]
