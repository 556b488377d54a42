"""The chunks of one entity in the table of a `DeltaChunkStore`, each chunk a part of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks.part_reader import ALL_TIMES
from spark_jobs.engine.chunks.stored import StoredLayout
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import TableReader

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoredParts:
    """The contract `engine.chunks.part_reader.EntityParts`. `rows`: the chunks of the entity, in one version of the
    table; `firsts`: the least row id of each, which identifies it."""

    rows: StoredRows
    firsts: Ints
    least: Ints
    greatest: Ints

    def read(self, numbers: Ints, columns: Sequence[str]) -> pa.Table:
        """The chunks of these numbers, with these columns."""
        wanted = pc.field("first_row_id").isin(pa.array(self.firsts[numbers]))
        where = wanted if self.rows.where is None else self.rows.where & wanted
        return replace(self.rows, where=where).with_columns(columns).whole()


def stored_parts(
    lake: TableReader, table: Table, layout: StoredLayout, entity: str, timeline: str, lo: int, hi: int
) -> StoredParts:
    """The chunks of an entity that have times from `lo` to `hi` on a timeline, or are on no timeline."""
    static = pc.scalar(True)
    for name in layout.timelines:
        static &= pc.field(f"min_{name}").is_null()
    least, greatest = f"min_{timeline}", f"max_{timeline}"
    there = pc.scalar(False)
    if timeline in layout.timelines:
        there = (pc.field(least) <= hi) & (pc.field(greatest) >= lo)
    where = (pc.field("entity") == entity) & (there | static)
    bounds = [least, greatest] if timeline in layout.timelines else []
    rows = lake.stored(table, ["first_row_id", *bounds], where)
    listed = rows.whole()
    firsts = listed["first_row_id"].to_numpy()
    ends = [
        pc.fill_null(listed[name], of_all).to_numpy() if bounds else np.full(firsts.size, of_all)
        for name, of_all in zip((least, greatest), ALL_TIMES, strict=True)
    ]
    return StoredParts(rows, firsts, *ends)
