"""The work of the Python workers that restate chains: from touching rows, published states and segments of whole
entities to the corrections of both. A chain that no row touches is restated when it is due to be compacted by age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas import (
    NEVER,
    NO_DELTA,
    REGISTERED,
    STILL_KNOWN,
    Adaptive,
    CompactionPolicy,
    Frontiers,
    Keys,
    Meaning,
    RestatedChains,
    Segments,
    States,
    Status,
    TimeBoundary,
    Traffic,
    ages_from,
    bytes_of,
    changes_of,
    checkpoints_of,
    one_chunk,
    pack,
    parts_of,
    restate_chains,
    states_table,
    unpack,
)
from spark_jobs.engine.restatement import CLOSING, LIVE, remaining_codes, without_closed
from spark_jobs.engine.spark.checkpoints import BUCKET, PART_BYTES, PLACE
from spark_jobs.restatement.chain_stretches import IDENTITY, ROW, SEGMENT_PART, STATE_PART, Stretch, Stretches
from spark_jobs.storage.descriptions.chain_tables import COMPACTION

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LEAST_ROWS = 1 << 13
"""The least rows that are worked on at once, if entities are small. A segment may have a thousand deltas."""

TYPED = {
    "vector": ("ints", "floats"),
    "values": ("delta_ints", "delta_floats"),
    "scalars": ("scalar_ints", "scalar_floats"),
}
"""The columns of packed segments, each with the two columns that store it: for whole numbers, and for others."""

_NOBODY = pa.array([], pa.string())


@dataclass(frozen=True)
class ChainWorker:
    """The function of `mapInArrow`.

    `everything`: the definition changed, so all rows touch and all published rows are closed. `schema` is the output's.
    `traffic`: the reads and writes that the strategy adaptive weighs; None: nobody reads. `oldest`: the bound of
    `ages_from` in microseconds, below which a segment is due though no row touches it; None: no segment is.
    """

    meaning: Meaning
    policy: CompactionPolicy
    frontiers: Frontiers
    known_from_us: int
    as_of_us: int
    everything: bool
    schema: pa.Schema
    traffic: Traffic | None = None
    oldest: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the corrections of states and segments, group by group, and last a row with the counts, if any."""
        did = Counter[str]()
        long = Stretches(self._restate, self.known_from_us)
        for part, until in parts_of(batches, group=BUCKET, time=PLACE, least_rows=LEAST_ROWS, most_bytes=PART_BYTES):
            whole = until is None and not long.has_begun
            yield from (self._restate(part, did) if whole else long.step(part, until, did)).to_batches()
        if did["chains"] or did["dropped"]:
            counts_row = {"part": SEGMENT_PART, "era": COMPACTION, "known_from": self.known_from_us, **did}
            yield from self._fill_columns(pa.Table.from_pylist([counts_row])).to_batches()

    def _restate(self, group: pa.Table, did: Counter[str], stretch: Stretch | None = None) -> pa.Table:
        """The corrections of chains: of whole ones, or of a stretch of long ones."""
        touched_before = _NOBODY if stretch is None else stretch.touched
        rows, states, segments = (group.filter(pc.equal(group["part"], p)) for p in (ROW, STATE_PART, SEGMENT_PART))
        states, segments = without_closed(states, ["entity"]), without_closed(segments, IDENTITY)
        parts = [rows, states, segments] if self.everything else [rows]
        names = [*(t.select(["entity"]) for t in parts), pa.table({"entity": touched_before})]
        touched = pc.unique(one_chunk(pa.concat_tables(names), "entity"))
        due = self._due(segments) if not self.everything else segments.slice(0, 0)
        entities = pc.unique(pa.concat_arrays([touched, one_chunk(due, "entity")]))
        segments, idle, others = self._split(segments, rows, entities, touched_before)
        # if all published segments are closed, only those that this run has made itself stay
        places = np.flatnonzero(self._is_own(segments)) if self.everything else np.arange(segments.num_rows)
        published = unpack(
            cast_segments(segments.take(pa.array(places)), self.meaning), entities,
            dtype=self.meaning.dtype, dims=self.meaning.dims, ids=self.meaning.with_parents,
        )  # fmt: skip
        policy = self._policy_with_traffic(segments, rows, entities)
        changes = changes_of(rows, entities, self.meaning)
        earlier = None
        if stretch is not None and self.meaning.with_parents:
            texts = [(published.delta_ids, changes.delta_ids), (published.parents, changes.parents)]
            earlier = stretch.judged.of(entities, *(pa.concat_arrays(both) for both in texts))
        step = restate_chains(
            published, changes, policy, as_of=self.as_of_us, frontiers=self.frontiers, transforms=REGISTERED,
            earlier=earlier,
        )  # fmt: skip
        if stretch is not None:
            self._keep_judged(stretch, step.folded, entities, pa.concat_tables([idle, others]))
        gone = np.ones(segments.num_rows, np.bool_)
        gone[places] = step.closed
        parts = [
            *self._segments(step, segments.filter(pa.array(gone)), entities, did, policy),
            self._closing_rows(idle, SEGMENT_PART, dropped=idle["deltas"]),
            *self._states(step, states, entities, touched),
        ]
        did["bytes_before"] += bytes_of(rows.drop_columns(["part", BUCKET, PLACE])) + bytes_of(idle)
        did["dropped"] += pc.sum(idle["deltas"]).as_py() or 0
        return pa.concat_tables([self._fill_columns(part) for part in parts])

    def _policy_with_traffic(self, segments: pa.Table, rows: pa.Table, entities: pa.Array) -> CompactionPolicy:
        """The policy; the strategy adaptive gets the reads and writes of each entity's class."""
        strategy = self.policy.strategy
        if self.traffic is None or not isinstance(strategy, Adaptive):
            return self.policy
        deltas = np.zeros(len(entities) + 1, np.int64)
        np.add.at(deltas, _codes(rows, entities), rows["diff"].to_numpy())
        if not self.everything:
            newest = segments.filter(pc.is_null(segments["end_time"]))
            np.add.at(deltas, _codes(newest, entities), pc.add(newest["delta_count"], newest["deltas"]).to_numpy())
        reads, writes = self.traffic.of_entities(deltas)
        return replace(self.policy, strategy=replace(strategy, reads=reads, writes=writes))

    def _due(self, segments: pa.Table) -> pa.Table:
        """The segments that are due to be compacted, touched by a row or not."""
        if self.oldest is None:
            return segments.slice(0, 0)
        return segments.filter(pc.fill_null(pc.less(segments["ages_from"], self.oldest), fill_value=False))

    def _keep_judged(self, stretch: Stretch, folded: Segments, entities: pa.Array, unreached: pa.Table) -> None:
        """Keep what later stretches need to know of the parents in this one: of segments that were folded, and of those
        that no row reaches."""
        if stretch.until is None or not self.meaning.with_parents:
            return
        stretch.judged.add(folded, entities, folded.end_time < stretch.until)
        final = unreached.filter(pc.less(unreached["end_time"], stretch.until))
        names = pc.unique(one_chunk(final, "entity"))
        published = unpack(
            cast_segments(final, self.meaning), names, dtype=self.meaning.dtype, dims=self.meaning.dims, ids=True
        )
        stretch.judged.add(published, names, np.ones(len(published), np.bool_))

    def _split(
        self, segments: pa.Table, rows: pa.Table, entities: pa.Array, earlier: pa.Array
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """The segments that the rows reach or that are due, in chain order, those that both frontiers have passed, and
        all others.

        Of an entity without rows, only the last segment is reached.
        """
        end = pc.fill_null(segments["end_time"], STILL_KNOWN).to_numpy()
        codes = _codes(segments, entities)
        reached = np.ones(len(codes), np.bool_)
        if not self.everything:
            least = np.full(len(entities) + 1, STILL_KNOWN)
            np.minimum.at(least, _codes(rows, entities), rows["event_time"].to_numpy())
            least[pc.index_in(earlier, value_set=entities).to_numpy()] = NO_DELTA
            # a parent may be anywhere before its child
            whole = (least[codes] != STILL_KNOWN) & self.meaning.with_parents
            reached = (codes < len(entities)) & ((end >= least[codes]) | whole)
        settled = pc.fill_null(segments["settled_end"], NO_DELTA).to_numpy()
        passed = ~reached & (end < self.frontiers.horizon) & (settled <= self.frontiers.since)
        # its checkpoints are all kept: they are the states at the boundaries
        passed &= not isinstance(self.policy.strategy, TimeBoundary)
        places = [segments[name].to_numpy() for name in ("start_row", "start_time")]
        order = np.lexsort((*places, codes))
        others = segments.filter(pa.array(~reached & ~passed))
        return segments.take(pa.array(order[reached[order]])), segments.filter(pa.array(passed)), others

    def _segments(
        self, step: RestatedChains, closed: pa.Table, entities: pa.Array, did: Counter[str], policy: CompactionPolicy
    ) -> list[pa.Table]:
        """The segments to insert and the segments to close. The first row of an entity has the number of deltas that
        retention let go. The counts of this work (`METRICS`) are added to `did`."""
        numbers = np.flatnonzero(step.written)
        written = step.segments.take(numbers)
        packed = pack(step.segments, entities, names=self.meaning.names, full_rows=self.meaning.full_rows, only=numbers)
        counting_deltas = np.bincount(written.deltas.entity[written.is_current], minlength=len(written))
        codes = np.concatenate((written.entity, _codes(closed, entities)))
        dropped, (first, place) = np.zeros(len(codes), np.int64), np.unique(codes, return_index=True)
        let_go = np.zeros(len(entities) + 1, np.int64)
        let_go[step.entities] = step.dropped
        dropped[place] = let_go[first]
        stored = {name: packed[name] for name in packed.column_names if name not in TYPED}
        numeric = {TYPED[name][self._is_float]: packed[name] for name in TYPED}
        ages = _ages(step.segments, policy)[numbers]
        counts = {
            "deltas": counting_deltas,
            "dropped": dropped[: len(written)],
            "ages_from": pa.array(ages, mask=ages == NEVER),
        }
        live = pa.table({**stored, **numeric, **counts})
        revision = _revisions(live, closed, entities)
        did["chains"] += len(np.unique(written.entity))
        did["checkpoints"] += len(live) - live["at_delta"].null_count
        is_own = pa.array(self._is_own(closed))
        did["merged"] += _count_folded(live) - _count_folded(closed.filter(is_own) if self.everything else closed)
        did["dropped"] += int(dropped.sum())
        did["bytes_before"] += bytes_of(closed.filter(pc.invert(is_own)))
        did["bytes_after"] += bytes_of(live)
        return [
            self._live(live, SEGMENT_PART, revision),
            self._closing_rows(closed, SEGMENT_PART, dropped[len(written) :]),
        ]

    def _states(self, step: RestatedChains, prior: pa.Table, entities: pa.Array, touched: pa.Array) -> list[pa.Table]:
        """The states to insert and the states to close: those of touched entities that changed. `touched` are the first
        of `entities`."""
        prior = prior.filter(pc.is_in(prior["entity"], value_set=touched))
        codes = _codes(prior, entities)
        ends = States.absent(1, self.meaning.dtype).concat(step.states)
        place = np.zeros(len(entities), np.int64)
        place[step.entities] = np.arange(len(step.entities)) + 1
        ends = ends.take(place)
        stored = checkpoints_of(
            cast_segments(_with(prior, deleted=pa.array([False] * len(codes), pa.bool_())), self.meaning),
            ends.values.dtype,
        )
        same = stored.same_bits(ends.take(codes)) & (not self.everything)
        desired = np.flatnonzero(ends.status[: len(touched)] == Status.LIVE)
        # a state that changed gets a code that no desired state has
        fresh_codes, ended = remaining_codes(desired, codes + len(entities) * ~same)
        nobody = np.zeros(0, np.int64)
        keys = Keys(entities.take(pa.array(fresh_codes)), nobody, nobody)
        table = states_table(ends.take(fresh_codes), keys, self.meaning.names, pa.int64())
        revision = np.full(len(entities), -1)
        revision[codes] = prior["revision"].to_numpy()
        live = table.drop_columns(["deleted"]).rename_columns({"vector": TYPED["vector"][self._is_float]})
        return [
            self._live(live, STATE_PART, revision[fresh_codes] + 1),
            self._closing_rows(prior.filter(pa.array(np.isin(codes, ended - len(entities)))), STATE_PART),
        ]

    def _is_own(self, rows: pa.Table) -> Flags:
        """True for each row that this run has made, False for a row of an earlier run."""
        return pc.equal(rows["known_from"], self.known_from_us).to_numpy()

    @property
    def _is_float(self) -> bool:
        return self.meaning.dtype != "int64"

    def _live(self, table: pa.Table, part: str, revision: npt.NDArray[Any]) -> pa.Table:
        n = table.num_rows
        return _with(
            table, part=pa.array([part] * n, pa.string()), known_from=pa.array(np.full(n, self.known_from_us)),
            known_to=pa.nulls(n, pa.int64()), revision=pa.array(revision, pa.int32()),
            era=pa.array([LIVE] * n, pa.string()),
        )  # fmt: skip

    def _closing_rows(self, table: pa.Table, part: str, dropped: Any = None) -> pa.Table:
        """Closing rows. A closed segment keeps only the columns that identify it, those by which reads find it, and
        those that the gate weighs."""
        n = table.num_rows
        if part == SEGMENT_PART:
            columns = ["end_time", "settled_end", "ages_from", "deltas", "refusals", "known_from", "revision"]
            table = table.select([*IDENTITY, *columns])
            table = table.append_column(
                "dropped", pa.chunked_array([dropped]) if not isinstance(dropped, pa.ChunkedArray) else dropped
            )
        return _with(
            table, part=pa.array([part] * n, pa.string()), known_to=pa.array(np.full(n, self.known_from_us)),
            era=pa.array([CLOSING] * n, pa.string()),
        )  # fmt: skip

    def _fill_columns(self, table: pa.Table) -> pa.Table:
        """The table with the output's columns; the start of a chain's first segment is null again."""
        columns = {
            f.name: table[f.name] if f.name in table.column_names else pa.nulls(table.num_rows, f.type)
            for f in self.schema
        }
        for name in ("start_time", "start_row"):
            begins = pc.equal(columns[name], pa.scalar(NO_DELTA, pa.int64()))
            columns[name] = pc.if_else(begins, pa.scalar(None, pa.int64()), columns[name])
        return pa.table([columns[f.name].cast(f.type) for f in self.schema], schema=self.schema)


def cast_segments(table: pa.Table, meaning: Meaning) -> pa.Table:
    """The table with its stored columns renamed to those of packed segments, and cast to the meaning's type."""
    is_float = meaning.dtype != "int64"
    names = {TYPED[name][is_float]: name for name in TYPED if TYPED[name][is_float] in table.column_names}
    other = [TYPED[name][not is_float] for name in TYPED]
    table = table.drop_columns([name for name in other if name in table.column_names]).rename_columns(
        [names.get(name, name) for name in table.column_names if name not in other]
    )
    kind = pa.list_(pa.from_numpy_dtype(np.dtype(meaning.dtype)))
    for name in names.values():
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
    return table


def _ages(segments: Segments, policy: CompactionPolicy) -> Ints:
    deltas = segments.deltas
    places = (deltas.entity, deltas.event_time, deltas.unparted)
    return ages_from(*places, segments.last_of_entity, segments.entity, policy)


def _count_folded(segments: pa.Table) -> int:
    """The number of deltas in the newest checkpoints of the chains whose last segment is in `segments`."""
    return pc.sum(segments.filter(pc.is_null(segments["end_time"]))["delta_count"]).as_py() or 0


def oldest_age(policy: CompactionPolicy, as_of_us: int) -> int | None:
    """The bound, in microseconds, below which `ages_from` makes a segment due by age; None if age compacts nothing, or
    only in a later pass."""
    return None if policy.deferred or policy.age_threshold is None else as_of_us - policy.age_threshold


def _codes(table: pa.Table, entities: pa.Array) -> Ints:
    """The place of each row's entity in `entities`; `len(entities)` for an entity that is not in it."""
    places = pc.index_in(table["entity"], value_set=entities)
    return pc.fill_null(places, len(entities)).to_numpy().astype(np.int64)


def _with(table: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, column)
    return table


def _revisions(live: pa.Table, closed: pa.Table, entities: pa.Array) -> Ints:
    """The revision of each live segment: one more than that of the closed segment with the same identity, or 0."""
    identity = [
        list(zip(_codes(t, entities), *(pc.fill_null(t[n], NO_DELTA).to_numpy() for n in IDENTITY[1:]), strict=True))
        for t in (live, closed)
    ]
    before = dict(zip(identity[1], closed["revision"].to_numpy(), strict=True))
    return np.array([before.get(key, -1) + 1 for key in identity[0]], np.int64)
