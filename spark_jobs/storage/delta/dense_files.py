"""The layout of files of chunks, which lets a read of one entity take in few pages.

A chunk is one row with long arrays. pyarrow reads whole row groups, Spark finds rows by the index of a column's pages,
and Parquet's own layout has 20,000 rows in a page. So a file of chunks would be one row group of one page, and reading
one chunk would read the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_jobs.session_settings import session_settings
from spark_jobs.storage.delta.written_files import Layout
from spark_jobs.storage.descriptions.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE_VALUES = 32_768
"""Values of an array column in one page. A page is the smallest unit of reading (some 50 KB of a column of
measurements) and of compression. With 8,000 values a table of ten columns was a fifth larger than with Parquet's own
pages."""

GROUP_PAGES = 2
"""Pages of a column in a row group, which is what pyarrow reads of a file for an entity."""

PARQUET_ROWS = 20_000
"""Parquet's own limit of rows in a page."""

_LAYOUT = {
    # the second version of the format stores integers as differences
    "parquet.writer.version": "PARQUET_2_0",
    # Parquet keeps no bounds of INT96, Spark's own form of a timestamp
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

WRITER_OPTIONS = {"compression": "zstd"}
"""Options of the Delta writer: chunks of measurements were a fifth smaller with zstd than with snappy, Delta's
default."""


def page_rows(rows: int, chunks: int) -> int:
    """The number of chunks in a page, for `rows` rows in `chunks` chunks."""
    return min(max(PAGE_VALUES * chunks // max(rows, 1), 1), PARQUET_ROWS)


_STEADY = ("ARRAY<BIGINT>", "ARRAY<TIMESTAMP>")
"""Types that are stored without a dictionary. Row ids, times and counters move by small steps, and a step takes fewer
bits than an index into a dictionary of all their values."""


def dense_layout(rows_in_page: int) -> Layout:
    """The layout of files that pyarrow writes; see the module."""
    return Layout("zstd", rows_a_group=GROUP_PAGES * rows_in_page, rows_a_page=rows_in_page)


@contextmanager
def dense_files(spark: SparkSession, table: Table, rows_in_page: int) -> Iterator[None]:
    """A context in which the session writes files into `table` whose pages have at most `rows_in_page` rows, and whose
    row groups have the rows of `GROUP_PAGES`; see the module."""
    steady = [column.name for column in table.columns if column.type in _STEADY]
    no_dictionary = {f"parquet.enable.dictionary#{column}.list.element": "false" for column in steady}
    limits = {"page": rows_in_page, "block": GROUP_PAGES * rows_in_page}
    wanted = {**_LAYOUT, **no_dictionary} | {f"parquet.{of}.row.count.limit": str(n) for of, n in limits.items()}
    with session_settings(spark, wanted):
        yield
