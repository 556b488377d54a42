"""The published segments and states that a run of chains works on: those of the entities that its rows touch, from
each entity's earliest row on, and those that age and retention ask for, touched by a row or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import Flags, Ints, numbers
from spark_jobs.engine.deltas import ALWAYS, STILL_KNOWN, Frontiers
from spark_jobs.engine.hashes import hashes
from spark_jobs.storage.delta.data_files import StoredRows

NEEDED_COLUMNS = ("entity", "end_time", "settled_end", "ages_from")
"""The columns of a segment that decide if it is needed."""

NOTHING = pc.scalar(False)
"""The condition that no row meets."""


@dataclass(frozen=True)
class Touched:
    """The entities that rows touch: their hashes, ascending, and the event time of each entity's earliest row.

    `first` and `last` are the least and the greatest of the entities. An entity that has the same hash as a touched one
    counts as touched, too; a worker leaves it out.
    """

    hashes: npt.NDArray[np.uint64]
    least: Ints
    first: str
    last: str

    def least_of(self, entities: pa.ChunkedArray) -> tuple[Flags, Ints]:
        """Two arrays: True for each entity that is touched, and the event time of its earliest row."""
        hashed = hashes([entities])
        place = np.minimum(np.searchsorted(self.hashes, hashed), self.hashes.size - 1)
        return self.hashes[place] == hashed, self.least[place]

    def in_range(self) -> pc.Expression:
        """The condition that `entity` is between `first` and `last`, by which files are skipped."""
        return (pc.field("entity") >= self.first) & (pc.field("entity") <= self.last)


def touched_entities(rows: StoredRows) -> Touched | None:
    """The entities that the rows (`entity`, `event_time`) touch; None if there are no rows."""
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
    """The conditions by which a run chooses the published segments and states that it reads.

    Args:
        touched: the entities of its rows; None if it has no rows.
        frontiers: since and horizon, as retention has moved them.
        whole: True if all segments of a touched entity are needed: a parent may be anywhere before its child.
        oldest: the bound of `ages_from`, see `oldest_age`; None if age compacts nothing.
    """

    touched: Touched | None
    frontiers: Frontiers
    whole: bool
    oldest: int | None

    def segments_where(self) -> pc.Expression:
        """The condition that a segment, live or closing, may be needed; its columns have statistics."""
        end = pc.field("end_time")
        needed = self.states_where()
        if self.touched is not None and not self.whole:
            needed = needed & (end.is_null() | (end >= int(self.touched.least.min())))
        if self._retains:
            settled = pc.field("settled_end").is_null() | (pc.field("settled_end") <= self.frontiers.since)
            needed = needed | ((end < self.frontiers.horizon) & settled)
        return needed if self.oldest is None else needed | (pc.field("ages_from") < self.oldest)

    def segments(self, table: pa.Table) -> Flags:
        """True for each segment (`NEEDED_COLUMNS`) that is needed."""
        end = numbers(table["end_time"], null=STILL_KNOWN)
        needed = np.zeros(table.num_rows, np.bool_)
        if self.touched is not None:
            touched, least = self.touched.least_of(table["entity"])
            needed = touched if self.whole else touched & (end >= least)
        if self._retains:
            settled = numbers(table["settled_end"], null=ALWAYS) <= self.frontiers.since
            needed = needed | ((end < self.frontiers.horizon) & settled)
        if self.oldest is None:
            return needed
        return needed | (numbers(table["ages_from"], null=STILL_KNOWN) < self.oldest)

    def states_where(self) -> pc.Expression:
        """The condition that a state may be needed; its column has statistics."""
        return NOTHING if self.touched is None else self.touched.in_range()

    def states(self, table: pa.Table) -> Flags:
        """True for each state (`entity`) that is needed."""
        if self.touched is None:
            return np.zeros(table.num_rows, np.bool_)
        return self.touched.least_of(table["entity"])[0]

    @property
    def _retains(self) -> bool:
        return self.frontiers.since > ALWAYS
