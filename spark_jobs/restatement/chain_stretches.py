"""Chains that are too long for a worker's memory, restated in stretches of event time.

Each stretch is a run over the published rows and the rows that earlier stretches made. A row that a later stretch makes
anew is not written before that. A segment waits until no later delta can fall into it. A state waits for the last
stretch, as it is the state of its entity after all deltas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas import NO_DELTA, JudgedDeltas, bytes_of
from spark_jobs.engine.restatement import CLOSING, LIVE, without_closed
from spark_jobs.storage.descriptions.chain_tables import METRICS, SEGMENT

ROW, STATE_PART, SEGMENT_PART = "row", "state", "segment"
"""Values of the column `part`, which is the kind of a row of the input and of the output."""

IDENTITY = [column for column in SEGMENT if column != "source"]
"""The columns that identify a segment of a source; a state is identified by its entity alone."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Stretch:
    """A part of the event times of some chains, restated by itself.

    Attributes:
        until: the event time at which the next stretch begins; None if this is the last one.
        touched: the entities that earlier stretches touched, and which this one restates from their first segment on.
        judged: the deltas of earlier stretches, if rows may declare parents. Those of this stretch are added.
    """

    until: int | None
    touched: pa.Array
    judged: JudgedDeltas


Restate = Callable[[pa.Table, Counter[str], Stretch], pa.Table]
"""A function from rows, states and segments to corrections."""


@dataclass
class Stretches:
    """The corrections of one bucket of entities, stretch by stretch; `known_from_us` is the run's."""

    restate: Restate
    known_from_us: int
    published: list[pa.Table] = field(default_factory=list)
    made_rows: list[pa.Table] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    revisions: dict[Key, int] = field(default_factory=dict)
    owed: Counter[str] = field(default_factory=Counter)
    judged: JudgedDeltas = field(default_factory=JudgedDeltas)
    has_begun: bool = False
    """True if a stretch was worked on, and another one of the same chains is to come."""

    def step(self, part: pa.Table, until: int | None, did: Counter[str]) -> pa.Table:
        """The corrections that are final after this stretch. The next stretch begins at the event time `until`; None
        if this is the last one."""
        self.made_rows = [_end_at_published(table, part, did) for table in self.made_rows]
        stored = [_as_stored(table, part.schema) for table in self.made_rows]
        group = pa.concat_tables([part, *self.published, *stored], promote_options="default")
        made = self.restate(group, did, Stretch(until, pa.array(sorted(self.touched), pa.string()), self.judged))
        self.touched |= set(pc.unique(group.filter(pc.equal(group["part"], ROW))["entity"]).to_pylist())
        closing = made.filter(pc.equal(made["era"], CLOSING))
        of_own = pc.equal(closing["known_from"], self.known_from_us)
        ended = closing.filter(pc.invert(of_own))
        self.revisions |= dict(zip(_keys(ended), ended["revision"].to_pylist(), strict=True))
        remaining = self._remaining_rows(closing.filter(of_own), did)
        live = made.filter(pc.equal(made["era"], LIVE))
        of_live = set(pc.unique(live.filter(pc.equal(live["part"], SEGMENT_PART))["entity"]).to_pylist())
        did["chains"] -= len(of_live & self.written)
        self.written |= of_live
        candidates = pa.concat_tables([*remaining, live])
        waits = _waits(candidates, until)
        self.made_rows = [candidates.filter(waits)]
        self.published = self._reachable(group, closing, until)
        final_rows = self._set_revisions(self._add_owed_deltas(candidates.filter(pc.invert(waits))))
        self.has_begun = until is not None
        if not self.has_begun:
            self.touched, self.written, self.revisions, self.owed = set(), set(), {}, Counter()
            self.judged = JudgedDeltas()
        return pa.concat_tables([ended, final_rows])

    def _remaining_rows(self, closed: pa.Table, did: Counter[str]) -> list[pa.Table]:
        """The rows that this run made before, without those that it has now made anew.

        One row of each entity has the number of deltas that retention let go. If that row is never written, the number
        is added to `owed`.
        """
        gone = set(_keys(closed))
        remaining = []
        for table in self.made_rows:
            replaced = pa.array([key in gone for key in _keys(table)], pa.bool_())
            never = table.filter(replaced)
            _uncount(never.filter(pc.equal(never["part"], SEGMENT_PART)), did)
            self.owed.update(dict(_counts_of_dropped(never)))
            remaining.append(table.filter(pc.invert(replaced)))
        for entity, count in _counts_of_dropped(closed):
            self.owed[entity] += count
        return remaining

    def _reachable(self, group: pa.Table, closing: pa.Table, until: int | None) -> list[pa.Table]:
        """The published rows that are still live and that later deltas may fall into."""
        if until is None:
            return []
        ended, reachable = set(_keys(closing)), []
        for part, identity in ((STATE_PART, ["entity"]), (SEGMENT_PART, IDENTITY)):
            live = without_closed(group.filter(pc.equal(group["part"], part)), identity)
            live = live.filter(pc.not_equal(live["known_from"], self.known_from_us))
            live = live.filter(pa.array([key not in ended for key in _keys(live)], pa.bool_()))
            live = live.append_column("era", pa.array([LIVE] * live.num_rows, pa.string()))
            reachable.append(live.filter(_waits(live, until)))
        return reachable

    def _add_owed_deltas(self, rows: pa.Table) -> pa.Table:
        """The rows that are now written; the first segment of each entity has the owed deltas in `dropped`, too."""
        dropped = rows["dropped"].to_pylist()
        for place, (part, entity) in enumerate(zip(*(rows[c].to_pylist() for c in ("part", "entity")), strict=True)):
            if part == SEGMENT_PART:
                dropped[place] = (dropped[place] or 0) + self.owed.pop(entity, 0)
        return _set(rows, "dropped", pa.array(dropped, rows["dropped"].type))

    def _set_revisions(self, rows: pa.Table) -> pa.Table:
        """The rows that are now written, each with its revision: one more than that of the published row that it
        replaces, 0 if it replaces none."""
        revisions = [self.revisions.get(key, -1) + 1 for key in _keys(rows)]
        return _set(rows, "revision", pa.array(revisions, rows["revision"].type))


