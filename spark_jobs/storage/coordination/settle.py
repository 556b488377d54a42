"""Settling: it keeps the list of published tokens short, and removes the rows that no publication names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LATE, STATE, VALIDITY
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT = 64
"""Newest tokens that stay listed: two a run, so an attempt given up a month of daily runs ago is surely no longer at
work."""

AT_ONCE = 64
"""Tokens that are settled together. A sweep reads each history table's tokens, so it is too costly for every run."""


def settled(lake: SparkLake, source: Source, publication: Publication) -> Publication:
    """The same publication with its oldest tokens settled, once there are enough of them; sweeps rows of given-up
    attempts."""
    if len(publication.tokens) < KEPT + AT_ONCE:
        return publication
    through = publication.tokens[-KEPT - 1]
    for table in history_tables(lake, source):
        _sweep(lake, source, table, publication, through)
    return replace(publication, settled=through, tokens=publication.tokens[-KEPT:])


def history_tables(lake: Lake, source: Source) -> list[Table]:
    """The tables whose rows are visible by token: the shared ones, and the windows' of this source."""
    own = [f"{definition}_history" for definition in source.windows]
    present = lake.catalog.names("silver")
    chains = [CHAINS] if CHAINS.table in lake.catalog.names(CHAINS.database) else []
    return [STATE, LATE, *chains, *[Table("silver", name, "", VALIDITY) for name in own if name in present]]


def sweep_given_up(lake: SparkLake, source: Source, publication: Publication, staged: Iterable[int]) -> dict[str, int]:
    """Remove the rows of given-up attempts: their tokens are neither in a publication nor in `staged`, the current
    run's. Returns the number of removed rows by table."""
    tables = {table.qualified: table for table in history_tables(lake, source)}
    # one job looks at all tables
    each = [
        _given_up(lake, source, table, publication).select(F.lit(name).alias("table"), "token")
        for name, table in tables.items()
    ]
    rows = reduce(lambda some, more: some.unionByName(more), each).where(~F.col("token").isin(list(staged)))
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows.groupBy("table", "token").count().collect():
        counts[row.table][row.token] = row["count"]
    for name, of_table in counts.items():
        lake.delete_tokens(tables[name], sorted(of_table), _sharer(source, tables[name]))
    return {name: sum(of_table.values()) for name, of_table in sorted(counts.items())}


def _sweep(lake: SparkLake, source: Source, table: Table, publication: Publication, through: int) -> None:
    rows = _given_up(lake, source, table, publication).where(F.col("token") <= through)
    tokens = [row.token for row in rows.select("token").distinct().collect()]
    if tokens:
        lake.delete_tokens(table, tokens, _sharer(source, table))


def _given_up(lake: Lake, source: Source, table: Table, publication: Publication) -> DataFrame:
    """Rows of tokens that the publication neither names nor has settled."""
    rows = lake.read(table).where(F.col("token") > publication.settled)
    rows = rows.where(~F.col("token").isin(list(publication.tokens)))
    return rows if _sharer(source, table) is None else rows.where(F.col("source") == source.name)


def _sharer(source: Source, table: Table) -> str | None:
    """The source's name if several sources share the table, else None."""
    return source.name if any(column.name == "source" for column in table.columns) else None
