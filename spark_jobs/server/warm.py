"""The first work of a fresh lake server, so that a user's first query does not pay for it.

It loads what every job uses: Delta's writer and reader, a shuffle, a Python worker with Arrow and this package. It
leaves nothing behind and changes no table.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spark_jobs.config import Settings, load_settings

if TYPE_CHECKING:
    import pyarrow as pa


def warm(settings: Settings) -> None:
    """Do a small job of each kind through Spark Connect; about 8 s on a fresh server, 1 s on a warm one.

    Raises:
        ServerUnreachable: the lake server does not answer.
    """
    from spark_jobs.session import open_session

    folder = settings.home / "tmp" / "warm"
    spark = open_session(settings.model_copy(update={"spark": "connect"}), "tidemark-warm")
    try:
        numbers = spark.range(1000).selectExpr("id", "id % 7 AS k").mapInArrow(_unchanged, "id BIGINT, k BIGINT")
        numbers.write.format("delta").mode("overwrite").save(str(folder))
        spark.read.format("delta").load(str(folder)).groupBy("k").count().collect()
        spark.sql("SHOW DATABASES").collect()
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker runs; that it is found by its module's name shows that workers import this package."""
    yield from batches


if __name__ == "__main__":
    warm(load_settings())
    sys.exit(0)
