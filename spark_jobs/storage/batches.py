"""How rows are cut into the Arrow batches that Spark hands to Python workers.

Spark ends a batch after `spark.sql.execution.arrow.maxRecordsPerBatch` rows (10,000) or, if earlier, once it holds
`maxBytesPerBatch` (64 MiB). To know the latter it adds up the buffers of all columns after every row, which takes
longer than to write a row of a dozen numbers. The greatest number it takes for "no such bound", and then it does not
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNBOUNDED = str((1 << 31) - 1)


MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_ROWS = 10_000
"""Spark's own number of rows of a batch."""
BATCH_BYTES = 1 << 26
"""Spark's own bound of a batch's bytes."""


@contextmanager
def cut_by_rows(spark: SparkSession, rows_are_small: bool, *, row_bytes: int = 0) -> Iterator[None]:
    """Let what runs in the block cut batches by their rows alone, if these are small: a few numbers and short texts.

    Args:
        spark: the session.
        rows_are_small: whether they are; else batches are cut as Spark does.
        row_bytes: the bytes that a row takes beside them, in lists of known length: as many rows make a batch as stay
            within Spark's own bound, ten thousand at most.
    """
    if not rows_are_small:
        yield
        return
    rows = min(BATCH_ROWS, max(BATCH_BYTES // max(row_bytes, 1), 1))
    wanted = {MAX_BYTES: UNBOUNDED} | ({MAX_ROWS: str(rows)} if rows < BATCH_ROWS else {})
    before = {setting: str(spark.conf.get(setting)) for setting in wanted}
    for setting, value in wanted.items():
        spark.conf.set(setting, value)
    try:
        yield
    finally:
        for setting, value in before.items():
            spark.conf.set(setting, value)
