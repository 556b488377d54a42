"""Which delta_ids may be contested: those that a new row may share with another one, new or landed.

Next to none are, on most days, and to find that out takes no exchange of rows: new rows are compared by hashes of 64
bits, and of what has landed the delta_ids alone are read, and let through a Bloom filter of the new ones. Only rows of
the delta_ids that are left are brought together and compared by what they say (`counting.contest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_jobs.kernels.identities import BloomFilter, Hashes, hashes_of, repeated
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.reader import MOST_TASKS
from spark_jobs.sources import Source
from spark_jobs.storage.data_files import StoredRows
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_HERE = 256 << 20
"""Bytes of chunks, a fifth or less of them delta_ids, that this process goes through itself; more are read in tasks."""


def suspects(lake: Lake, source: Source, blocks: Blocks, first: Hashes) -> Hashes:
    """Hashes of the delta_ids that several rows may carry, at least one of them new; `first` are the new rows' hashes
    in the first range. Each contested delta_id's hash is among them."""
    landed = lake.stored(chunks(source), ["delta_ids"])
    shared = []
    for number in range(blocks.hash_ranges):
        new = blocks.hashes(number) if number else first
        shared += [repeated(new), _landed(lake.spark, landed, new)]
    return np.unique(np.concatenate(shared))


def _landed(spark: SparkSession, landed: StoredRows, new: Hashes) -> Hashes:
    """Those of the new hashes that a landed row has."""
    if not new.size or not landed.fragments:
        return new[:0]
    wanted = BloomFilter.of(new)
    if landed.n_bytes <= BYTES_HERE:
        passing = list(_passing(landed, wanted))
    else:
        pieces = landed.split(max(landed.n_rows // MOST_TASKS, 1))
        scan = partial(_scan, pieces=pieces, wanted=wanted)
        parts = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(scan, "hashes BINARY").toArrow()["hashes"]
        passing = [np.frombuffer(part, np.uint64) for part in parts.to_pylist()]
    return np.intersect1d(new, np.concatenate([new[:0], *passing]))


def _scan(
    batches: Iterable[pa.RecordBatch], *, pieces: Sequence[StoredRows], wanted: BloomFilter
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            for hashes in _passing(pieces[place], wanted):
                yield pa.record_batch({"hashes": pa.array([hashes.tobytes()], pa.binary())})


def _passing(landed: StoredRows, wanted: BloomFilter) -> Iterator[Hashes]:
    """The hashes of delta_ids in these files that pass the filter."""
    for table in landed.tables():
        for delta_ids in table["delta_ids"].chunks:
            hashes = hashes_of(delta_ids.flatten().drop_null())
            passing = hashes[wanted.passing(hashes)]
            if passing.size:
                yield passing
