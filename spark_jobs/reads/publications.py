"""Every publication of a source so far, derived from the history of its frontiers: the rows of `trace.publications`,
without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
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
    def known_from(self) -> datetime:
        """The visible time that the publication's changes carry: one tick before `published`."""
        return self.published - TICK

    def took_in(self, update: Mapping[str, Any]) -> bool:
        """True if this publication is the first that includes the update, by its `time` and `event_time`."""
        time, event_time = update["time"], update["event_time"]
        is_published = time < self.published and event_time < self.reached
        return is_published and (time >= self.published_before or event_time >= self.reached_before)


def publications(lake: TableReader, source: Source, current: Publication) -> list[PublicationEntry]:
    """The publications up to `current`, oldest first."""
    moves = lake.records(FRONTIERS, pc.field("source") == source.name)
    return publications_of(moves, instant(current.published_us))


def publications_of(moves: Iterable[Mapping[str, Any]], newest: datetime) -> list[PublicationEntry]:
    """The publications that follow from rows of `trace.frontiers`, oldest first; `newest` is the `published` of now.

    Between two publications the frontiers move, and each move notes `published` as it was then. The first move to a
    seal is the one of the run that published it; later moves keep that seal. A seal only goes down where a run withdrew
    the seal of an interrupted run. Moves from before the withdrawal have a smaller token than a move with a lower seal,
    and are left out.
    """
    by_seal: dict[datetime, list[Mapping[str, Any]]] = {}
    seals = {newest}
    for move in moves:
        seals.add(move["published"])
        if move["seal"] is not None:
            by_seal.setdefault(move["seal"], []).append(move)
    listed: list[PublicationEntry] = []
    withdrawn = -1
    for seal in sorted(by_seal):
        sealed = [move for move in by_seal[seal] if move["token"] > withdrawn]
        withdrawn = max(withdrawn, *(move["token"] for move in by_seal[seal]))
        # a source that has published nothing has the seal 1970
        if seal in seals and seal > EPOCH and sealed:
            first, reached = min(sealed, key=_token), max(move["reached"] for move in sealed)
            before = (listed[-1].published, listed[-1].reached) if listed else (EPOCH, EPOCH)
            listed.append(PublicationEntry(first["run_id"], first["token"], seal, reached, *before))
    return listed


def _token(move: Mapping[str, Any]) -> int:
    token: int = move["token"]
    return token
