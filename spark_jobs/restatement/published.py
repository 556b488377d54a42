"""What is published of a history table, as a restatement reads it: one scan, and closed rows dropped where they meet.

The view that users read joins a table with itself and with the publication, which is three scans. A restatement holds
the publication already, and brings all rows of a key together anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.restatement import CLOSING, LIVE
from spark_jobs.restatement.touched import at
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication, visible
from spark_jobs.storage.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def published_rows(lake: Lake, table: Table, publication: Publication) -> DataFrame:
    """Live rows that are published and the closing rows that end some of them (`without_closed` drops both)."""
    published = at(publication.published_us)
    # each part is on columns of one sort, partition or data: of a mixed one Spark makes filters that Delta has not
    # listed the files for, and lists them again
    eras = F.col("era").isin(LIVE, CLOSING)
    opened = (F.col("era") == CLOSING) | (F.col("known_from") < published)
    closed = (F.col("era") == LIVE) | (F.col("known_to") < published)
    return lake.read(table).where(eras & opened & closed & visible(publication))


def without_closed(rows: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The live rows that no closing row ends, of `rows` with the columns `identity`, `known_from` and `era`.

    A closing row ends the live row with equal `identity` and `known_from`. The column `era` is left out.
    """
    is_closing = pc.equal(rows.column("era"), CLOSING)
    live = rows.filter(pc.invert(is_closing)).drop_columns(["era"])
    closings = rows.filter(is_closing)
    if closings.num_rows == 0:
        return live
    same = [*identity, "known_from"]
    # only what tells rows apart goes through the join: Arrow joins no lists
    places = live.select(same).append_column("place", pa.array(range(live.num_rows), pa.int64()))
    left = places.join(closings.select(same), keys=same, join_type="left anti")
    return live.take(left.column("place"))
