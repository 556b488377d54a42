"""The chains' worker without Spark: published rows go in as they are stored, corrections come out, run after run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import (
    AT_ONCE,
    LATEST,
    NO_DELTA,
    UNMOVED,
    Adaptive,
    CompactionPolicy,
    DuplicateDeltaError,
    Frontiers,
    FullMerge,
    Status,
    Strategy,
    TieredMerge,
    TimeBoundary,
    Traffic,
    bytes_of,
    entity_class,
    states_for,
    unpack,
)
from spark_jobs.engine.spark.checkpoints import BUCKET, PLACE, columns_needed
from spark_jobs.engine.spark.checkpoints.versions import VersionsAt
from spark_jobs.restatement import chain_worker
from spark_jobs.restatement.chain_needs import Needs
from spark_jobs.restatement.chain_stretches import ROW, SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_worker import TYPED, ChainWorker, oldest_age
from spark_jobs.restatement.chains import chain_schema
from spark_jobs.storage.descriptions.chain_tables import CHAINS, COMPACTION, METRICS
from tests.effort import tries
from tests.engine.test_deltas_segments import COLUMNS, ENTITIES, MEANINGS, SCHEMA, Row, replayed, same_bits, updates

STRATEGIES: list[Strategy] = [FullMerge(), TieredMerge(2), TimeBoundary(2)]
IDENTITY = ("part", "entity", "start_time", "start_row", "known_from")


OPERATIONS = replace(COLUMNS, indices="v_indices", values="v_values")
NO_PARENTS = replace(OPERATIONS, parent=None)
DROPPED = next(column for column in CHAINS.columns if column.name == "dropped")


def _as_read(row: Row) -> Row:
    """Starts that are null are so by a number."""
    return {**row, **{c: NO_DELTA if row[c] is None else row[c] for c in ("start_time", "start_row")}}


def needed_rows(
    rows: list[Row], held: list[Row], frontiers: Frontiers, policy: CompactionPolicy, as_of: int, whole: bool
) -> list[Row]:
    """The slow twin of what a run reads of what is published."""
    least: dict[str, int] = {}
    for row in rows:
        least[row["entity"]] = min(row["event_time"], least.get(row["entity"], LATEST))

    def needed(row: Row) -> bool:
        touched, end = row["entity"] in least, row["end_time"]
        if row["part"] == STATE_PART:
            return touched
        reached = touched and (whole or end is None or end >= least[row["entity"]])
        ages = None if policy.deferred else policy.age_threshold
        aged = None not in (ages, row["ages_from"]) and as_of - row["ages_from"] > ages
        gone = end is not None and end < frontiers.horizon
        return reached or aged or (gone and (row["settled_end"] is None or row["settled_end"] <= frontiers.since))

    return [row for row in held if needed(row)]


def as_a_set(rows: list[Row]) -> set[str]:
    return {repr(sorted(row.items())) for row in rows}


def _without_age(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "ages_from"}


class Published:
    """What the history tables hold, and runs over it."""

    one_bucket = 0
    """1: all entities are in one bucket, and it comes in stretches, so that what is read decides on the cuts."""

    def __init__(self, mode: str, policy: CompactionPolicy, traffic: Traffic | None = None) -> None:
        self.mode, self.policy, self.traffic, self.known_from = mode, policy, traffic, 0
        meaning = MEANINGS[mode]
        self.meaning = replace(meaning, operations=OPERATIONS) if meaning.operations else meaning
        self.rows: list[Row] = []
        self.last: list[Row] = []
        self.did: Row = {}

    def run(self, rows: list[Row], frontiers: Frontiers = UNMOVED, *, everything: bool = False, as_of: int = 9) -> None:
        """One run; what it puts out is applied as a publication is."""
        self.known_from += 1000
        worker = ChainWorker(
            self.meaning, self.policy, frontiers, self.known_from, as_of, everything, chain_schema(),
            self.traffic, oldest_age(self.policy, as_of),
        )  # fmt: skip
        made = self.corrections(worker, rows, self.rows)
        self.last = [row for row in made if row["era"] != COMPACTION]
        told = [{m.name: row[m.name] for m in (*METRICS, DROPPED)} for row in made if row["era"] == COMPACTION]
        self.did = told[0] if told else {}
        needed = needed_rows(rows, self.rows, frontiers, self.policy, as_of, self.meaning.with_parents)
        if not everything and not self.one_bucket:
            assert as_a_set(self.corrections(worker, rows, needed)) == as_a_set(made)
        self.publish()

    def compact(self, frontiers: Frontiers = UNMOVED, *, as_of: int = 9) -> None:
        """A pass without rows, over what it needs of the published segments: it leaves nothing to a later one."""
        self.known_from += 1000
        policy = replace(self.policy, deferred=False)
        by_age = oldest_age(policy, as_of)
        oldest = AT_ONCE + 1 if by_age is None else by_age
        worker = ChainWorker(
            self.meaning, policy, frontiers, self.known_from, as_of, False, chain_schema(), self.traffic, oldest
        )  # fmt: skip
        stored = self.part(SEGMENT_PART)
        of_segments = pa.Table.from_pylist(stored, schema=chain_schema())
        needs = Needs(None, frontiers, self.meaning.with_parents, oldest)
        needed = of_segments.filter(pa.array(needs.segments(of_segments))).to_pylist()
        made = self.corrections(worker, [], needed)
        self.last = [row for row in made if row["era"] != COMPACTION]
        assert all(row["part"] == SEGMENT_PART for row in self.last)
        # the slow twin looks at the last segment of every chain, due or not
        ends = [{**row, "ages_from": AT_ONCE} for row in stored if row["end_time"] is None]
        passed = [row for row in needed if row["end_time"] is not None]
        of_all = [row for row in self.corrections(worker, [], ends + passed) if row["era"] != COMPACTION]
        assert as_a_set([_without_age(row) for row in of_all]) == as_a_set([_without_age(row) for row in self.last])
        self.publish()

    def corrections(self, worker: ChainWorker, rows: list[Row], held: list[Row]) -> list[Row]:
        """What the worker makes of rows and of published states and segments."""
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        given = table.rename_columns({"indices": "v_indices", "values": "v_values"})
        given = given.append_column("part", pa.array([ROW] * len(rows), pa.string()))
        stored = pa.Table.from_pylist([_as_read(row) for row in held], schema=chain_schema())
        both = pa.concat_tables([given, stored], promote_options="default")
        both = both.append_column(PLACE, pc.coalesce(both["event_time"], both["start_time"], NO_DELTA))
        bucket = both["entity"].dictionary_encode().combine_chunks().indices
        both = both.append_column(BUCKET, pc.multiply(bucket, 1 - self.one_bucket))
        both = both.sort_by([(BUCKET, "ascending"), (PLACE, "ascending")])
        batches = both.to_batches(max_chunksize=3)
        return [row for batch in worker(iter(batches)) for row in pa.Table.from_batches([batch]).to_pylist()]

    def publish(self) -> None:
        def identity(row: Row) -> tuple[Any, ...]:
            # a state is told apart by its entity alone
            return tuple(row[c] for c in IDENTITY if row["part"] == SEGMENT_PART or not c.startswith("start"))

        closed = [identity(row) for row in self.last if row["era"] == "closing"]
        held = [identity(row) for row in self.rows]
        assert len(set(closed)) == len(closed)
        assert set(closed) <= set(held), "a row is closed that is not published"
        self.rows = [row for row in self.rows if identity(row) not in closed]
        self.rows += [row for row in self.last if row["era"] == "live"]
        assert all(row["known_from"] == self.known_from for row in self.last if row["era"] == "live")

    def part(self, part: str) -> list[Row]:
        return [row for row in self.rows if row["part"] == part]

    def gained(self) -> int:
        """What the gate sums."""
        own = [row for row in self.last if row["part"] == SEGMENT_PART]
        return sum(row["deltas"] * (1 if row["era"] == "live" else -1) + row["dropped"] for row in own)

    def versions_are_replays(self, rows: list[Row], horizon: int, known: list[int]) -> None:
        """Of the rows that plain SQL asks, exactly one says the state of a live entity at a time."""
        packed = self.packed().sort_by("entity")
        packed = packed.append_column(BUCKET, packed["entity"].dictionary_encode().combine_chunks().indices)
        for known_at in known:
            made = VersionsAt(MEANINGS[self.mode], known_at, horizon)(iter(packed.to_batches(max_chunksize=2)))
            versions = [row for batch in made for row in batch.to_pylist()]
            for entity in ENTITIES.to_pylist():
                own = [v for v in versions if v["entity"] == entity]
                for time in range(horizon, 11):
                    begun = [v for v in own if v["valid_from"] <= time]
                    holds = [v for v in begun if v["valid_to"] is None or v["valid_to"] > time]
                    naive = replayed(rows, self.mode, entity, time, known_at)
                    told = [(v.get("vector", [v.get("x"), v.get("y", v.get("n"))]), v["at_delta"]) for v in holds]
                    state = naive.state()
                    expected = [(list(state.vector), state.at_delta)] if state.status is Status.LIVE else []
                    assert repr(told) == repr(expected), (entity, time, known_at)

    def packed(self) -> pa.Table:
        """The published segments as reads carry them."""
        meaning = MEANINGS[self.mode]
        table = pa.Table.from_pylist(self.part(SEGMENT_PART), schema=chain_schema())
        is_float = meaning.dtype != "int64"
        kind = pa.list_(pa.from_numpy_dtype(np.dtype(meaning.dtype)))
        packed = {name: table[of[is_float]].cast(kind) for name, of in TYPED.items()}
        plain = {name: table[name] for name in table.column_names if name not in packed}
        return pa.table(plain | packed).select(columns_needed(meaning))

    def answers_are_replays(self, rows: list[Row], least: int, known: list[int]) -> None:
        meaning, carried = MEANINGS[self.mode], self.packed()
        segments = unpack(carried, ENTITIES, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)
        asked = [(e, t, k) for e in (0, 1) for t in range(least, max(10, least + 16), 2) for k in known]
        states = states_for(segments, *(np.array(column) for column in zip(*asked, strict=True)))
        for question, (code, time, known_at) in enumerate(asked):
            naive = replayed(rows, self.mode, ENTITIES[code].as_py(), time, known_at)
            assert same_bits(states, question, naive), (code, time, known_at)
        now = {row["entity"]: row for row in self.part(STATE_PART)}
        for entity in ENTITIES.to_pylist():
            state = replayed(rows, self.mode, entity, 99, LATEST).state()
            assert (entity in now) == (state.status is Status.LIVE)
            if entity in now:
                told = now[entity]["floats" if meaning.dtype != "int64" else "ints"]
                assert [repr(v) for v in told] == [repr(v) for v in state.vector]
                assert (now[entity]["at_delta"], now[entity]["delta_count"]) == (state.at_delta, state.delta_count)


def test_a_segment_that_is_written_alone_ends_where_the_next_one_starts() -> None:
    """A row that went and comes back at one visible time changes what its segment holds, and nothing behind it."""
    first: Row = {
        "entity": "a",
        "x": None,
        "y": None,
        "gone": True,
        "op": "create",
        "indices": [],
        "values": [1.0, 1.0],
    }
    first |= {"scalar": 0.5, "id": "d1", "parent": None, "event_time": 0, "row_id": 1, "time": 0, "diff": 1}
    second = {**first, "event_time": 1, "row_id": 2, "id": "d2", "time": 1}
    published = Published("operations", CompactionPolicy(FullMerge(), delta_threshold=1))
    published.run([first])
    published.run([second, {**second, "time": 2, "diff": -1}])
    published.run([{**second, "time": 2}])
    assert len([row for row in published.last if row["era"] == "live" and row["part"] == SEGMENT_PART]) == 1
    ends = [row["end_time"] for row in published.part(SEGMENT_PART)]
    assert sorted(ends, key=str) == [0, 1, None]


@pytest.mark.turns
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), strategy=st.sampled_from(STRATEGIES), data=st.data())
@settings(max_examples=tries(10), deadline=None)
def test_runs_in_any_slicing_publish_what_a_replay_gives(
    mode: str, rows: list[Row], strategy: Strategy, data: st.DataObject
) -> None:
    age = data.draw(st.sampled_from([None, None, 0, 3]))
    published = Published(
        mode, CompactionPolicy(strategy, delta_threshold=data.draw(st.integers(1, 4)), age_threshold=age)
    )
    rows = sorted(rows, key=lambda r: r["time"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    merged: list[int] = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        published.run(rows[start:end])
        assert published.gained() == sum(row["diff"] for row in rows[start:end])
        merged.append(published.did.get("merged", 0))
        newest = [row for row in published.part(SEGMENT_PART) if row["end_time"] is None]
        assert sum(merged) == sum(row["delta_count"] for row in newest)
        touched = {row["entity"] for row in rows[start:end]}
        # runs all reach the same time, so no chain comes of age without a row
        assert {row["entity"] for row in published.last} <= touched
        ends = [row["entity"] for row in published.part(SEGMENT_PART) if row["end_time"] is None]
        assert len(set(ends)) == len(ends)
    published.answers_are_replays(rows, -3, [-3, 0, 2, 5, 8, 12, LATEST])
    published.versions_are_replays(rows, -3, [0, 5, LATEST])
    before = {row["entity"]: row["revision"] for row in published.part(STATE_PART)}
    published.run(rows, everything=True)
    published.answers_are_replays(rows, -3, [-3, 0, 2, 5, 8, 12, LATEST])
    after = {row["entity"]: row["revision"] for row in published.part(STATE_PART)}
    assert after == {entity: revision + 1 for entity, revision in before.items()}


@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), strategy=st.sampled_from(STRATEGIES), since=st.integers(1, 9), horizon=st.integers(0, 7))
@settings(max_examples=tries(10), deadline=None)
def test_what_retention_passes_goes_and_no_answer_beyond_it_changes(
    mode: str, rows: list[Row], strategy: Strategy, since: int, horizon: int
) -> None:
    published = Published(mode, CompactionPolicy(strategy, delta_threshold=2))
    # a parent that retention has let go of counts as missing, so none is declared here
    rows = sorted(({**row, "parent": None} for row in rows), key=lambda r: r["time"])
    early = [row for row in rows if row["time"] <= since]
    published.run(early)
    # nothing from before the horizon is taken any more: such rows change nothing that is published
    later = [row for row in rows if row["time"] > since and row["event_time"] >= horizon]
    came = {row["row_id"] for row in early + later if row["diff"] > 0}
    later = [row for row in later if row["row_id"] in came]
    frontiers = Frontiers(since, horizon)
    published.run(later, frontiers)
    assert published.gained() == sum(row["diff"] for row in later)
    published.answers_are_replays(early + later, horizon, [since, since + 2, LATEST])
    published.versions_are_replays(early + later, horizon, [since, LATEST])


@st.composite
def policies(draw: st.DrawFn) -> CompactionPolicy:
    strategy = draw(st.sampled_from([*STRATEGIES, TieredMerge(0), Adaptive(0, 1, keep_recent=1)]))
    longest = draw(st.integers(1, 6))
    return CompactionPolicy(strategy, draw(st.integers(1, longest)), draw(st.sampled_from([None, 0, 4])), longest)


@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), policy=policies(), data=st.data())
@settings(max_examples=tries(10), deadline=None)
def test_passes_between_runs_do_what_runs_left_to_them(
    mode: str, rows: list[Row], policy: CompactionPolicy, data: st.DataObject
) -> None:
    published = Published(mode, replace(policy, deferred=True))
    rows = sorted(rows, key=lambda r: r["time"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        published.run(rows[start:end], as_of=data.draw(st.integers(0, 12)))
        assert published.gained() == sum(row["diff"] for row in rows[start:end])
        if data.draw(st.booleans()):
            as_of = data.draw(st.integers(0, 12))
            published.compact(as_of=as_of)
            assert published.gained() == 0
            published.compact(as_of=as_of)
            assert not published.last
    published.answers_are_replays(rows, -3, [-3, 0, 2, 5, 8, 12, LATEST])


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), data=st.data())
@settings(max_examples=tries(6), deadline=None)
def test_another_policy_for_every_run_and_retention_between_them_change_no_answer(
    mode: str, rows: list[Row], data: st.DataObject
) -> None:
    published = Published(mode, data.draw(policies()), Traffic(data.draw(st.integers(0, 2)), {1: 2, 2: 5}))
    # a parent that retention has let go of counts as missing, so none is declared here
    rows = sorted(({**row, "parent": None} for row in rows), key=lambda r: r["time"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    kept, landed, as_of = UNMOVED, list[Row](), 9
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[start:end]
        if part and data.draw(st.integers(0, 2)) == 0:
            kept = Frontiers(
                max(kept.since, data.draw(st.integers(0, 12))), max(kept.horizon, data.draw(st.integers(-2, 8)))
            )
        # what lands becomes visible after since, and nothing from before the horizon is taken
        part = [{**row, "time": max(row["time"], kept.since + 1)} for row in part if row["event_time"] >= kept.horizon]
        came = {row["row_id"] for row in landed + part if row["diff"] > 0}
        part = [row for row in part if row["row_id"] in came]
        landed += part
        as_of = max(as_of, data.draw(st.sampled_from([9, 12, 40])))
        published.policy = data.draw(policies())
        published.run(part, kept, as_of=as_of)
        assert published.gained() == sum(row["diff"] for row in part)
        known = [time for time in (-3, 0, 5, 8, 12, 15, LATEST) if time >= kept.since]
        published.answers_are_replays(landed, max(kept.horizon, -3), known)
    published.versions_are_replays(landed, max(kept.horizon, -3), [LATEST])
    for _ in range(2):
        published.run([], kept, as_of=as_of)
    assert published.last == []


@st.composite
def families(draw: st.DrawFn) -> list[Row]:
    """Rows that land when they happen or a little later. Most declare a row that happened before, which may land after
    them; some are taken back."""
    base: Row = {"x": None, "y": None, "gone": False, "indices": [], "scalar": 0.5, "sequence": "0"}
    rows: list[Row] = []
    for row_id in range(draw(st.integers(6, 15))):
        entity, event_time = draw(st.sampled_from("aab")), max(0, row_id - draw(st.integers(0, 2)))
        before = [r["id"] for r in rows if r["entity"] == entity and r["event_time"] < event_time]
        op = draw(st.sampled_from(["dense", "offset", "offset"])) if before else "dense"
        row = {**base, "entity": entity, "event_time": event_time, "row_id": row_id, "id": f"d{row_id}", "op": op}
        row["values"] = [1.0 + row_id] * 2 if op == "dense" else []
        row["parent"] = draw(st.sampled_from([*before, *before[:2], None, "unheard"])) if before else None
        time = row_id + draw(st.sampled_from([0, 0, 1, 3]))
        rows.append({**row, "time": time, "diff": 1})
        if draw(st.integers(0, 5)) == 0:
            rows.append({**row, "time": time + draw(st.integers(1, 3)), "diff": -1})
    return sorted(rows, key=lambda r: (r["time"], r["diff"]))


def with_parents_in_reach(landed: list[Row], part: list[Row], horizon: int) -> list[Row]:
    """The rows without parents from before the horizon: such a parent may have gone, and counts as missing then."""
    early = {row["id"] for row in landed if row["event_time"] < horizon}
    return [{**row, "parent": None if row["parent"] in early else row["parent"]} for row in part]


def landings(
    rows: list[Row], data: st.DataObject, size: int, *, moves: bool
) -> Iterator[tuple[list[Row], list[Row], Frontiers]]:
    """The rows of each run, at most `size`, with all rows that have landed by then and the frontiers of the run, which
    move between runs if `moves`. Rows that the frontiers refuse are left out."""
    frontiers, landed = Frontiers(-3, -3), list[Row]()
    for start in range(0, len(rows), size):
        if start and moves:
            since, horizon = (data.draw(st.integers(start // 2, start)) for _ in "12")
            frontiers = Frontiers(max(frontiers.since, since), max(frontiers.horizon, horizon))
        part = [row for row in rows[start : start + size] if row["event_time"] >= frontiers.horizon]
        part = [{**row, "time": max(row["time"], frontiers.since + 1)} for row in part]
        came = {row["row_id"] for row in landed + part if row["diff"] > 0}
        part = with_parents_in_reach(landed, [row for row in part if row["row_id"] in came], frontiers.horizon)
        landed += part
        yield part, landed, frontiers


@pytest.mark.turns
@given(rows=families(), data=st.data())
@settings(max_examples=tries(40), deadline=None)
def test_a_child_that_landed_before_its_parent_went_is_judged_as_before(rows: list[Row], data: st.DataObject) -> None:
    """Parents, deltas that compaction keeps, and frontiers that move between runs, all at once."""
    published = Published("operations", data.draw(policies()))
    for part, landed, frontiers in landings(rows, data, data.draw(st.integers(2, 5)), moves=True):
        published.policy = data.draw(policies())
        published.run(part, frontiers)
        assert published.gained() == sum(row["diff"] for row in part)
        times = [time for time in (0, 2, 5, 8, 12, 15, LATEST) if time >= frontiers.since]
        published.answers_are_replays(landed, frontiers.horizon, times)
        published.versions_are_replays(landed, frontiers.horizon, times)


@pytest.mark.turns
@given(rows=families(), data=st.data())
@settings(max_examples=tries(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parents_in_earlier_stretches_count_as_if_all_deltas_were_in_memory(
    monkeypatch: pytest.MonkeyPatch, rows: list[Row], data: st.DataObject
) -> None:
    monkeypatch.setattr(chain_worker, "PART_BYTES", 1)
    published = Published("operations", data.draw(policies()))
    published.one_bucket = 1
    moves, landed = data.draw(st.booleans()), list[Row]()
    for part, landed, frontiers in landings(rows, data, data.draw(st.integers(2, 15)), moves=moves):
        published.run(part, frontiers)
        assert published.gained() == sum(row["diff"] for row in part)
        times = [time for time in (0, 2, 5, 8, 12, 15, LATEST) if time >= frontiers.since]
        published.answers_are_replays(landed, frontiers.horizon, times)
    if not moves:
        published.run(landed, everything=True)
        published.answers_are_replays(landed, -3, [-3, 0, 5, LATEST])


def test_a_delta_id_of_an_earlier_stretch_is_refused_where_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_worker, "PART_BYTES", 1)
    published = Published("operations", CompactionPolicy(FullMerge(), delta_threshold=1))
    published.one_bucket = 1
    base: Row = {"entity": "a", "x": None, "y": None, "gone": False, "indices": [], "scalar": 0.5, "sequence": "0"}
    base |= {"op": "dense", "values": [1.0, 1.0], "diff": 1, "time": 1}
    rows = [{**base, "event_time": i, "row_id": i, "id": f"d{i}", "parent": None} for i in range(30)]
    again = {**rows[0], "event_time": 30, "row_id": 30}
    published.run([*rows, again])
    published.rows = []
    with pytest.raises(DuplicateDeltaError, match="the rows 0 and 30 with the delta id 'd0'"):
        published.run([*rows, {**again, "parent": "d2"}])


def test_a_child_is_refused_as_of_a_time_at_which_its_parent_had_not_landed_yet() -> None:
    base: Row = {"entity": "a", "x": None, "y": None, "gone": False, "indices": [], "scalar": 0.5, "sequence": "0"}
    create = {**base, "op": "dense", "values": [1.0, 1.0], "event_time": 0, "row_id": 0, "id": "d0", "parent": None}
    parent = {**base, "op": "offset", "values": [], "event_time": 1, "row_id": 1, "id": "d1", "parent": None}
    child = {**parent, "event_time": 2, "row_id": 2, "id": "d2", "parent": "d1"}
    rows = [{**row, "diff": 1, "time": time} for row, time in [(create, 0), (child, 2), (parent, 4)]]
    published = Published("operations", CompactionPolicy(FullMerge(), delta_threshold=9))
    for row in rows:
        published.run([row])
        published.answers_are_replays([r for r in rows if r["time"] <= row["time"]], 0, [row["time"]])
    before, after = (replayed(rows, "operations", "a", 9, known_at).state() for known_at in (3, 4))
    assert list(before.vector) == [1.0, 1.0]
    assert list(after.vector) == [2.0, 2.0], "parent and child add a half each"
    published.answers_are_replays(rows, 0, [0, 2, 3, 4, LATEST])


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(rows=updates(), data=st.data())
@settings(max_examples=tries(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_long_chains_are_restated_in_stretches_and_publish_what_a_replay_gives(
    monkeypatch: pytest.MonkeyPatch, mode: str, rows: list[Row], data: st.DataObject
) -> None:
    monkeypatch.setattr(chain_worker, "PART_BYTES", 1)
    published = Published(mode, data.draw(policies()))
    published.one_bucket = 1
    published.meaning = replace(published.meaning, operations=published.meaning.operations and NO_PARENTS)
    rows = sorted(({**row, "parent": None} for row in rows), key=lambda r: r["time"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    kept, landed, merged = UNMOVED, list[Row](), 0
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = [{**row, "time": max(row["time"], kept.since + 1)} for row in rows[start:end]]
        part = [row for row in part if row["event_time"] >= kept.horizon]
        came = {row["row_id"] for row in landed + part if row["diff"] > 0}
        part = [row for row in part if row["row_id"] in came]
        landed += part
        published.run(part, kept)
        assert published.gained() == sum(row["diff"] for row in part)
        merged += published.did.get("merged", 0)
        newest = [row for row in published.part(SEGMENT_PART) if row["end_time"] is None]
        assert merged == sum(row["delta_count"] for row in newest)
        live = [row for row in published.last if row["part"] == SEGMENT_PART and row["era"] == "live"]
        assert published.did.get("chains", 0) == len({row["entity"] for row in live})
        assert published.did.get("checkpoints", 0) == sum(row["at_delta"] is not None for row in live)
        known = [time for time in (-3, 0, 5, 8, 12, LATEST) if time >= kept.since]
        published.answers_are_replays(landed, max(kept.horizon, -3), known)
        if data.draw(st.booleans()):
            kept = Frontiers(max(kept.since, data.draw(st.integers(0, 9))), data.draw(st.integers(kept.horizon, 8)))
    if kept == UNMOVED:
        before = {row["entity"]: row["revision"] for row in published.part(STATE_PART)}
        published.run(landed, everything=True)
        published.answers_are_replays(landed, -3, [-3, 0, 5, LATEST])
        after = {row["entity"]: row["revision"] for row in published.part(STATE_PART)}
        assert after == {entity: revision + 1 for entity, revision in before.items()}


@pytest.mark.slow
@pytest.mark.parametrize("with_parents", [False, True])
def test_a_worker_has_a_stretch_of_a_long_chain_at_most(monkeypatch: pytest.MonkeyPatch, with_parents: bool) -> None:
    monkeypatch.setattr(chain_worker, "PART_BYTES", 20_000)
    mode = "operations" if with_parents else "add"
    published = Published(mode, CompactionPolicy(TieredMerge(5), delta_threshold=20))
    worked_on: list[int] = []
    restate_chains = chain_worker.restate_chains

    def watched(of_stretch, changes, *arguments, **named):  # type: ignore[no-untyped-def]
        earlier = named.get("earlier")
        n_earlier = 0 if earlier is None else len(earlier.entity)
        worked_on.append(len(of_stretch.deltas) + len(changes.deltas) + n_earlier)
        return restate_chains(of_stretch, changes, *arguments, **named)

    monkeypatch.setattr(chain_worker, "restate_chains", watched)
    base = dict.fromkeys(SCHEMA.names) | {"entity": "a", "diff": 1, "x": 1, "gone": False, "scalar": 1.0}
    rows = [{**base, "event_time": i // 25, "time": i // 25, "row_id": i} for i in range(2000)]
    for i, row in enumerate(rows if with_parents else []):
        row |= {"op": "offset" if i else "dense", "values": [] if i else [1.0, 1.0], "indices": [], "id": f"d{i}"}
        # the parent of one row in a hundred is far back
        row["parent"] = None if i < 25 else f"d{i - 25 if i % 100 else 0}"
    published.one_bucket = 1
    published.run(rows)
    assert max(worked_on) < 500 < sum(worked_on)
    assert sum(row["deltas"] for row in published.part(SEGMENT_PART)) == 2000
    column = "floats" if with_parents else "ints"
    assert [row[column] for row in published.part(STATE_PART)] == [[2000, 2000]]
    assert {row["revision"] for row in published.rows} == {0}
    published.answers_are_replays(rows, -3, [12])


@pytest.mark.slow
def test_segments_that_both_frontiers_passed_go_also_where_no_row_touches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_worker, "LEAST_ROWS", 1)
    published = Published("add", CompactionPolicy(TieredMerge(2), delta_threshold=4))
    base = dict.fromkeys(SCHEMA.names)
    rows = [
        {**base, "entity": "ab"[i % 2], "event_time": i, "time": i, "row_id": i, "diff": 1, "x": 1} for i in range(20)
    ]
    published.run(rows)
    held = len(published.part(SEGMENT_PART))
    touch = {**rows[0], "event_time": 30, "time": 30, "row_id": 99}
    published.run([touch], Frontiers(since=30, horizon=18))
    assert len(published.part(SEGMENT_PART)) < held - 4
    assert published.gained() == 1
    assert published.did["dropped"] == 21 - sum(row["deltas"] for row in published.part(SEGMENT_PART)) > 0
    closed = {row["entity"] for row in published.last if row["era"] == "closing"}
    assert closed == {"a", "b"}
    published.answers_are_replays([*rows, touch], 18, [30, LATEST])
    published.run([{**touch, "event_time": 31, "row_id": 100}], Frontiers(since=30, horizon=18))
    assert {row["entity"] for row in published.last} == {"a"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_chain_that_comes_of_age_is_compacted_once_though_no_row_touches_it(strategy: Strategy) -> None:
    published = Published("add", CompactionPolicy(strategy, delta_threshold=99, age_threshold=7))
    base = dict.fromkeys(SCHEMA.names)
    rows = [
        {**base, "entity": "ab"[i % 2], "event_time": i, "time": i, "row_id": i, "diff": 1, "x": 1} for i in range(8)
    ]
    published.run(rows, as_of=8)
    checkpoints = [row for row in published.part(SEGMENT_PART) if row["at_delta"] is not None]
    assert {row["entity"] for row in checkpoints} == {"a"}
    touch = {**rows[0], "event_time": 8, "time": 8, "row_id": 99}
    published.run([touch], as_of=99)
    came_of_age = [row for row in published.last if row["entity"] == "b"]
    assert {row["part"] for row in came_of_age} == {SEGMENT_PART}
    assert [row["ages_from"] for row in came_of_age if row["era"] == "closing"] == [1]
    assert published.gained() == 1
    published.answers_are_replays([*rows, touch], -3, [0, 5, LATEST])
    published.run([{**touch, "row_id": 100}], as_of=99)
    assert {row["entity"] for row in published.last} == {"a"}


def test_a_run_tells_the_bytes_of_what_it_replaced_and_of_what_it_wrote() -> None:
    published = Published("add", CompactionPolicy(TieredMerge(2), delta_threshold=4))
    base = dict.fromkeys(SCHEMA.names)
    rows = [{**base, "entity": "a", "event_time": i, "time": i, "row_id": i, "diff": 1, "x": 1} for i in range(12)]
    published.run(rows[:6])
    first = published.did
    assert (first["chains"], first["checkpoints"], first["merged"], first["dropped"]) == (1, 2, 4, 0)
    # of each row: an entity of one letter, event_time, time, row_id, diff, the component and `gone`'s null
    assert first["bytes_before"] == 6 * (4 + 1 + 5 * 8)
    published.run(rows[6:])
    second = published.did
    assert second["bytes_before"] > first["bytes_before"]
    held = pa.Table.from_pylist(published.part(SEGMENT_PART), schema=chain_schema())
    written = held.filter(pc.equal(held["known_from"], published.known_from))
    own = [c for c in written.column_names if c not in ("part", "era", "known_from", "known_to", "revision")]
    # starts that are null are so by a number here
    assert second["bytes_after"] - bytes_of(written.select(own)) == 8 * 2 * written["start_row"].null_count


def test_adaptive_weighs_the_reads_and_writes_of_entities_with_about_as_many_deltas() -> None:
    classes = [entity_class(deltas) for deltas in (0, 1, 2, 3, 4, 7, 8, 2**40 - 1, 2**40)]
    assert classes == [len(f"{deltas:b}") if deltas else 0 for deltas in (0, 1, 2, 3, 4, 7, 8, 2**40 - 1, 2**40)]
    # reads of all take in each of 10 entities; those of class 4 have 12 deltas each
    traffic = Traffic(2, {2: 30}, {2: 10, 4: 10}, {2: 30, 4: 120})
    told = traffic.of_entities(np.array([3, 12, 2, 100]))
    assert [column.tolist() for column in told] == [[50, 20, 50, 2], [30, 120, 30, 64]]
    published = Published("add", CompactionPolicy(Adaptive(0, 1, keep_recent=2), delta_threshold=2), traffic)
    base = dict.fromkeys(SCHEMA.names) | {"diff": 1, "x": 1}
    rows = [{**base, "entity": "b", "event_time": i, "time": i, "row_id": i} for i in range(12)]
    rows += [{**base, "entity": "a", "event_time": i, "time": i, "row_id": 50 + i} for i in range(2)]
    pending = []
    for part in (rows, [{**base, "entity": "a", "event_time": 20, "time": 20, "row_id": 90}]):
        published.run(part)
        newest = {row["entity"]: row["deltas"] for row in published.part(SEGMENT_PART) if row["end_time"] is None}
        pending.append((newest["a"], newest["b"]))
    # one delta more stays under the threshold
    assert pending == [(0, 2), (1, 2)]


def test_a_row_that_changes_no_state_leaves_it_as_it_is() -> None:
    published = Published("operations", CompactionPolicy(FullMerge(), delta_threshold=9))
    base = dict.fromkeys(SCHEMA.names) | {"entity": "a", "diff": 1}
    first = {**base, "event_time": 1, "time": 1, "row_id": 1, "op": "dense", "values": [1.0, 2.0], "id": "d1"}
    refused = {**base, "event_time": 2, "time": 2, "row_id": 2, "op": "create", "values": [5.0, 5.0], "id": "d2"}
    published.run([first])
    published.run([refused])
    assert [row["part"] for row in published.last] == [SEGMENT_PART] * 2
    assert pc.sum(pa.array(published.part(SEGMENT_PART)[0]["refusals"])).as_py() == 1
