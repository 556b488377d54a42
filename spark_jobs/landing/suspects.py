"""Suspects: the delta_ids that may be contested, since a new row may share them with another row, new or landed.

On most days hardly any delta_id is contested, and no exchange of rows is needed to find that out. New rows are compared
by hashes of 64 bits. Of the landed rows only the delta_ids are read, and passed through a Bloom filter of the new ones.
Only rows of the remaining delta_ids are brought together and compared by value (`counting.contest`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from spark_jobs.distribution import cut_pass
from spark_jobs.engine.columns import repeated_values
from spark_jobs.engine.hashes import BloomFilter, Hashes, hashes_of
from spark_jobs.exchange import answers
from spark_jobs.landing.blocks import Blocks
from spark_jobs.sources import Source
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.tables import chunks
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.threads import THREADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNKS_A_TASK = 1 << 14
"""The approximate number of chunks whose delta_ids one task reads."""


def suspects(lake: Lake, source: Source, blocks: Blocks, first: Hashes) -> Hashes:
    """The hashes of the delta_ids that several rows may carry, at least one of them new. `first`: the new rows' hashes
    in the first range. The hash of each contested delta_id is among them."""
    landed = lake.stored(chunks(source), ["delta_ids"])
    shared = []
    for number in range(blocks.hash_ranges):
        new = blocks.hashes(number) if number else first
        shared += [repeated_values(new), _landed_hashes(lake.spark, landed, new)]
    return np.unique(np.concatenate(shared))


def _landed_hashes(spark: SparkSession | None, landed: StoredRows, new: Hashes) -> Hashes:
    """The hashes in `new` that a landed row has, too."""
    if not new.size or not landed.fragments:
        return new[:0]
    wanted = BloomFilter.of(new)
    cut = cut_pass(spark, landed, CHUNKS_A_TASK)
    # a chunk has many delta_ids, so that a thread has some chunks
    pieces = landed.split(max(landed.n_rows // THREADS, 1) if cut.here else cut.rows_a_piece)
    suspects = answers(spark, pieces, partial(_passing_hashes, wanted=wanted), here=cut.here)
    passing = [np.frombuffer(part, np.uint64) for part in suspects]
    of_landed = np.concatenate([new[:0], *passing])
    places = np.minimum(np.searchsorted(new, of_landed), new.size - 1)
    return np.unique(of_landed[new[places] == of_landed])


def _passing_hashes(landed: StoredRows, *, wanted: BloomFilter) -> bytes:
    """The hashes of delta_ids in these files that pass the filter."""
    passing = []
    for table in landed.tables():
        for delta_ids in table["delta_ids"].chunks:
            hashes = hashes_of(delta_ids.flatten().drop_null())
            passing.append(hashes[wanted.may_contain(hashes)].tobytes())
    return b"".join(passing)
