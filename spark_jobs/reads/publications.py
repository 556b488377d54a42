"""Every publication of a source so far, derived from the history of its frontiers: the rows of `trace.publications`,
without Spark."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import BEFORE_ALL_US, Publication
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import FRONTIERS
from spark_jobs.storage.descriptions.times import EPOCH, instant
from spark_jobs.storage.lakes.lake import TableReader

TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class PublicationEntry:
    """One publication: the run that made it, the token under which that run sealed, and its frontiers.

    `published_before` and `reached_before` are the frontiers of the publication before it; 1970 for the first one. A
    publication includes the rows that landed under a smaller token.
    """

    run_id: str
    token: int
    published: datetime
    reached: datetime
    published_before: datetime
    reached_before: datetime

    @property
    def is_first(self) -> bool:
        """True if nothing of the source was published before."""
        return self.published_before == EPOCH

    @property
    def known_from(self) -> datetime:
        """The visible time that the publication's changes carry: one tick before `published`."""
        return self.published - TICK


def first_with(entries: Sequence[PublicationEntry], update: Mapping[str, Any]) -> PublicationEntry | None:
    """The first of the publications, which are the oldest first, that includes the update by its `time` and
    `event_time`; None if it is not published."""
    place = max(
        bisect_right(entries, update["time"], key=lambda entry: entry.published),
        bisect_right(entries, update["event_time"], key=lambda entry: entry.reached),
    )
    return entries[place] if place < len(entries) else None


_MOVES = pa.schema(
    [("run_id", pa.string()), ("token", pa.int64()), *((name, INSTANT) for name in ("seal", "reached", "published"))]
)
_NONE = np.iinfo(np.int64).min


def publications(lake: TableReader, source: Source, current: Publication) -> list[PublicationEntry]:
    """The publications up to `current`, oldest first."""
    moves = lake.records(FRONTIERS, pc.field("source") == source.name)
    columns = [{name: move[name] for name in _MOVES.names} for move in moves]
    return publications_of(pa.Table.from_pylist(columns, schema=_MOVES), current.published_us)


def publications_of(moves: pa.Table, newest_us: int) -> list[PublicationEntry]:
    """The publications that follow from rows of `trace.frontiers`, oldest first; `newest_us` is the `published` of now.

    Between two publications the frontiers move, and each move notes `published` as it was then. The first move to a
    seal is the one of the run that published it; later moves keep that seal. A seal only goes down where a run withdrew
    the seal of an interrupted run. Moves from before the withdrawal have a smaller token than a move with a lower seal,
    and are left out.
    """
    noted = _micros(moves["published"])
    moves = moves.filter(pc.is_valid(moves["seal"])).sort_by([("seal", "ascending"), ("token", "ascending")])
    if not len(moves):
        return []
    seal, reached, token = _micros(moves["seal"]), _micros(moves["reached"]), moves["token"].to_numpy()
    first = np.flatnonzero(np.concatenate(([True], seal[1:] != seal[:-1])))
    ends = np.concatenate((first[1:], [len(seal)]))
    # the greatest token with a lower seal; -1 for the lowest seal
    withdrawn = np.concatenate(([-1], np.maximum.accumulate(token[ends - 1])[:-1]))
    counts = token > np.repeat(withdrawn, ends - first)
    sealed_by = ends - np.add.reduceat(counts.astype(np.int64), first)
    reached_by = np.maximum.reduceat(np.where(counts, reached, _NONE), first)
    # a source that has published nothing has the seal 1970
    listed = np.isin(seal[first], np.append(noted, newest_us)) & (seal[first] > BEFORE_ALL_US) & (sealed_by < ends)
    made = moves.select(["run_id", "token"]).take(sealed_by[listed]).to_pylist()
    entries: list[PublicationEntry] = []
    before = (EPOCH, EPOCH)
    for by, seal_us, reached_us in zip(made, seal[first][listed].tolist(), reached_by[listed].tolist(), strict=True):
        times = instant(seal_us), instant(reached_us)
        entries.append(PublicationEntry(by["run_id"], by["token"], *times, *before))
        before = times
    return entries


def _micros(times: pa.ChunkedArray) -> Any:
    """Times as an array of microseconds; _NONE for null."""
    return pc.fill_null(times.cast(pa.int64()), _NONE).to_numpy()
