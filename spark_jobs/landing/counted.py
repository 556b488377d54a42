"""The rows and records of a source that count in bronze now: rows in chunks, rows in duplicates, records in quarantine.

All of them are appended: a row that went is there a second time with diff -1, under the landing that took it back. A
row in chunks counts iff no landing after the one that brought it took its id back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.hashes import BloomFilter, hashes_of
from spark_jobs.landing import ledger
from spark_jobs.landing.blocks import IDENTITY
from spark_jobs.landing.counted_here import open_rows
from spark_jobs.landing.pending import chunk_rows
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, LANDING_OF_ROWS, QUARANTINE, chunks, row_columns
from spark_jobs.storage.lakes.lake import FrameLake, Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REJECT = ("seq_no", "file", "line", "rule", "reason", "raw", "last_line", "records")
"""The columns that identify a rejected record, or a range of them."""
DUPLICATE = ("seq_no", "file", "line", "row_id", "delta_id", "counted_row_id", "conflict", "row")
"""The columns that identify a duplicate."""


def counted_rows(lake: FrameLake, source: Source, condition: Column | None = None) -> DataFrame:
    """The rows in chunks that count, with the columns of `tables.row_columns`. `condition`, if given, selects rows; it
    must depend on the row alone."""
    rows = chunk_rows(lake, source).where(ledger.is_counted(lake, source))
    return _not_taken_back(rows if condition is None else rows.where(condition)).select(
        *[column.name for column in row_columns(source)]
    )


def identities(lake: FrameLake, source: Source, wanted: BloomFilter) -> DataFrame:
    """`row_id` and `delta_id` of every row that came to or left chunks, with `diff` and `landing`; only rows whose
    delta_ids pass the filter."""
    landed = lake.read(chunks(source)).where(ledger.is_counted(lake, source))
    landings = F.expr(LANDING_OF_ROWS).alias("landings")
    columns = landed.where("delta_ids IS NOT NULL").select("diff", "row_ids", "delta_ids", landings)
    return columns.mapInArrow(partial(_select_passing, wanted=wanted), f"diff BIGINT, landing BIGINT, {IDENTITY}")


def _select_passing(batches: Iterable[pa.RecordBatch], *, wanted: BloomFilter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lists = batch.column("delta_ids")
        chunk, texts = pc.list_parent_indices(lists), lists.flatten()
        present = pc.is_valid(texts)
        passing = pa.array(np.flatnonzero(present)[wanted.may_contain(hashes_of(texts.filter(present)))])
        columns = {
            "diff": batch.column("diff").take(chunk.take(passing)),
            "landing": batch.column("landings").flatten().take(passing),
            "row_id": batch.column("row_ids").flatten().take(passing),
            "delta_id": texts.take(passing),
        }
        yield pa.record_batch(columns)


IS_COUNTED = "came IS NOT NULL AND (went IS NULL OR came >= went)"
"""SQL condition: a row counts, by its `stories`. It agrees with `_not_taken_back`, in one pass over the table."""


def stories() -> list[Column]:
    """Aggregates over all `identities` of a row: the last landings by which it `came` and `went`."""
    of = {"came": "diff > 0", "went": "diff < 0"}
    return [F.max(F.when(F.expr(sign), F.col("landing"))).alias(what) for what, sign in of.items()]


def _not_taken_back(rows: DataFrame) -> DataFrame:
    gone = rows.where("diff < 0").groupBy(F.col("row_id").alias("gone_id")).agg(F.max("landing").alias("gone_by"))
    later = (F.col("row_id") == F.col("gone_id")) & (F.col("landing") < F.col("gone_by"))
    return rows.where("diff > 0").join(gone, later, "left_anti")


def present_duplicates(lake: FrameLake, source: Source) -> DataFrame:
    """The rows in duplicates now, with the columns `DUPLICATE`."""
    return _open(lake, source, DUPLICATES, DUPLICATE)


def present_rejects(lake: FrameLake, source: Source) -> DataFrame:
    """The records in quarantine now, with the columns `REJECT`."""
    return _open(lake, source, QUARANTINE, REJECT)


def rejects_of_drops(lake: Lake, source: Source, drops: Iterable[int], rules: Iterable[str]) -> pa.Table:
    """The records of these drops that are in quarantine for one of these rules, with the columns `REJECT`. Read without
    Spark."""
    of_drops = pc.field("seq_no").isin(pa.array(list(drops), pa.int64()))
    of_rules = pc.field("rule").isin(pa.array(list(rules), pa.string()))
    in_order = [(column, "ascending") for column in ("seq_no", "file", "line")]
    return open_rows(lake, source, QUARANTINE, REJECT, of_drops & of_rules).sort_by(in_order)


def _open(lake: FrameLake, source: Source, table: Table, identity: tuple[str, ...]) -> DataFrame:
    rows = lake.read(table).where(F.col("source") == source.name)
    counted = rows.where(ledger.is_counted(lake, source))
    return counted.groupBy(*identity).agg(F.sum("diff").alias("diff")).where("diff > 0").drop("diff")
