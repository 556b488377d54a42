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

from spark_jobs.kernels.comparison import CLOSING, LIVE, without_closed
from spark_jobs.kernels.deltas.sizes import bytes_of
from spark_jobs.kernels.deltas.states import NO_DELTA
from spark_jobs.storage.descriptions.chain_tables import METRICS, SEGMENT

ROW, STATE_PART, SEGMENT_PART = "row", "state", "segment"
"""Values of the column `part`, which is the kind of a row of the input and of the output."""

IDENTITY = [column for column in SEGMENT if column != "source"]
"""The columns that identify a segment of a source; a state is identified by its entity alone."""

Key = tuple[Any, ...]
Restate = Callable[[pa.Table, Counter[str], pa.Array], pa.Table]
"""A function from rows, states and segments to corrections; its last argument are the entities that earlier stretches
touched."""


@dataclass
class Stretches:
    """The corrections of one bucket of entities, stretch by stretch; `known_from_us` is the run's."""

    restate: Restate
    known_from_us: int
    published: list[pa.Table] = field(default_factory=list)
    own: list[pa.Table] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    revisions: dict[Key, int] = field(default_factory=dict)
    owed: Counter[str] = field(default_factory=Counter)
    begun: bool = False
    """True if a stretch was worked on, and another one of the same chains is to come."""

    def step(self, part: pa.Table, until: int | None, did: Counter[str]) -> pa.Table:
        """The corrections that are final after this stretch. The next stretch begins at the event time `until`; None
        if this is the last one."""
        self.own = [_ended(table, part, did) for table in self.own]
        stored = [_as_stored(table, part.schema) for table in self.own]
        group = pa.concat_tables([part, *self.published, *stored], promote_options="default")
        made = self.restate(group, did, pa.array(sorted(self.touched), pa.string()))
        self.touched |= set(pc.unique(group.filter(pc.equal(group["part"], ROW))["entity"]).to_pylist())
        closing = made.filter(pc.equal(made["era"], CLOSING))
        of_own = pc.equal(closing["known_from"], self.known_from_us)
        ended = closing.filter(pc.invert(of_own))
        self.revisions |= dict(zip(_keys(ended), ended["revision"].to_pylist(), strict=True))
        stands = self._still_standing(closing.filter(of_own), did)
        live = made.filter(pc.equal(made["era"], LIVE))
        of_live = set(pc.unique(live.filter(pc.equal(live["part"], SEGMENT_PART))["entity"]).to_pylist())
        did["chains"] -= len(of_live & self.written)
        self.written |= of_live
        own = pa.concat_tables([*stands, live])
        waits = _waits(own, until)
        self.own = [own.filter(waits)]
        self.published = self._reachable(group, closing, until)
        done = self._numbered(self._paid(own.filter(pc.invert(waits))))
        self.begun = until is not None
        if not self.begun:
            self.touched, self.written, self.revisions, self.owed = set(), set(), {}, Counter()
        return pa.concat_tables([ended, done])

    def _still_standing(self, closed: pa.Table, did: Counter[str]) -> list[pa.Table]:
        """The rows that this run made before, without those that it has now made anew.

        One row of each entity has the number of deltas that retention let go. If that row is never written, the number
        is added to `owed`.
        """
        gone = set(_keys(closed))
        found = []
        for table in self.own:
            replaced = pa.array([key in gone for key in _keys(table)], pa.bool_())
            never = table.filter(replaced)
            _uncount(never.filter(pc.equal(never["part"], SEGMENT_PART)), did)
            self.owed.update(dict(_dropped(never)))
            found.append(table.filter(pc.invert(replaced)))
        for entity, count in _dropped(closed):
            self.owed[entity] += count
        return found

    def _reachable(self, group: pa.Table, closing: pa.Table, until: int | None) -> list[pa.Table]:
        """The published rows that are still live and that later deltas may fall into."""
        if until is None:
            return []
        ended, found = set(_keys(closing)), []
        for part, identity in ((STATE_PART, ["entity"]), (SEGMENT_PART, IDENTITY)):
            live = without_closed(group.filter(pc.equal(group["part"], part)), identity)
            live = live.filter(pc.not_equal(live["known_from"], self.known_from_us))
            live = live.filter(pa.array([key not in ended for key in _keys(live)], pa.bool_()))
            live = live.append_column("era", pa.array([LIVE] * live.num_rows, pa.string()))
            found.append(live.filter(_waits(live, until)))
        return found

    def _paid(self, done: pa.Table) -> pa.Table:
        """The rows that are now written; the first segment of each entity has the owed deltas in `dropped`, too."""
        dropped = done["dropped"].to_pylist()
        for place, (part, entity) in enumerate(zip(*(done[c].to_pylist() for c in ("part", "entity")), strict=True)):
            if part == SEGMENT_PART:
                dropped[place] = (dropped[place] or 0) + self.owed.pop(entity, 0)
        return _set(done, "dropped", pa.array(dropped, done["dropped"].type))

    def _numbered(self, done: pa.Table) -> pa.Table:
        """The rows that are now written, each with its revision: one more than that of the published row that it
        replaces, 0 if it replaces none."""
        revisions = [self.revisions.get(key, -1) + 1 for key in _keys(done)]
        return _set(done, "revision", pa.array(revisions, done["revision"].type))


