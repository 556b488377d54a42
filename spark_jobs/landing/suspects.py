"""Which delta_ids may be contested: those that a new row may share with another one, new or landed.

Next to none are, on most days, and to find that out takes no exchange of rows: new rows are compared by hashes of 64
bits, and of what has landed the delta_ids alone are read, and let through a Bloom filter of the new ones. Only rows of
the delta_ids that are left are brought together and compared by what they say (`counting.contest`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from spark_jobs.exchange import answers
from spark_jobs.kernels.identities import BloomFilter, Hashes, hashes_of
from spark_jobs.kernels.plain import repeated
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
    pieces = landed.split(max(landed.n_rows // MOST_TASKS, 1))
    suspects = answers(spark, pieces, partial(_passing, wanted=wanted), here=landed.n_bytes <= BYTES_HERE)
    passing = [np.frombuffer(part, np.uint64) for part in suspects]
    of_landed = np.concatenate([new[:0], *passing])
    places = np.minimum(np.searchsorted(new, of_landed), new.size - 1)
    return np.unique(of_landed[new[places] == of_landed])


def _passing(landed: StoredRows, *, wanted: BloomFilter) -> bytes:
    """The hashes of delta_ids in these files that pass the filter."""
    passing = []
    for table in landed.tables():
        for delta_ids in table["delta_ids"].chunks:
            hashes = hashes_of(delta_ids.flatten().drop_null())
            passing.append(hashes[wanted.passing(hashes)].tobytes())
    return b"".join(passing)
