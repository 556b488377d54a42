"""A source's frontiers: the arrangement's state, the drops that have landed, and the time that runs have reached.

Each change is one row of `trace.frontiers`; the row with the greatest token is in force. All times are int64
microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import BEFORE_ALL_US, Publication
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.tables import FRONTIERS
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.storage.lakes.lake import Lake, TableReader

NEAR = 128
"""The number of tokens before a recent one among which the last change of the frontiers is looked for first: a month of
daily runs. By statistics on the token, the files of all older changes are skipped."""

NO_HORIZON_US = -(2**63)
"""The horizon before retention moved it: every event time is at or after it."""

SeqRange = tuple[int, int]


class StateCorrupt(TidemarkError):
    """The stored state can't be read. Facts: `source`."""

    code = "state_corrupt"


@dataclass(frozen=True, slots=True)
class SourceFrontiers:
    """The frontiers of one source at one moment.

    `landed`: half-open ranges of drops that were run, sorted and not adjoining. `landed_through`: the greatest
    landing whose rows are in the arrangement. `reached_us`: the greatest end of any interval that was run, or the
    source's start before the first run. `published_us`: the time of the publication in force when a run last moved
    the frontiers; as they move between any two publications, their history includes that of the publications.
    `obsolete`: replaced batches whose rows are still stored, each with the token under which it was replaced.
    `horizon_us`: states are exact for event times from here on; the least int64 until retention moves it.
    `rows_from_us`: the time from which on all rows are in bronze (`trace.expiry`); the least int64 until retention
    moves it.
    """

    arrangement: ArrangementState
    reached_us: int
    landed: tuple[SeqRange, ...] = ()
    landed_through: int = 0
    published_us: int = 0
    obsolete: tuple[tuple[str, int], ...] = ()
    horizon_us: int = NO_HORIZON_US
    rows_from_us: int = NO_HORIZON_US

    @classmethod
    def start(cls, source: Source) -> SourceFrontiers:
        """The frontiers before the first run: nothing is sealed, nothing has landed."""
        return cls(ArrangementState(), source.drops.start_us)

    @property
    def seal_us(self) -> int:
        """The seal; 0 before the first run."""
        return self.arrangement.seal.time or 0

    def complete_us(self, source: Source) -> int:
        """The start of the first drop, counted from the source's start, that has not landed."""
        first = self.landed[0][1] if self.landed and self.landed[0][0] == 0 else 0
        return source.drops.interval(first)[0]

    def with_landed(self, drops: range) -> SourceFrontiers:
        """The frontiers with these drops added to `landed`."""
        if not drops:
            return self
        merged: list[SeqRange] = []
        for lo, hi in sorted([*self.landed, (drops.start, drops.stop)]):
            if merged and lo <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
            else:
                merged.append((lo, hi))
        return replace(self, landed=tuple(merged))

    def has_landed(self, drops: range) -> bool:
        """True if all of these drops have landed."""
        return not drops or any(lo <= drops.start and drops.stop <= hi for lo, hi in self.landed)

    def replace_arrangement(
        self, arrangement: ArrangementState, token: int, passing: Iterable[str] = ()
    ) -> SourceFrontiers:
        """The frontiers with `arrangement` in place of the present one. Batches that it no longer names are obsolete
        from `token` on. So are batches of `passing`, which were made in between, unless it names them."""
        gone = sorted({*self.arrangement.handles(), *passing} - arrangement.handles())
        return replace(self, arrangement=arrangement, obsolete=(*self.obsolete, *((handle, token) for handle in gone)))

    def removable(self, publication_token: int) -> list[str]:
        """The replaced batches that no reader can need any more: a publication was made over their replacement."""
        return [handle for handle, replaced_under in self.obsolete if replaced_under <= publication_token]

    def without_replaced(self, removed: Iterable[str]) -> SourceFrontiers:
        """The frontiers without these replaced batches, whose rows have been removed."""
        gone = set(removed)
        return replace(self, obsolete=tuple(batch for batch in self.obsolete if batch[0] not in gone))

    def to_json(self) -> str:
        """The frontiers as one line of JSON; `from_json` returns an equal value."""
        fields = {
            "arrangement": self.arrangement.to_json(),
            "reached_us": self.reached_us,
            "landed": [list(r) for r in self.landed],
            "landed_through": self.landed_through,
            "published_us": self.published_us,
            "obsolete": [list(batch) for batch in self.obsolete],
            "horizon_us": self.horizon_us,
        }
        if self.rows_from_us != NO_HORIZON_US:
            fields["rows_from_us"] = self.rows_from_us
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SourceFrontiers:
        """The frontiers from the result of `to_json`. Fields that earlier versions did not write have defaults."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            ArrangementState.from_json(fields["arrangement"]),
            fields["reached_us"],
            tuple((lo, hi) for lo, hi in fields["landed"]),
            fields["landed_through"],
            fields.get("published_us", 0),
            tuple((handle, token) for handle, token in fields.get("obsolete", ())),
            fields.get("horizon_us", NO_HORIZON_US),
            fields.get("rows_from_us", NO_HORIZON_US),
        )


def load(lake: TableReader, source: Source, *, near: int = 0) -> SourceFrontiers:
    """The frontiers in force; those before the first run if there are none.

    `near`: a recent token (the attempt's own, or the publication's), so that the whole history need not be read.

    Raises:
        StateCorrupt: the newest row can't be read.
    """
    return of_row(source, next(iter(_newest_first(lake, source, near)), None))


def of_row(source: Source, newest: Mapping[str, Any] | None) -> SourceFrontiers:
    """The frontiers of the source's newest row in `trace.frontiers`; those before the first run if there is none.

    Raises:
        StateCorrupt: the row can't be read.
    """
    return _parse(source, newest) if newest is not None else SourceFrontiers.start(source)


def _parse(source: Source, row: Mapping[str, Any]) -> SourceFrontiers:
    try:
        return SourceFrontiers.from_json(row["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(
            expected=f"the state of {source.name} as JSON in trace.frontiers",
            found=f"{type(error).__name__}: {error}",
            consequence="nothing was run",
            next_step="run `tidemark doctor`; `tidemark restore` a backup into an empty home",
            source=source.name,
        ) from error


@dataclass(frozen=True, slots=True)
class Move:
    """One change of the frontiers: its token, and the frontiers before and after it."""

    token: int
    before: SourceFrontiers
    after: SourceFrontiers


def unpublished_moves(lake: Lake, source: Source, publication: Publication) -> list[Move]:
    """The changes from the frontiers of `publication` to those in force, oldest first, without changes that were
    withdrawn."""
    states = _since_publication(lake, source, publication)
    return [Move(token, states[i + 1][1], after) for i, (token, after) in enumerate(states[:-1])][::-1]


def moves(lake: TableReader, source: Source) -> Iterator[tuple[Mapping[str, Any], Move]]:
    """Yield all changes of the frontiers, oldest first, each with its row of `trace.frontiers`."""
    before = SourceFrontiers.start(source)
    rows = lake.records(FRONTIERS, pc.field("source") == source.name)
    for row in sorted(rows, key=lambda row: int(row["token"])):
        after = _parse(source, row)
        yield row, Move(row["token"], before, after)
        before = after


def first_published_us(lake: Lake, source: Source, publication: Publication) -> int:
    """The seal of the source's first publication. `publication` is its newest one. Every later move of the frontiers
    notes the publication in force at that time."""
    rows = lake.records(FRONTIERS, pc.field("source") == source.name)
    noted = (micros(row["published"]) for row in rows if row["published"] is not None)
    return min((us for us in noted if us > BEFORE_ALL_US), default=publication.published_us)


def published_frontiers(lake: TableReader, source: Source, publication: Publication) -> SourceFrontiers:
    """The newest frontiers that are not beyond `publication`."""
    return _since_publication(lake, source, publication)[-1][1]


def _since_publication(
    lake: TableReader, source: Source, publication: Publication
) -> list[tuple[int, SourceFrontiers]]:
    """The tokens and frontiers, newest first, down to the first frontiers that are not beyond `publication`."""
    states: list[tuple[int, SourceFrontiers]] = []
    for row in _newest_first(lake, source, publication.token):
        states.append((row["token"], _parse(source, row)))
        if states[-1][1].seal_us <= publication.published_us:
            return states
    return [*states, (0, SourceFrontiers.start(source))]


def _newest_first(lake: TableReader, source: Source, near: int) -> list[dict[str, Any]]:
    """The source's rows, newest first. Only rows with tokens after `near - NEAR` are read, if one of them is not after
    `near`."""
    of_source = pc.field("source") == source.name
    rows = lake.records(FRONTIERS, of_source & (pc.field("token") > near - NEAR))
    if near > NEAR and not any(row["token"] <= near for row in rows):
        rows = lake.records(FRONTIERS, of_source)
    return sorted(rows, key=lambda row: -row["token"])


def commit(lake: Lake, source: Source, fence: Fence, run_id: str, frontiers: SourceFrontiers) -> None:
    """Make `frontiers` the ones in force. This one small commit makes the batches count that were written before it."""
    row = frontier_row(source.name, fence.token, run_id, frontiers)
    row["complete"] = instant(frontiers.complete_us(source))
    row["published"] = instant(frontiers.published_us)
    lake.record(FRONTIERS, [row], fence)


def frontier_row(collection: str, token: int, run_id: str, frontiers: SourceFrontiers) -> dict[str, Any]:
    """A row of `trace.frontiers`, without `complete` and `published`, which only a source has. Times beyond the year
    9999 are null."""
    state = frontiers.arrangement
    return {
        "source": collection,
        "token": token,
        "run_id": run_id,
        "moved_at": datetime.now(UTC),
        "seal": _as_instant(frontiers.seal_us),
        "trace_upper": _as_instant(state.trace_upper.time),
        "since": _as_instant(state.since.time),
        "reached": _as_instant(frontiers.reached_us),
        "state": frontiers.to_json(),
    }


def _as_instant(time_us: int | None) -> datetime | None:
    try:
        return None if time_us is None else instant(time_us)
    except OverflowError:
        return None
