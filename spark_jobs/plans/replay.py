"""Records in quarantine: queries of them, their dismissal, and the run that reads their files again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ParameterError
from spark_jobs.landing.ledger import RETRACTED, versions
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPEN = "open"
VIEW = "bronze.quarantine"


@dataclass(frozen=True, slots=True)
class Asked:
    """A selection of records in quarantine: by a range of drops, a file, a rule and a state of replay; None is any."""

    drops: range | None = None
    file: str | None = None
    rule: str | None = None
    state: str | None = OPEN

    def of(self, records: DataFrame) -> DataFrame:
        """The records of the selection, out of `records`."""
        if self.drops is not None:
            records = records.where(F.col("seq_no").between(self.drops.start, self.drops.stop - 1))
        wanted = {"file": self.file, "rule": self.rule, "replay_state": self.state}
        for column, value in wanted.items():
            if value is not None:
                records = records.where(F.col(column) == F.lit(value))
        return records


@dataclass(frozen=True, slots=True)
class Replay:
    """A run that reads files again: the files, and the range of their drops. Drops in between may not have landed."""

    drops: range
    files: frozenset[str]

    def interval_us(self, source: Source) -> tuple[int, int]:
        """The interval `[lo, hi)` of the drops, in microseconds."""
        return source.drops.interval(self.drops.start)[0], source.drops.interval(self.drops.stop - 1)[1]


def quarantined_records(spark: SparkSession, source: Source, asked: Asked) -> DataFrame:
    """The selected records of the source in `bronze.quarantine`; none before anything has landed."""
    database, view = VIEW.split(".")
    if view not in SparkLake(spark).catalog.names_if_present(database):
        texts = [f"{column} STRING" for column in ("file", "rule", "reason", "raw", "replay_state")]
        numbers = [f"{column} BIGINT" for column in ("seq_no", "line", "landing", "last_line", "records")]
        return spark.createDataFrame([], ", ".join([*texts, *numbers]))
    return asked.of(spark.table(VIEW).where(F.col("source") == source.name)).drop("source")


def summary(records: DataFrame) -> list[dict[str, Any]]:
    """The number of records by drop, file, rule and state of replay, in this order."""
    keys = ("seq_no", "file", "rule", "replay_state")
    counted = records.groupBy(*keys).agg(F.sum("records").alias("records")).orderBy(*keys)
    return [row.asDict() for row in counted.collect()]


def reasons(records: DataFrame) -> list[dict[str, Any]]:
    """The number of records by rule, reason and state of replay, the most first.

    A reason that begins with a column is cut off before its words `found …`, so that equal faults count together.
    `example` is one whole reason.
    """
    expected = F.regexp_extract("reason", "^(.*?), found ", 1)
    reason = F.when(F.col("reason").startswith("column `"), expected).otherwise(F.col("reason"))
    counts = {"records": F.sum("records"), "example": F.min("reason")}
    counted = records.groupBy("rule", reason.alias("expectation"), "replay_state").agg(
        *(count.alias(name) for name, count in counts.items())
    )
    ordered = counted.orderBy(F.desc("records"), "rule", "expectation", "replay_state")
    return [row.asDict() for row in ordered.withColumnRenamed("expectation", "reason").collect()]


def dismiss(spark: SparkSession, source: Source, asked: Asked, because: str, dismissed_by: str) -> list[dict[str, Any]]:
    """Close the selected open records, file by file and rule by rule; returns how many by file and rule.

    The records stay in quarantine and count as before. Once a file has landed with other bytes, its rejected records
    are open again.

    Raises:
        ParameterError: there is no such record, or no reason is given.
    """
    if not because.strip():
        raise ParameterError(
            expected="a reason, which is kept", found="none", next_step='say it: --because "never was data"'
        )
    counted = quarantined_records(spark, source, asked).groupBy("file", "rule").agg(F.sum("records").alias("records"))
    groups = [row.asDict() for row in counted.orderBy("file", "rule").collect()]
    if not groups:
        raise ParameterError(
            expected=f"open records of {source.name} in {VIEW}",
            found="none that are asked for",
            next_step=f"`tidemark quarantine list {source.name}` names them",
        )
    lake, dismissal = SparkLake(spark), {"because": because.strip(), "dismissed_by": dismissed_by}
    versions_by_path, now = versions(lake, source), datetime.now(UTC)
    rows = [
        {
            "source": source.name,
            "file": row["file"],
            "checksum": versions_by_path[row["file"]].checksum,
            "rule": row["rule"],
        }
        | {**dismissal, "dismissed_at": now}
        for row in groups
    ]
    lake.append(DISMISSALS, frame_of(lake.spark, DISMISSALS, rows), None)
    return groups


def replay_of(spark: SparkSession, source: Source, asked: Asked) -> Replay | None:
    """The run that reads the landed files of the selected open records again; None if there are no such files.

    Raises:
        ParameterError: `asked.file` is no file with an open record.
    """
    lake = SparkLake(spark)
    records = quarantined_records(spark, source, asked)
    files = {row.file for row in records.select("file").distinct().collect()}
    if asked.file is not None and not files:
        raise ParameterError(
            expected=f"a file of {source.name} with open records in {VIEW}",
            found=repr(asked.file),
            consequence="nothing was run",
            next_step=f"`tidemark quarantine list {source.name}` names them",
        )
    if not files:
        return None
    versions_by_path, current_frontiers = versions(lake, source), frontiers.load(lake, source)
    drops = {
        path: versions_by_path[path].seq_no
        for path in files
        if path in versions_by_path and versions_by_path[path].kind != RETRACTED
    }
    drops = {path: n for path, n in drops.items() if current_frontiers.has_landed(range(n, n + 1))}
    return Replay(range(min(drops.values()), max(drops.values()) + 1), frozenset(drops)) if drops else None
