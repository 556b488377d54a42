"""The published rows of a history table, as a restatement reads them in one scan. Closed rows are dropped later, where
they meet their closing rows.

The view that users read joins a table with itself and with the publication, which is three scans. A restatement has
the publication already, and brings all rows of a key together anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.restatement.touched import at, instant
from spark_jobs.storage.coordination.publication import Publication, visible, visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import FrameLake, TableReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def published_rows(lake: FrameLake, table: Table, publication: Publication) -> DataFrame:
    """The published live rows and the closing rows that end some of them. `comparison.without_closed` drops a closing
    row and the row that it ends."""
    published = at(publication.published_us)
    # each part is on columns of one sort, partition or data: from a mixed part Spark makes filters for which Delta has
    # not listed the files yet, so that it lists them again
    eras = F.col("era").isin(LIVE, CLOSING)
    opened = (F.col("era") == CLOSING) | (F.col("known_from") < published)
    closed = (F.col("era") == LIVE) | (F.col("known_to") < published)
    return lake.read(table).where(eras & opened & closed & visible(publication))


def published_files(
    lake: TableReader,
    table: Table,
    publication: Publication,
    columns: Sequence[str],
    where: pc.Expression | None = None,
    partitions: Mapping[str, Sequence[str]] | None = None,
) -> StoredRows:
    """The rows of `published_rows` that meet `where`, as pyarrow reads them. `partitions`: the wanted values of further
    partition columns, beside `era`."""
    era, published = pc.field("era"), instant(publication.published_us)
    opened = (era == CLOSING) | (pc.field("known_from") < published)
    closed = (era == LIVE) | (pc.field("known_to") < published)
    is_visible = opened & closed & visible_rows(publication)
    return lake.stored(
        table,
        columns,
        is_visible if where is None else is_visible & where,
        {"era": [LIVE, CLOSING], **(partitions or {})},
    )
