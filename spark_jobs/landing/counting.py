"""Duplicates: of all readable rows with one delta_id, one counts, and the others are duplicates. It is the one with the
least row_id. With `duplicates: last` it is the one with the greatest sequence and, of those, the greatest row_id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.hashes import BloomFilter, Hashes
from spark_jobs.engine.records import COLUMN_PREFIX
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.counted import DUPLICATE, IS_COUNTED, counted_rows, identities, stories
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.row_json import as_json
from spark_jobs.storage.lakes.lake import FrameLake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Contest:
    """The delta_ids that several rows carry, among new rows and rows that count already.

    `ids`: `delta_id`, `least_new` (least row id of the new rows), `landed` (row id that counts now, or null) and
    `least`, the least of both.
    """

    ids: DataFrame

    def totals(self) -> tuple[int, int]:
        """The number of contested delta_ids, and the number of those in which a new row precedes the row
        that counts."""
        goes_before = F.count_if(F.col("least_new") < F.col("landed"))
        total = self.ids.agg(F.count(F.lit(1)).alias("n"), goes_before.alias("displacing")).collect()[0]
        return total.n, total.displacing


def contest(lake: FrameLake, source: Source, blocks: Blocks, suspected: Hashes) -> Contest:
    """Compare the rows whose delta_ids have the hashes `suspected`: the new rows with each other and with those that
    count."""
    wanted = BloomFilter.of(suspected)
    # one exchange for two groupings: by row, then by delta_id
    new = blocks.identities(wanted).withColumns({"is_new": F.lit(True), **_absent("diff", "landing")})
    landed = identities(lake, source, wanted).withColumn("is_new", F.lit(False))
    both = new.unionByName(landed).repartition("delta_id")
    rows = both.groupBy("delta_id", "row_id").agg(F.max("is_new").alias("is_new"), *stories())
    new_row, landed_row = F.when(F.col("is_new"), F.col("row_id")), F.when(F.expr(IS_COUNTED), F.col("row_id"))
    counts = (F.min(new_row).alias("least_new"), F.count(new_row).alias("n"), F.min(landed_row).alias("landed"))
    ids = rows.groupBy("delta_id").agg(*counts)
    several = ids.where("n > 1 OR (n > 0 AND landed IS NOT NULL)").drop("n")
    return Contest(several.withColumn("least", F.least("least_new", "landed")))


def _absent(*columns: str) -> dict[str, Column]:
    return {column: F.lit(None).cast("bigint") for column in columns}


def counted_row(new: DataFrame, contested: DataFrame) -> DataFrame:
    """New rows with `counted_row_id`: the row that counts in their place, null for rows that count themselves."""
    least = contested.select("delta_id", "least")
    counted_id = F.when(F.col("least") != F.col("row_id"), F.col("least"))
    return new.join(least, "delta_id", "left").withColumn("counted_row_id", counted_id).drop("least")


def with_conflict(lake: FrameLake, source: Source, duplicates: DataFrame, new: DataFrame) -> DataFrame:
    """The duplicates with a column `conflict`: true if a row differs in a value from the row that counts. That row is
    one of `new`, or has landed before."""
    wanted = duplicates.select(F.col("counted_row_id").alias("row_id")).distinct()
    counting = new.join(wanted, "row_id", "left_semi").select("row_id", _values(source).alias("theirs"))
    landed_rows = counted_rows(lake, source).join(wanted, "row_id", "left_semi")
    theirs = counting.unionByName(landed_rows.select("row_id", _values(source).alias("theirs")))
    theirs = theirs.withColumnRenamed("row_id", "counted_row_id")
    compared = duplicates.join(theirs, "counted_row_id", "left")
    return compared.withColumn("conflict", _values(source) != F.col("theirs")).drop("theirs")


def resolve(source: Source, rows: DataFrame) -> DataFrame:
    """All given rows, with `counted_row_id` and `conflict`. Both are null in a row that counts for its delta_id."""
    if source.delta_id is None:
        nothing = {"counted_row_id": F.lit(None).cast("bigint"), "conflict": F.lit(None).cast("boolean")}
        return rows.withColumns(nothing)
    by_delta = Window.partitionBy("delta_id").orderBy(*_counting_first(source))
    firsts = {"counts": F.first("row_id").over(by_delta), "theirs": F.first("own").over(by_delta)}
    compared = rows.withColumn("own", _values(source)).withColumns(firsts)
    displaced = F.col("counts") != F.col("row_id")
    conflict = F.when(displaced, F.col("own") != F.col("theirs"))
    judged = compared.withColumns({"counted_row_id": F.when(displaced, F.col("counts")), "conflict": conflict})
    return judged.drop("counts", "own", "theirs")


def _counting_first(source: Source) -> list[Column]:
    """The order of rows with one delta_id, in which the first one counts. Texts compare byte by byte, as in
    `sequences`."""
    if source.duplicates == "first":
        return [F.col("row_id").asc()]
    return [F.col(f"{COLUMN_PREFIX}{column}").desc_nulls_last() for column in source.sequence] + [
        F.col("row_id").desc()
    ]


def as_duplicates(source: Source, rows: DataFrame) -> DataFrame:
    """Rows with `file`, `line`, `counted_row_id` and `conflict`, in the columns of `counted.DUPLICATE`."""
    return rows.withColumn("row", as_json(source)).select(*DUPLICATE)


def _values(source: Source) -> Column:
    """A hash of the values of a row's columns."""
    return F.xxhash64(as_json(source, COLUMN_PREFIX))
