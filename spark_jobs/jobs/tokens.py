"""Tokens that are greater than those in the lake: a source's lease is a file of this machine, and files can be lost.

A lost lease, or one of another machine, would count from 1 again. Its commits would be skipped as those of attempts
given up long ago, and its rows would have the tokens of other rows. So the lake's tokens decide.
"""

from __future__ import annotations

import pyarrow.compute as pc

from spark_jobs.definitions.catalog import source_tables
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.delta.records import newest_token
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DATABASES
from spark_jobs.storage.lakes.lake import Lake

APART = 1000
"""The tokens that are skipped where the lake is ahead of the lease. Another home has had the lake since, and may have
handed out tokens under which nothing is written yet; more of them than that are not on their way at once."""

_NUMBERS = ("token", "landing")
"""The columns with the token under which a row was written."""


def follow_lake(lake: Lake, source: Source, lease: Lease) -> bool:
    """Make the lease's token greater than all tokens of the source in the lake; True if it had to be raised.

    Reads the logs of the records. Only if one of them is ahead of the lease, all tables of the source are read as well:
    an attempt may have written rows and ended before it committed a record.
    """
    recorded = newest_token(lake.folder, source.name)
    if lease.fence.token > recorded:
        return False
    lease.rise_above(max(recorded, _newest_written(lake, source)) + APART)
    return True


def _newest_written(lake: Lake, source: Source) -> int:
    """The greatest token in a row of the source, whether the row counts or not."""
    # tables are found by their places, since the catalog may be lost like the lease
    tables = [table for table in source_tables(source) if lake.folder.is_stored(table.database, table.table)]
    lake.catalog.ensure(DATABASES, tables)
    newest = [
        _newest_in(lake, table, number, source)
        for table in tables
        for number in _NUMBERS
        if number in table.column_names
    ]
    return max(newest, default=0)


def _newest_in(lake: Lake, table: Table, number: str, source: Source) -> int:
    of_source = {"source": [source.name]} if "source" in table.partitions else None
    where = pc.field("source") == source.name if "source" in table.column_names and of_source is None else None
    columns = lake.stored(table, [number], where, of_source).tables()
    return max((pc.max(rows[number]).as_py() or 0 for rows in columns), default=0)
