"""Long histories without the runs that would make them: the updates of a source as daily runs leave them, at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.arrangement import ArrangementState, Description, TraceBatch
from spark_jobs.model import Frontier
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import PUBLISHED, updates
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace.frontiers import SourceFrontiers
from tests.jobs.harness import SOURCE, START

ANY_LATENESS = SOURCE.replace("late: {policy: reemit, limit: 12 hours}", "late: reemit")
"""The source file of `meters`, whose windows take rows however late."""

START_US = int(START.timestamp()) * 1_000_000
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class History:
    """Days of rows of the source `meters` (see `tests.jobs.harness`), evenly spread in time and over meters."""

    source: Source
    days: int
    rows_a_day: int
    meters: int

    def rows(self, spark: SparkSession) -> DataFrame:
        """All rows as updates of batch T1, and their `day`."""
        ids = spark.range(self.days * self.rows_a_day)
        every_us = DAY_US // self.rows_a_day
        at = F.timestamp_micros(F.lit(START_US) + F.col("id") * F.lit(every_us))
        meter = F.concat(F.lit("m"), F.pmod(F.hash("id"), F.lit(self.meters)))
        day = F.floor(F.col("id") / self.rows_a_day)
        values = {
            **dict.fromkeys(("time", "event_time", "t_taken", "t_seen"), at),
            **dict.fromkeys(("entity", "c_meter"), meter),
            "batch": F.lit("T1"),
            "diff": F.lit(1),
            "token": F.lit(1),
            "row_id": F.col("id"),
            "seq_no": day,
            "day": day,
            "c_load": F.pmod(F.hash("id"), F.lit(100)),
            "c_heat": F.pmod(F.hash("id"), F.lit(1000)) / 7,
        }
        return ids.withColumns(values)

    def write(self, spark: SparkSession, late: Column) -> Scope:
        """One file a day, and the rows that `late` chooses once more, as if they had come in the drop after the last.

        Returns:
            What a run of that drop publishes, if all before it is published.
        """
        rows = self.rows(spark)
        append(updates(self.source), rows.repartitionByRange(self.days, "day"))
        fresh = {"batch": F.lit("T2"), "row_id": F.col("id") + F.lit(10**9), "seq_no": F.lit(self.days)}
        visible = F.timestamp_micros(F.lit(self.end_us))
        append(updates(self.source), rows.where(late).withColumns({**fresh, "time": visible}).coalesce(1))
        time = datetime.fromtimestamp(self.end_us / 1e6, UTC)
        row = {"source": self.source.name, "token": 1, "run_id": "r", "settled": 1, "tokens": [], "definition": "x"}
        row |= dict.fromkeys(("published", "reached", "complete"), time)
        append(PUBLISHED, frame_of(SparkLake(spark).spark, PUBLISHED, [row]))
        return self.scope()

    @property
    def end_us(self) -> int:
        return START_US + self.days * DAY_US

    def scope(self) -> Scope:
        bounds = (("T1", 0, self.end_us), ("T2", self.end_us, self.end_us + DAY_US))
        batches = tuple(
            TraceBatch(handle, Description(Frontier.at(lo), Frontier.at(hi), Frontier.at(0)), 0, 1, 1)
            for handle, lo, hi in bounds
        )
        state = ArrangementState(seal=Frontier.at(self.end_us + DAY_US), trace=batches)
        publication = Publication(self.end_us, self.end_us, self.end_us, settled=1, definition="x")
        return Scope(self.source, SourceFrontiers(state, self.end_us + DAY_US), publication)


def append(table: Table, rows: DataFrame) -> None:
    """Append a frame that has some of the table's columns; the others are null."""
    present = set(rows.columns)
    typed = [(F.col(c.name) if c.name in present else F.lit(None)).cast(c.type).alias(c.name) for c in table.columns]
    rows.select(*typed).writeTo(table.qualified).append()