def _end_at_published(made_rows: pa.Table, part: pa.Table, did: Counter[str]) -> pa.Table:
    """The rows that this run made, without segments that are also published.

    A segment that was the last of its chain now ends where the first published segment of the part starts. Its
    checkpoint is then no longer the newest one.
    """
    segments = without_closed(part.filter(pc.equal(part["part"], SEGMENT_PART)), IDENTITY)
    first: dict[str, int] = {}
    for entity, start in zip(segments["entity"].to_pylist(), segments["start_time"].to_pylist(), strict=True):
        first[entity] = min(start, first.get(entity, start))
    # a checkpoint behind the last delta of a stretch may be published already
    published = set(_keys(segments))
    again = pa.array([key in published for key in _keys(made_rows)], pa.bool_())
    never, made_rows = made_rows.filter(again), made_rows.filter(pc.invert(again))
    did["merged"] -= pc.sum(never["delta_count"]).as_py() or 0
    _uncount(never, did)
    columns = [made_rows[name].to_pylist() for name in ("part", "entity", "end_time", "ages_from")]
    places = [
        (first.get(entity), None) if kind == SEGMENT_PART and end is None and entity in first else (end, ages)
        for kind, entity, end, ages in zip(*columns, strict=True)
    ]
    counts = zip(columns[2], places, made_rows["delta_count"].to_pylist(), strict=True)
    did["merged"] -= sum(count for end, place, count in counts if end is None and place[0] is not None)
    for name, place in (("end_time", 0), ("ages_from", 1)):
        made_rows = _set(
            made_rows, name, pa.array([end_and_age[place] for end_and_age in places], made_rows[name].type)
        )
    return made_rows


def _uncount(never: pa.Table, did: Counter[str]) -> None:
    """Take segments that are never written out of the counts of checkpoints and bytes."""
    did["checkpoints"] -= len(never) - never["at_delta"].null_count
    did["bytes_after"] -= bytes_of(_counted_columns(never))


def _as_stored(made: pa.Table, given: pa.Schema) -> pa.Table:
    """Corrections in the form in which a worker takes published rows, with the columns and types of `given`."""
    for name in ("start_time", "start_row"):
        made = _set(made, name, pc.fill_null(made[name], NO_DELTA))
    names = [name for name in made.column_names if name in given.names]
    return pa.table({name: made[name].cast(given.field(name).type) for name in names})


def _counted_columns(segments: pa.Table) -> pa.Table:
    """The columns of segments whose bytes are counted."""
    ways = ("part", "era", "known_from", "known_to", "revision", *(metric.name for metric in METRICS))
    return segments.drop_columns(list(ways))


def _keys(rows: pa.Table) -> list[Key]:
    places = [pc.fill_null(rows[name], NO_DELTA).to_pylist() for name in IDENTITY[1:]]
    return list(zip(rows["part"].to_pylist(), rows["entity"].to_pylist(), *places, strict=True))


def _counts_of_dropped(rows: pa.Table) -> list[tuple[str, int]]:
    counts = rows["dropped"].to_pylist()
    count_by_entity: Counter[str] = Counter()
    for entity, count in zip(rows["entity"].to_pylist(), counts, strict=True):
        count_by_entity[entity] += count or 0
    return [(entity, count) for entity, count in count_by_entity.items() if count]


def _waits(rows: pa.Table, until: int | None) -> pa.Array:
    """True for each segment into which a delta at `until` or later may fall, and for each state. Without `until`, no
    row waits."""
    if until is None:
        return pa.array([False] * rows.num_rows, pa.bool_())
    end = pc.fill_null(pc.greater_equal(rows["end_time"], until), fill_value=True)
    return pc.or_(end, pc.equal(rows["part"], STATE_PART))


def _set(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
