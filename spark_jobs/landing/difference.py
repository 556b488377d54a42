"""Landing as a difference between the rows that count and the rows that should count.

A changed file, a retraction, another parse rule, a replay, and a row that should have counted first are landed so.

It concerns the rows of files that are read anew or taken back, the new rows, and all rows that share a delta_id with
one of them. Of these, the rows that count now get the diff -1,
and the rows that should count get the diff +1. A row that is in both gets none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.landing.counted import (
    DUPLICATE,
    REJECT,
    counted_rows,
    present_duplicates,
    present_rejects,
)
from spark_jobs.landing.counting import as_duplicates, resolve
from spark_jobs.landing.ledger import LANDED, RETRACTED, UNREADABLE, Version
from spark_jobs.landing.places import Places
from spark_jobs.landing.survey import Survey
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.row_json import as_json, rows_of_json
from spark_jobs.storage.descriptions.tables import row_columns
from spark_jobs.storage.lakes.lake import FrameLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPLAYED, REPLACED, GONE = "replayed", "replaced", "gone"


@dataclass(frozen=True)
class LandingDifference:
    """The rows to append so that the desired rows count in bronze.

    `rows`: columns of `tables.row_columns` and `diff`. `duplicates`: `counted.DUPLICATE` and `diff`. `rejects`:
    `counted.REJECT`, `diff` and `ended`. `after`: the versions of all files of the source after the landing, by path.
    `places`: the row ids of these files.
    """

    rows: DataFrame
    duplicates: DataFrame
    rejects: DataFrame
    after: Mapping[str, Version]
    places: Places


def versions_after(survey: Survey, lines: Mapping[str, int | None]) -> dict[str, Version]:
    """The versions of the files that the landing concerns. `lines`: the number of lines of each file that was read,
    None if it could not be read to its end; a file without a record is not in it."""
    versions = {}
    for file in survey.read:
        count = lines.get(file.path, 0)
        kind = UNREADABLE if count is None else LANDED
        versions[file.path] = Version.of(file, count or 0, survey.before.get(file.path), kind)
    return versions | {v.path: replace(v, kind=RETRACTED) for v in survey.retracted}


def difference(
    lake: FrameLake, source: Source, survey: Survey, read: DataFrame, before: Mapping[str, Version]
) -> LandingDifference:
    """Compare the rows that count with the rows that should count.

    `read`: the rows of the files that `survey` names, as `reader.read_files` gives them. `before`: the versions of all
    files of the source.

    Raises:
        RowIdsShared: lines of two files would have the same row ids.
    """
    ends = read.groupBy("file").agg(F.max(F.greatest("line", "last_line")).alias("lines")).collect()
    concerned = versions_after(survey, {row.file: row.lines for row in ends})
    after = {**before, **concerned}
    places = Places.of(after.values(), source)
    names = [column.name for column in row_columns(source)]
    new = read.where("rule IS NULL").select(*names)
    present = _Present.of(lake, source, new, leaving_versions(before, concerned))
    verdicts = resolve(source, present.stays(source).unionByName(new)).localCheckpoint()
    rows = _row_changes(source, present.counted.select(*names), verdicts.where("counted_row_id IS NULL").select(*names))
    hidden = places.locate(verdicts.where("counted_row_id IS NOT NULL"))
    duplicates = _net(present.duplicates.select(*DUPLICATE), as_duplicates(source, hidden))
    return LandingDifference(
        rows.localCheckpoint(),
        duplicates.localCheckpoint(),
        _rejects(lake, source, read, concerned).localCheckpoint(),
        after,
        places,
    )


def leaving_versions(before: Mapping[str, Version], concerned: Mapping[str, Version]) -> list[Version]:
    """The present versions whose rows do not stay as they are: another version, or none, takes their place."""
    stood = (before.get(path) for path, now in concerned.items() if now.kind != UNREADABLE)
    return [version for version in stood if version is not None and version.kind != RETRACTED]


@dataclass(frozen=True)
class _Present:
    """The rows that count now and that the landing concerns. `counted`: rows of chunks. `duplicates`: the columns
    `DUPLICATE`. Both have a column `leaves`, true if the file of the row leaves."""

    counted: DataFrame
    duplicates: DataFrame

    @classmethod
    def of(cls, lake: FrameLake, source: Source, new: DataFrame, leaving: list[Version]) -> _Present:
        of_files = _rows_of(lake, source, leaving).localCheckpoint()
        listed = F.broadcast(_frame(lake, "file STRING, leaves BOOLEAN", [(v.path, True) for v in leaving]))
        hidden = present_duplicates(lake, source).join(listed, "file", "left").fillna({"leaves": False})
        duplicates = hidden.localCheckpoint()
        if source.delta_id is None:
            return cls(of_files, duplicates.where("leaves"))
        shared = [frame.select("delta_id") for frame in (new, of_files, duplicates.where("leaves"))]
        ids = reduce(lambda a, b: a.unionByName(b), shared).distinct().localCheckpoint()
        own_ids = of_files.select("row_id")
        others = counted_rows(lake, source).join(ids, "delta_id", "left_semi").join(own_ids, "row_id", "left_anti")
        counted = of_files.unionByName(others.withColumn("leaves", F.lit(False))).localCheckpoint()
        return cls(counted, duplicates.join(ids, "delta_id", "left_semi").localCheckpoint())

    def stays(self, source: Source) -> DataFrame:
        """The rows that stay: columns of `tables.row_columns`."""
        names = [column.name for column in row_columns(source)]
        hidden = rows_of_json(self.duplicates, source, "leaves")
        return self.counted.select(*names, "leaves").unionByName(hidden).where("NOT leaves").select(*names)


def _rows_of(lake: FrameLake, source: Source, versions: list[Version]) -> DataFrame:
    """The rows of these files that count, with `leaves`, which is true."""
    drops = [version.seq_no for version in versions]
    near = F.col("seq_no").between(min(drops), max(drops)) if drops else F.lit(False)
    rows = Places.of(versions, source).locate(counted_rows(lake, source, near)).drop("file", "line")
    return rows.withColumn("leaves", F.lit(True))


def _rejects(lake: FrameLake, source: Source, read: DataFrame, concerned: Mapping[str, Version]) -> DataFrame:
    """The changes of rejects in files that are read or taken back. The earlier rejects of an unreadable file stay,
    except for the rejection of the whole file."""
    listed = [(p, v.kind == UNREADABLE, v.kind == RETRACTED) for p, v in concerned.items()]
    of_files = _frame(lake, "file STRING, unreadable BOOLEAN, retracted BOOLEAN", listed)
    stood = present_rejects(lake, source).join(F.broadcast(of_files), "file")
    leaving = stood.where("NOT unreadable OR line IS NULL")
    net = _net(leaving.select(*REJECT), read.where("rule IS NOT NULL").select(*REJECT))
    places = read.where("line IS NOT NULL").select("file", "line", F.col("rule").isNull().alias("good"))
    placed = net.join(places, ["file", "line"], "left").join(F.broadcast(of_files), "file", "left")
    readable = F.when(F.col("line").isNull(), ~F.col("unreadable")).otherwise(F.col("good"))
    why = (
        F.when(F.col("retracted"), RETRACTED)
        .when(readable, REPLAYED)
        .when(readable.isNotNull(), REPLACED)
        .otherwise(GONE)
    )
    return placed.withColumn("ended", F.when(F.col("diff") < 0, why)).select(*REJECT, "diff", "ended")


def _row_changes(source: Source, before: DataFrame, after: DataFrame) -> DataFrame:
    """`_net` for rows. Their texts are compared: as values, -0.0 equals 0.0 in Spark."""
    text = as_json(source).alias("text")

    def missing_rows(rows: DataFrame, others: DataFrame, diff: int) -> DataFrame:
        texts = others.select("row_id", text)
        absent = rows.withColumn("text", text).join(texts, ["row_id", "text"], "left_anti")
        return absent.select(*rows.columns, F.lit(diff).cast("bigint").alias("diff"))

    return missing_rows(before, after, -1).unionByName(missing_rows(after, before, 1))


def _net(before: DataFrame, after: DataFrame) -> DataFrame:
    """Rows that go (`diff` -1) and come (+1) between two sets of rows with the same columns."""
    both = before.withColumn("diff", F.lit(-1).cast("bigint")).unionByName(
        after.withColumn("diff", F.lit(1).cast("bigint"))
    )
    return both.groupBy(*before.columns).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _frame(lake: FrameLake, schema: str, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    return lake.spark.createDataFrame(rows, schema)