def _ended(own: pa.Table, part: pa.Table, did: Counter[str]) -> pa.Table:
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
    again = pa.array([key in published for key in _keys(own)], pa.bool_())
    never, own = own.filter(again), own.filter(pc.invert(again))
    did["merged"] -= pc.sum(never["delta_count"]).as_py() or 0
    _uncount(never, did)
    columns = [own[name].to_pylist() for name in ("part", "entity", "end_time", "ages_from")]
    places = [
        (first.get(entity), None) if kind == SEGMENT_PART and end is None and entity in first else (end, ages)
        for kind, entity, end, ages in zip(*columns, strict=True)
    ]
    counts = zip(columns[2], places, own["delta_count"].to_pylist(), strict=True)
    did["merged"] -= sum(count for end, place, count in counts if end is None and place[0] is not None)
    for name, place in (("end_time", 0), ("ages_from", 1)):
        own = _set(own, name, pa.array([found[place] for found in places], own[name].type))
    return own


def _uncount(never: pa.Table, did: Counter[str]) -> None:
    """Take segments that are never written out of the counts of checkpoints and bytes."""
    did["checkpoints"] -= len(never) - never["at_delta"].null_count
    did["bytes_after"] -= bytes_of(_told(never))


def _as_stored(made: pa.Table, given: pa.Schema) -> pa.Table:
    """Corrections in the form in which a worker takes published rows, with the columns and types of `given`."""
    for name in ("start_time", "start_row"):
        made = _set(made, name, pc.fill_null(made[name], NO_DELTA))
    names = [name for name in made.column_names if name in given.names]
    return pa.table({name: made[name].cast(given.field(name).type) for name in names})


def _told(segments: pa.Table) -> pa.Table:
    """The columns of segments whose bytes are counted."""
    ways = ("part", "era", "known_from", "known_to", "revision", *(metric.name for metric in METRICS))
    return segments.drop_columns(list(ways))


def _keys(rows: pa.Table) -> list[Key]:
    places = [pc.fill_null(rows[name], NO_DELTA).to_pylist() for name in IDENTITY[1:]]
    return list(zip(rows["part"].to_pylist(), rows["entity"].to_pylist(), *places, strict=True))


def _dropped(rows: pa.Table) -> list[tuple[str, int]]:
    counts = rows["dropped"].to_pylist()
    found: Counter[str] = Counter()
    for entity, count in zip(rows["entity"].to_pylist(), counts, strict=True):
        found[entity] += count or 0
    return [(entity, count) for entity, count in found.items() if count]


def _waits(rows: pa.Table, until: int | None) -> pa.Array:
    """True for each segment into which a delta at `until` or later may fall, and for each state. Without `until`, no
    row waits."""
    if until is None:
        return pa.array([False] * rows.num_rows, pa.bool_())
    end = pc.fill_null(pc.greater_equal(rows["end_time"], until), fill_value=True)
    return pc.or_(end, pc.equal(rows["part"], STATE_PART))


def _set(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
