"""The correction buffer against its twin: any sequence of operations gives the same answers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from spark_jobs.engine.corrections import CorrectionBuffer
from spark_jobs.engine.twins.corrections import NaiveCorrections, Triple
from spark_jobs.engine.updates import DiffOverflow
from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from tests.effort import tries

GREATEST = 2**64 - 1

times = st.integers(0, 20) | st.sampled_from([2**40, 2**40 + 1, 2**63, GREATEST - 1, GREATEST])
frontiers = (times | st.none()).map(Frontier)
updates = st.lists(st.tuples(st.sampled_from("abcde"), times, st.integers(-2, 2)), max_size=12)
many_updates = st.builds(
    lambda start, count, step: [(f"row {i % 7}", start + i * step, 1 - 2 * (i % 3 == 0)) for i in range(count)],
    st.integers(0, 5),
    st.integers(30, 120),
    st.sampled_from([0, 1, 3]),
)


class BufferBesideTwin(RuleBasedStateMachine):
    """Both get the same operations; whatever can be asked is asked after each."""

    @initialize(
        since=st.just(Frontier.at(0)) | frontiers,
        stage_bytes=st.sampled_from([0, 24, 24 * 4, 24 * 50]),
        chunk_bytes=st.sampled_from([0, 24 * 3, 24 * 1000]),
        proportionality=st.integers(1, 4),
        min_bucket_bits=st.sampled_from([0, 3, 64]),
        fuel=st.sampled_from([0, 5, 10**6]),
    )
    def start(
        self, since: Frontier, stage_bytes: int, chunk_bytes: int, proportionality: int, min_bucket_bits: int, fuel: int
    ) -> None:
        self.buffer = CorrectionBuffer(
            since=since,
            stage_bytes=stage_bytes,
            chunk_bytes=chunk_bytes,
            chain_proportionality=proportionality,
            min_bucket_bits=min_bucket_bits,
            restore_fuel=fuel,
        )
        self.twin = NaiveCorrections(since=since)

    @rule(batch=updates | many_updates)
    def insert(self, batch: list[Triple]) -> None:
        self.buffer.insert(*columns(batch))
        self.twin.insert(batch)

    @rule(batch=updates)
    def insert_negated(self, batch: list[Triple]) -> None:
        self.buffer.insert_negated(*columns(batch))
        self.twin.insert_negated(batch)

    @rule(since=frontiers)
    def advance_since(self, since: Frontier) -> None:
        before = self.buffer.state()
        try:
            self.twin.advance_since(since)
        except SinceRegression as refusal:
            with pytest.raises(SinceRegression) as caught:
                self.buffer.advance_since(since)
            assert caught.value.as_json() == refusal.as_json()
            assert self.buffer.state() == before
        else:
            self.buffer.advance_since(since)

    @rule(upper=frontiers)
    def read(self, upper: Frontier) -> None:
        wanted = self.twin.updates_before(upper)
        assert self.buffer.updates_before(upper).rows() == wanted
        assert self.buffer.count_before(upper) == len(wanted)

    @rule(upper=frontiers)
    def consolidate_before(self, upper: Frontier) -> None:
        self.buffer.consolidate_before(upper)

    @rule()
    def consolidate_at_since(self) -> None:
        self.buffer.consolidate_at_since()

    @rule(steps=st.integers(1, 4))
    def write_and_feed_back(self, steps: int) -> None:
        since = self.twin.since.time
        if since is None or since + steps > GREATEST:
            return
        for upper in map(Frontier.at, range(since + 1, since + steps + 1)):
            written = self.buffer.updates_before(upper)
            assert written.rows() == self.twin.updates_before(upper)
            self.buffer.insert_negated(*written)
            self.twin.insert_negated(written.rows())
            self.buffer.advance_since(upper)
            self.twin.advance_since(upper)

    @invariant()
    def contents_are_equal(self) -> None:
        if hasattr(self, "buffer"):
            wanted = self.twin.contents()
            assert self.buffer.contents().rows() == wanted
            assert self.buffer.n_updates >= len(wanted)

    @invariant()
    def sizes_are_what_the_structure_holds(self) -> None:
        if hasattr(self, "buffer"):
            coded = self.buffer._coded
            contents = [coded._pending_low, *coded._buckets.contents]
            chains = [chain for content in contents for chain in content.chains] + list(filter(None, [coded._emitted]))
            assert self.buffer.n_updates == sum(map(attrgetter("count"), chains)) + coded._stage.count
            for content in contents:
                assert content.count == sum(map(attrgetter("count"), content.chains))


def columns(batch: Sequence[Triple]) -> tuple[list[Any], list[int], list[int]]:
    data, times, diffs = zip(*batch, strict=True) if batch else ((), (), ())
    return [*data], [*times], [*diffs]


def test_any_sequence_of_operations_answers_like_the_twin() -> None:
    run_state_machine_as_test(
        BufferBesideTwin,
        settings=settings(max_examples=tries(60), stateful_step_count=25, deadline=None, derandomize=True),
    )


@pytest.mark.parametrize(
    ("data", "times", "diffs", "code"),
    [
        (["a"], [-1], [1], "time_out_of_range"),
        (["a"], [2**64], [1], "time_out_of_range"),
        (["a"], [1.0], [1], "malformed_updates"),
        (["a"], [1], [2**63], "malformed_updates"),
        (["a"], [1, 2], [1, 1], "malformed_updates"),
        (["a", "a"], [1, 2], [2**62, 2**62], "diff_overflow"),
        (["a", "a", "a"], [1, 2, 3], [2**62, -(2**62), 2**62], "diff_overflow"),
        (["a", "a"], [1, 2], [-(2**63), -1], "diff_overflow"),
    ],
)
def test_updates_that_cannot_be_held_exactly_are_refused_whole(
    data: list[str], times: list[float], diffs: list[int], code: str
) -> None:
    buffer = CorrectionBuffer()
    buffer.insert(["kept"], [3], [1])
    before = buffer.state()
    with pytest.raises(TidemarkError) as caught:
        buffer.insert(data, times, diffs)
    assert caught.value.code == code
    assert buffer.state() == before


def test_great_diffs_of_different_rows_are_held_side_by_side() -> None:
    buffer = CorrectionBuffer()
    buffer.insert(["a", "b"], [1, 1], [2**63 - 1, -(2**63 - 1)])
    assert buffer.updates_before(Frontier.empty()).rows() == [("a", 1, 2**63 - 1), ("b", 1, 1 - 2**63)]


great = st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62), 2**61, -1, 1])
great_updates = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), great), min_size=1, max_size=4)
steps = st.lists(
    st.tuples(st.just("insert"), great_updates)
    | st.tuples(st.just("insert_negated"), great_updates)
    | st.tuples(st.sampled_from(["feed_back", "advance_since", "read"]), st.integers(0, 4)),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps, st.sampled_from([0, 24 * 3, 24 * 100]))
def test_great_diffs_are_refused_only_where_an_answer_could_leave_64_bits(
    steps: list[tuple[str, Any]], stage_bytes: int
) -> None:
    buffer, twin = CorrectionBuffer(stage_bytes=stage_bytes), NaiveCorrections()
    for step, argument in steps:
        if step == "advance_since":
            twin.advance_since(max(twin.since, Frontier.at(argument)))
            buffer.advance_since(twin.since)
        elif step == "read":
            assert buffer.updates_before(Frontier.at(argument)).rows() == twin.updates_before(Frontier.at(argument))
        else:
            batch = twin.updates_before(Frontier.at(argument)) if step == "feed_back" else argument
            name = "insert_negated" if step == "feed_back" else step
            after = copy.deepcopy(twin)
            getattr(after, name)(batch)
            if fits(after.contents()):
                getattr(buffer, name)(*columns(batch))
                twin = after
            else:
                with pytest.raises(DiffOverflow):
                    getattr(buffer, name)(*columns(batch))
        assert buffer.contents().rows() == twin.contents()


def fits(contents: Sequence[Triple]) -> bool:
    """Whether no sum of a row's updates, of whichever of its times, leaves int64."""
    for row in "ab":
        diffs = [diff for data, _, diff in contents if data == row]
        positive, negative = (sum(d for d in diffs if d > 0), sum(d for d in diffs if d < 0))
        if positive >= 2**63 or negative < -(2**63):
            return False
    return True
