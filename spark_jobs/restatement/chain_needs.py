"""Which published segments and states a run of chains works on: those of the entities that its rows touch, from the
earliest of these rows on, and what age and retention ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.deltas.frontiers import ALWAYS, STILL_KNOWN, Frontiers
from spark_jobs.kernels.measures.hashing import hashes
from spark_jobs.kernels.plain import Flags, Ints, numbers
from spark_jobs.storage.data_files import StoredRows

NEEDED_COLUMNS = ("entity", "end_time", "settled_end", "ages_from")
"""Columns of segments by which they are told."""


@dataclass(frozen=True)
class Touched:
    """The entities that rows touch, by hashes that ascend, with the event time of each one's earliest row; and bounds
    over all of them. An entity with the hash of another counts as touched, too: a worker leaves it out."""

    hashes: npt.NDArray[np.uint64]
    least: Ints
    first: str
    last: str

    def least_of(self, entities: pa.ChunkedArray) -> tuple[Flags, Ints]:
        """Per entity whether it is touched, and from which event time on."""
        hashed = hashes([entities])
        place = np.minimum(np.searchsorted(self.hashes, hashed), self.hashes.size - 1)
        return self.hashes[place] == hashed, self.least[place]

    def in_range(self) -> pc.Expression:
        """Whether an entity may be one of them, by which files are skipped."""
        return (pc.field("entity") >= self.first) & (pc.field("entity") <= self.last)


def touched_entities(rows: StoredRows) -> Touched | None:
    """Which entities the rows (`entity`, `event_time`) touch; None for no row."""
    least_times = [_least(table) for table in rows.tables()]
    if not least_times:
        return None
    least = _least(pa.concat_tables(least_times))
    hashed = hashes([least["entity"]])
    order = np.argsort(hashed, kind="stable")
    first, last = pc.min_max(least["entity"]).as_py().values()
    return Touched(hashed[order], numbers(least["event_time"])[order], first, last)


def _least(rows: pa.Table) -> pa.Table:
    least = rows.group_by("entity", use_threads=False).aggregate([("event_time", "min")])
    return least.rename_columns({"event_time_min": "event_time"})


@dataclass(frozen=True)
class Needs:
    """What a run reads of what is published.

    Args:
        touched: the entities of its rows.
        frontiers: what retention has moved.
        whole: whether all segments of a touched entity are reached: a parent may stand anywhere before its child.
        oldest: see `oldest_age`.
    """

    touched: Touched
    frontiers: Frontiers
    whole: bool
    oldest: int | None

    def segments_where(self) -> pc.Expression:
        """Whether a segment, live or closing, may be needed: by columns with statistics."""
        end = pc.field("end_time")
        needed = self.touched.in_range()
        if not self.whole:
            needed = needed & (end.is_null() | (end >= int(self.touched.least.min())))
        if self._retains:
            settled = pc.field("settled_end").is_null() | (pc.field("settled_end") <= self.frontiers.since)
            needed = needed | ((end < self.frontiers.horizon) & settled)
        return needed if self.oldest is None else needed | (pc.field("ages_from") < self.oldest)

    def segments(self, table: pa.Table) -> Flags:
        """Which segments (`NEEDED_COLUMNS`) are needed."""
        touched, least = self.touched.least_of(table["entity"])
        end = numbers(table["end_time"], null=STILL_KNOWN)
        needed = touched if self.whole else touched & (end >= least)
        if self._retains:
            settled = numbers(table["settled_end"], null=ALWAYS) <= self.frontiers.since
            needed = needed | ((end < self.frontiers.horizon) & settled)
        if self.oldest is None:
            return needed
        return needed | (numbers(table["ages_from"], null=STILL_KNOWN) < self.oldest)

    def states(self, table: pa.Table) -> Flags:
        """Which states (`entity`) are needed."""
        return self.touched.least_of(table["entity"])[0]

    @property
    def _retains(self) -> bool:
        return self.frontiers.since > ALWAYS
