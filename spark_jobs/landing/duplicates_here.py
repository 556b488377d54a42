"""Duplicates of a small landing, found in this process: the same rows that `counting` finds by a Spark job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns import Ints, numbers
from spark_jobs.engine.hashes import BloomFilter, Hashes
from spark_jobs.engine.records import COLUMN_PREFIX
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.counted_here import counted_identities, counted_rows
from spark_jobs.landing.places import Places
from spark_jobs.landing.row_text import row_texts
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.tables import row_columns
from spark_jobs.storage.lakes.lake import TableReader

NOBODY = np.iinfo(np.int64).max
"""Greater than every row id."""


@dataclass(frozen=True)
class ContestHere:
    """The new rows whose delta_ids several rows carry, among new rows and rows that count already.

    Args:
        row_ids: the ids of these new rows.
        counted: for each of them, the least id of all rows with its delta_id.
        counted_before: for each of them, the id of the row with its delta_id that counts now; NOBODY if there is none.
        delta: for each of them, a number that is equal for equal delta_ids.
    """

    row_ids: Ints
    counted: Ints
    counted_before: Ints
    delta: Ints

    def totals(self) -> tuple[int, int]:
        """The number of contested delta_ids, and the number of those in which a new row precedes the counted
        one."""
        displacing = (self.row_ids == self.counted) & (self.counted_before != NOBODY)
        return len(np.unique(self.delta)), len(np.unique(self.delta[displacing]))


def contest_here(lake: TableReader, source: Source, blocks: Blocks, suspected: Hashes) -> ContestHere:
    """Compare the rows whose delta_ids have the hashes `suspected`: the new rows with each other and with those that
    count."""
    wanted = BloomFilter.of(suspected)
    new, landed = blocks.identities_here(wanted), counted_identities(lake, source, wanted)
    both = pa.concat_tables([new.select(["delta_id"]), landed.select(["delta_id"])])
    delta_ids = both["delta_id"].combine_chunks().dictionary_encode()
    codes, ids = delta_ids.indices.to_numpy(), numbers(new["row_id"])
    of_new, of_counted = codes[: new.num_rows], codes[new.num_rows :]
    least_new, least_counted = (np.full(len(delta_ids.dictionary), NOBODY) for _ in "12")
    np.minimum.at(least_new, of_new, ids)
    np.minimum.at(least_counted, of_counted, numbers(landed["row_id"]))
    several = np.bincount(of_new, minlength=least_new.size) > 1
    contested = (several | (least_counted != NOBODY))[of_new]
    delta = of_new[contested]
    counted = np.minimum(least_new, least_counted)[delta]
    return ContestHere(ids[contested], counted, least_counted[delta], delta)


def duplicates_here(
    lake: TableReader, source: Source, blocks: Blocks, contested: ContestHere, places: Places
) -> pa.Table:
    """The new rows that do not count, since another row with their delta_id does: `counted.DUPLICATE` as columns."""
    hidden = contested.row_ids != contested.counted
    row_ids, counted = contested.row_ids[hidden], contested.counted[hidden]
    new = blocks.rows_here(source, np.concatenate((row_ids, counted)))
    landed_rows = counted_rows(lake, source, np.setdiff1d(counted, numbers(new["row_id"])))
    rows = pa.concat_tables([new, landed_rows])
    ids = numbers(rows["row_id"])
    order = np.argsort(ids, kind="stable")
    duplicates, winners = (
        rows.take(pa.array(order[np.searchsorted(ids[order], wanted)])) for wanted in (row_ids, counted)
    )
    values = [c for c in row_columns(source) if c.name.startswith(COLUMN_PREFIX)]
    differ = [
        one != other for one, other in zip(row_texts(duplicates, values), row_texts(winners, values), strict=True)
    ]
    files = places.files(row_ids)
    return pa.table(
        {
            "seq_no": duplicates["seq_no"],
            "file": pa.array([places.paths[file] for file in files.tolist()], pa.string()),
            "line": pa.array(row_ids - places.firsts[files] + 1),
            "row_id": pa.array(row_ids),
            "delta_id": duplicates["delta_id"],
            "counted_row_id": pa.array(counted),
            "conflict": pa.array(differ, pa.bool_()),
            "row": pa.array(row_texts(duplicates, row_columns(source)), pa.string()),
        }
    )
