"""Chains in files that tasks read by themselves, a range of entities at a time.

Spark handles the lists of a segment element by element: when it reads a file, in a shuffle, and on the way to Python. A
task that reads the segments of its entities from the files gets them as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from spark_jobs.engine.deltas.frontiers import UNMOVED, Frontiers
from spark_jobs.engine.deltas.mapping import Meaning
from spark_jobs.engine.spark.checkpoints.frames import ChainFrame, columns_needed
from spark_jobs.storage.delta.chain_files import rows_between, small_row_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_chains(spark: SparkSession, chains: ChainFrame, folder: str) -> None:
    """Write chains as Parquet files in an empty folder, ordered by entity, for `read_chains`."""
    ordered = chains.segments.repartitionByRange("entity").sortWithinPartitions("entity", "start_time", "start_row")
    with small_row_groups(spark):
        ordered.write.option("compression", "zstd").parquet(folder)


def read_chains(spark: SparkSession, folder: str, meaning: Meaning, frontiers: Frontiers = UNMOVED) -> ChainFrame:
    """The chains that `write_chains` wrote; `meaning` and `frontiers` are those of the chains."""
    segments = spark.read.parquet(folder)
    places = [urlsplit(file) for file in segments.inputFiles()]
    if any(place.scheme not in ("", "file") for place in places):
        return ChainFrame(segments, meaning, frontiers)
    paths = tuple(unquote(place.path) for place in places)
    return ChainFrame(segments, meaning, frontiers, ParquetSegments(paths, tuple(columns_needed(meaning))))


@dataclass(frozen=True)
class ParquetSegments:
    """Packed segments in Parquet files of the local file system."""

    paths: tuple[str, ...]
    columns: Sequence[str]

    def between(self, least: str, greatest: str) -> pa.Table:
        """See `SegmentFiles`."""
        tables = []
        for path in self.paths:
            with fs.LocalFileSystem().open_input_file(path) as opened:
                tables.append(rows_between(opened, least, greatest, self.columns))
        return pa.concat_tables(tables)
