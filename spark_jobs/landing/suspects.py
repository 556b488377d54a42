"""Which delta_ids may be contested: those that a new row may share with another one, new or landed.

Next to none are, on most days, and to find that out takes no exchange of rows: new rows are compared by hashes of 64
bits, and of what has landed the delta_ids alone are read, and let through a Bloom filter of the new ones. Only rows of
the delta_ids that are left are brought together and compared by what they say (`counting.contest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_jobs.kernels.identities import BloomFilter, Hashes, hashes_of, repeated
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.reader import MOST_TASKS
from spark_jobs.sources import Source
from spark_jobs.storage.chain_files import DeltaFiles, delta_files
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_BYTES = 128 << 20
"""Bytes of chunk files whose delta_ids, some fifth of them, this process reads by itself; more are read in tasks."""

_DELTA_IDS = pa.schema([("delta_ids", pa.list_(pa.string()))])


def suspects(lake: Lake, source: Source, blocks: Blocks, first: Hashes) -> Hashes:
    """Hashes of the delta_ids that several rows may carry, at least one of them new; `first` are the new rows' hashes
    in the first range. Each contested delta_id's hash is among them."""
    files = delta_files(lake.spark, chunks(source))
    shared = []
    for number in range(blocks.hash_ranges):
        new = blocks.hashes(number) if number else first
        # where Spark alone can read what landed, all new ones are suspected
        shared += [new] if files is None else [repeated(new), _landed(lake.spark, files, new)]
    return np.unique(np.concatenate(shared))


def _landed(spark: SparkSession, files: DeltaFiles, new: Hashes) -> Hashes:
    """Those of the new hashes that a landed row has."""
    if not new.size:
        return new
    wanted = BloomFilter.of(new)
    paths = [unquote(path) for path in files.files["path"].to_pylist()]
    if (pc.sum(files.files["size_bytes"]).as_py() or 0) <= OWN_BYTES:
        passing = list(_passing(files, paths, wanted))
    else:
        scan = partial(_scan, files=replace(files, files=files.files.slice(0, 0)), paths=paths, wanted=wanted)
        listed = spark.range(0, len(paths), 1, min(len(paths), MOST_TASKS))
        parts = listed.mapInArrow(scan, "hashes BINARY").toArrow()["hashes"].to_pylist()
        passing = [np.frombuffer(part, np.uint64) for part in parts]
    return np.intersect1d(new, np.concatenate(passing)) if passing else new[:0]


def _scan(
    batches: Iterable[pa.RecordBatch], *, files: DeltaFiles, paths: Sequence[str], wanted: BloomFilter
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        own = [paths[place] for place in batch.column("id").to_pylist()]
        for hashes in _passing(files, own, wanted):
            yield pa.record_batch({"hashes": pa.array([hashes.tobytes()], pa.binary())})


def _passing(files: DeltaFiles, paths: Sequence[str], wanted: BloomFilter) -> Iterator[Hashes]:
    """The hashes of delta_ids in these files that pass the filter."""
    landed = ds.dataset(list(paths), schema=_DELTA_IDS, format="parquet", filesystem=files.file_system())
    for batch in landed.to_batches():
        hashes = hashes_of(batch.column("delta_ids").flatten().drop_null())
        passing = hashes[wanted.passing(hashes)]
        if passing.size:
            yield passing
