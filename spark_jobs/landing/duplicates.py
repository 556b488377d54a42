"""Of all readable rows with one delta_id the one with the least row_id counts; the others are duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Resolved:
    """Read rows with `counted_row_id` (null: the row itself counts) and `conflict`."""

    all: DataFrame

    @property
    def counted(self) -> DataFrame:
        """The rows that land in chunks."""
        return self.all.where("rule IS NULL AND counted_row_id IS NULL")

    @property
    def duplicates(self) -> DataFrame:
        """The rows that another one stands for, as `bronze.duplicates` keeps them."""
        return self.all.where("counted_row_id IS NOT NULL").select(
            "seq_no", "file", "line", "row_id", "delta_id", "counted_row_id", "conflict"
        )


def resolve(lake: Lake, source: Source, read: DataFrame) -> Resolved:
    """Tell the rows that count from their duplicates, among those read and those that landed before.

    A source without a declared `delta_id` has no duplicates: each row is a delta of its own.
    """
    if source.delta_id is None:
        nothing = {"counted_row_id": F.lit(None).cast("bigint"), "conflict": F.lit(None).cast("boolean")}
        return Resolved(read.withColumns(nothing))
    values = F.xxhash64(F.to_json(F.struct(*[f"c_{c}" for c in source.columns])))
    earlier = (
        lake.read(updates(source))
        .groupBy("delta_id")
        .agg(F.min("row_id").alias("earlier_row_id"), F.min_by(values, "row_id").alias("earlier_values"))
    )
    by_delta = Window.partitionBy("delta_id").orderBy("row_id")
    joined = read.withColumn("values", values).join(earlier, "delta_id", "left")
    first = F.when(F.col("rule").isNull(), F.first("row_id").over(by_delta))
    known = joined.withColumns({"first_row_id": first, "first_values": F.first("values").over(by_delta)})
    stands_for = F.coalesce("earlier_row_id", F.when(F.col("first_row_id") != F.col("row_id"), F.col("first_row_id")))
    is_duplicate = F.col("rule").isNull() & F.col("delta_id").isNotNull()
    return Resolved(
        known.withColumns(
            {
                "counted_row_id": F.when(is_duplicate, stands_for),
                "conflict": F.when(is_duplicate, F.coalesce("earlier_values", "first_values") != F.col("values")),
            }
        )
    )
