"""Folding: a closed row and the row that closes it become one row of history, so that reads of now stay short.

A restatement appends a `closing` row for each row that it takes back, and every read of now joins those away. Folding
rewrites both as one `closed` row, which only reads of the past open. It changes no answer, of now or of the past, so it
needs no publication: one Delta commit per table, or none.

Cost: a fold rewrites the files whose rows were closed since the last one. It is due when tokens are settled, so once in
some thirty runs, and after a changed definition, which closes everything at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.storage.coordination.publication import Publication, visible, visible_sql
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.lakes.spark_lake import SparkLake


@dataclass(frozen=True, slots=True)
class History:
    """A history table, with the columns that identify a row at one time.

    `keeps_closed`: true if reads of the past need closed rows; otherwise folding removes them.
    """

    table: Table
    identity: tuple[str, ...]
    keeps_closed: bool = True

    @property
    def is_shared(self) -> bool:
        """True if several sources share the table."""
        return any(column.name == "source" for column in self.table.columns)


def fold(lake: SparkLake, history: History, published: Publication, fence: Fence) -> int:
    """Fold the rows that the publication in force has closed; returns their number. If it is 0, there is no commit.

    A crash leaves the table as before or as after. A repeat, or one by an attempt that was given up, does nothing.
    """
    closings = lake.read(history.table).where((F.col("era") == "closing") & visible(published))
    closings = closings.where(F.unix_micros("known_to") < published.published_us)
    if history.is_shared:
        closings = closings.where(F.col("source") == fence.source)
    times = F.unix_micros("known_from")
    counts = closings.agg(F.count("*").alias("rows"), F.min(times).alias("lo"), F.max(times).alias("hi")).first()
    assert counts is not None, "an aggregate without keys has one row"
    if counts.rows:
        lake.amend(_merge(history, published, fence.source, counts.lo, counts.hi), fence)
    return int(counts.rows)


def _merge(history: History, published: Publication, source: str, lo_us: int, hi_us: int) -> str:
    """One MERGE: the live row becomes `closed` with its end, the closing row is deleted. `lo_us` and `hi_us` bound
    `known_from` in the rows that are read, in microseconds."""
    table = qualified(history.table.database, history.table.table)
    identity = [name(column) for column in history.identity]
    counts = visible_sql(published, of="h")
    if history.is_shared:
        counts += f" AND h.source = {literal(source)}"
    closings = (
        f"SELECT {', '.join(identity)}, known_from, known_to FROM {table} h WHERE era = 'closing' AND {counts}"
        f" AND known_to < timestamp_micros({published.published_us})"
    )
    same = " AND ".join(f"h.{column} <=> c.{column}" for column in identity)
    bounds = f"h.known_from BETWEEN timestamp_micros({lo_us}) AND timestamp_micros({hi_us})"
    closed = " WHEN MATCHED AND h.era = 'live' THEN UPDATE SET era = 'closed', known_to = c.known_to"
    return (
        f"MERGE INTO {table} h USING ({closings}) c"
        f" ON {same} AND h.known_from = c.known_from AND h.era IN ('live', 'closing') AND {bounds} AND {counts}"
        f"{closed if history.keeps_closed else ''} WHEN MATCHED THEN DELETE"
    )
